"""Waits of asyncio's tasks for a descriptor."""

import asyncio
import os


class Readiness:
    """Lets any number of tasks, in any number of event loops, wait until a descriptor is readable."""

    def __init__(self, fd: int) -> None:
        # A descriptor of its own, as an event loop has one callback for each: programs may watch `fd`, too.
        self._fd = os.dup(fd)
        self._waiting: dict[asyncio.AbstractEventLoop, set[asyncio.Future[None]]] = {}

    async def wait(self) -> None:
        """Returns when the descriptor is readable, or closed."""
        loop = asyncio.get_running_loop()
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
        for loop, futures in waiting.items():
            self._end(loop, fd, futures)
        if not waiting and fd >= 0:
            os.close(fd)

    @staticmethod
    def _end(loop: asyncio.AbstractEventLoop, fd: int, futures: set[asyncio.Future[None]]) -> None:
        def end() -> None:
            loop.remove_reader(fd)
            for future in futures:
                if not future.done():
                    future.set_result(None)
            try:
                os.close(fd)
            except OSError:
                pass  # Another loop has closed it.

        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            end()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(end)
