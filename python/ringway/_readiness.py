"""Waits of asyncio's tasks for a descriptor."""

import asyncio
import os
from collections.abc import Callable


class Readiness:
    """Lets any number of tasks, in any number of event loops, wait until a descriptor is readable."""

    def __init__(self, fd: int) -> None:
        # A descriptor of its own, as an event loop has one callback for each: programs may watch `fd`, too.
        self._fd = os.dup(fd)
        self._waiting: dict[asyncio.AbstractEventLoop, set[asyncio.Future[None]]] = {}

    def __del__(self) -> None:
        # No task waits: it would refer to this object.
        self.close()

    async def wait(self) -> None:
        """Returns when the descriptor is readable, or closed."""
        loop = asyncio.get_running_loop()
        if self._fd < 0:
            return
        future = loop.create_future()
        waiting = self._waiting.setdefault(loop, set())
        if not waiting:
            loop.add_reader(self._fd, self._wake, loop)
        waiting.add(future)
        try:
            await future
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(loop) is waiting:
                del self._waiting[loop]
                loop.remove_reader(self._fd)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        for future in self._waiting.get(loop, ()):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """Ends all waits, and closes the descriptor."""
        waiting, self._waiting = self._waiting, {}
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        # The last loop that has left the descriptor closes it: earlier, its number could already be another file's.
        others = [None] * len(waiting)

        def leave() -> None:
            try:
                others.pop()
            except IndexError:
                os.close(fd)

        for loop, futures in waiting.items():
            self._end(loop, fd, futures, leave)
        leave()

    @staticmethod
    def _end(
        loop: asyncio.AbstractEventLoop, fd: int, futures: set[asyncio.Future[None]], leave: Callable[[], None]
    ) -> None:
        def end() -> None:
            loop.remove_reader(fd)
            for future in futures:
                if not future.done():
                    future.set_result(None)
            leave()

        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            end()
            return
        try:
            loop.call_soon_threadsafe(end)
        except RuntimeError:
            leave()  # The loop is closed.
