"""Ports in asyncio's event loops."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import ringway
from scene import LIMIT, Daemon, Scene, frame, number_of

T = TypeVar("T")


class Tasks(Scene):
    def run_within(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(asyncio.wait_for(what, LIMIT))

    def test_a_task_receives_while_another_sends(self) -> None:
        a, b = self.pair(tx_slots=8)

        async def receive() -> list[int]:
            numbers: list[int] = []
            while len(numbers) < 300:
                numbers += [number_of(one) for one in await b.arecv()]
            return numbers

        async def both() -> tuple[list[int], int]:
            return await asyncio.gather(receive(), a.asend(map(frame, range(300))))

        numbers, sent = self.run_within(both())
        self.assertEqual((numbers, sent), (list(range(300)), 300))

    def test_async_iteration_gives_each_frame(self) -> None:
        a, b = self.pair()

        async def count() -> list[int]:
            await a.asend([frame(number) for number in range(20)])
            numbers: list[int] = []
            async for one in b:
                numbers.append(number_of(one))
                if len(numbers) == 20:
                    break
            return numbers

        self.assertEqual(self.run_within(count()), list(range(20)))

    def test_many_tasks_share_a_port(self) -> None:
        a, b = self.pair()

        async def share() -> list[int]:
            tasks = [asyncio.create_task(b.arecv(1)) for _ in range(10)]
            await asyncio.sleep(0.02)
            for number in range(10):
                await a.asend(frame(number))
                await asyncio.sleep(0.001)
            return sorted(number_of(one) for frames in await asyncio.gather(*tasks) for one in frames)

        self.assertEqual(self.run_within(share()), list(range(10)))

    def test_a_cancelled_wait_takes_no_frame(self) -> None:
        a, b = self.pair()

        async def cancel() -> list[int]:
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(b.arecv(), 0.02)
            await a.asend(frame(3))
            return [number_of(one) for one in await b.arecv()]

        self.assertEqual(self.run_within(cancel()), [3])

    def test_a_port_works_in_one_loop_after_another(self) -> None:
        a, b = self.pair()

        async def once(number: int) -> list[int]:
            waiting = asyncio.create_task(b.arecv())
            await asyncio.sleep(0.01)
            await a.asend(frame(number))
            return [number_of(one) for one in await waiting]

        for number in range(5):
            self.assertEqual(self.run_within(once(number)), [number])

    def test_a_sender_lets_others_run_until_there_is_room(self) -> None:
        # Held back by its limit, the switch takes few frames until another task lifts it.
        a, _ = self.pair(tx_slots=4)
        client = ringway.Client()
        client.set_port(a.name, ingress={"rate": "8kbit", "on_excess": "wait"})

        async def send() -> int:
            sending = asyncio.create_task(a.asend([frame(0, 1000)] * 40))
            await asyncio.sleep(0.02)
            self.assertFalse(sending.done())
            client.set_port(a.name, ingress={"rate": "1Gbit"})
            return await sending

        self.assertEqual(self.run_within(send()), 40)

    def test_closing_ends_the_waits_of_tasks(self) -> None:
        _, b = self.pair()

        async def close() -> None:
            waiting = asyncio.create_task(b.arecv())
            await asyncio.sleep(0.02)
            b.close()
            with self.assertRaisesRegex(ValueError, "is closed"):
                await waiting

        self.run_within(close())

    def test_a_port_that_loops_waited_for_leaves_no_descriptor(self) -> None:
        def descriptors() -> int:
            return len(os.listdir("/proc/self/fd"))

        async def wait(port: ringway.Port) -> None:
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(port.arecv(), 0.001)

        self.run_within(wait(self.port("fd:first")))
        before = descriptors()
        for way in ("close", "forget", "close while a loop waits"):
            port = ringway.Port("fd:b")
            self.run_within(wait(port))
            if way == "close while a loop waits":
                self.close_under_a_loop(port)
            elif way == "close":
                port.close()
            del port
            gc.collect()
            self.assertEqual(descriptors(), before, way)

    def close_under_a_loop(self, port: ringway.Port) -> None:
        """Closes a port for which a task of another thread's loop waits."""
        ended: list[str] = []

        async def wait() -> None:
            try:
                await port.arecv()
            except ValueError as error:
                ended.append(str(error))

        thread = threading.Thread(target=lambda: self.run_within(wait()))
        thread.start()
        self.until(lambda: port._readable is not None and port._readable._waiting, "the task waits")
        port.close()
        thread.join(LIMIT)
        self.assertRegex(ended[0], "is closed")

    def test_a_killed_daemon_ends_the_waits_of_tasks(self) -> None:
        daemon = Daemon()
        self.addCleanup(daemon.end)

        async def kill() -> None:
            with ringway.Port("lan0:a", socket=daemon.attach) as port:
                waiting = asyncio.create_task(port.arecv())
                await asyncio.sleep(0.02)
                daemon.stop(signal.SIGKILL)
                with self.assertRaises(ringway.PortEnded):
                    await waiting
                with self.assertRaises(ringway.PortEnded):
                    await port.asend([frame()] * 1000)

        self.run_within(kill())
