"""Ports: frames there and back, views, waits, and their ends."""

import array
import gc
import mmap
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import ringway
from scene import LIMIT, Daemon, Scene, collect, frame, number_of


def in_place(received: memoryview) -> bool:
    """Whether the view is over the buffer that the frame arrived in."""
    return "in its buffer" in repr(received.obj)


class Sending(Scene):
    def test_a_frame_arrives_as_it_was_sent(self) -> None:
        a, b = self.pair()
        self.assertEqual(a.send(frame(7)), 1)
        [received] = b.recv(timeout=LIMIT)
        self.assertEqual(bytes(received), frame(7))
        received.release()

    def test_anything_with_the_buffer_protocol_is_a_frame(self) -> None:
        a, b = self.pair()
        page = mmap.mmap(-1, 4096)
        page.write(frame(4))
        whole = memoryview(page)
        kinds = [frame(0), bytearray(frame(1)), memoryview(frame(2)), array.array("H", frame(3)), whole[:60]]
        for kind in kinds:
            self.assertEqual(a.send(kind), 1, type(kind))
        self.assertEqual(collect(b, 5), [frame(number) for number in range(5)])
        whole.release()

    def test_a_batch_may_be_any_iterable(self) -> None:
        a, b = self.pair()
        batches = ([frame(0)], (frame(1), frame(2)), (frame(number) for number in (3, 4)), {5: frame(5)}.values(), [])
        self.assertEqual([a.send(batch) for batch in batches], [1, 2, 2, 1, 0])
        self.assertEqual([number_of(one) for one in collect(b, 6)], list(range(6)))

    def test_what_is_no_frame_is_refused_by_its_type(self) -> None:
        a, _ = self.pair()
        for wrong in ("text", 7, None, ["text"], [frame(), 7], [[frame()]]):
            with self.assertRaisesRegex(TypeError, "bytes-like|iterable"):
                a.send(wrong)  # type: ignore[arg-type]
        with self.assertRaises(BufferError):
            a.send([memoryview(frame())[::2]])

    def test_frames_before_a_wrong_one_are_sent(self) -> None:
        a, b = self.pair()
        with self.assertRaises(TypeError):
            a.send([frame(1), frame(2), 3])  # type: ignore[list-item]
        self.assertEqual([number_of(one) for one in collect(b, 2)], [1, 2])

    def test_without_a_timeout_the_number_that_fitted_comes_back(self) -> None:
        # Held back by its limit, the switch takes few frames.
        a, _ = self.pair(tx_slots=8)
        ringway.Client().set_port(a.name, ingress={"rate": "8kbit", "on_excess": "wait"})
        self.until(lambda: a.send([frame(1, 1500)] * 20) < 7, "the ring is full")
        before = time.monotonic()
        self.assertLess(a.send([frame(1, 1500)] * 20, timeout=0.05), 7)
        self.assertGreaterEqual(time.monotonic() - before, 0.04)

    def test_with_a_timeout_all_are_sent_in_order(self) -> None:
        a, b = self.pair(tx_slots=16)
        sent: list[int] = []
        sender = threading.Thread(target=lambda: sent.append(a.send(map(frame, range(2000)), timeout=LIMIT)))
        sender.start()
        received = collect(b, 2000)
        sender.join(LIMIT)
        self.assertEqual(sent, [2000])
        # The receiver's ring may overflow; what arrives is in order.
        numbers = [number_of(one) for one in received]
        self.assertEqual(numbers, sorted(numbers))

    def test_a_frame_of_several_buffers_arrives_whole(self) -> None:
        a, b = self.pair(buffer_size=256)
        self.assertEqual(a.send(frame(9, 9000)), 1)
        [received] = b.recv(timeout=LIMIT)
        self.assertEqual(bytes(received), frame(9, 9000))
        self.assertEqual(a.max_frame, 64 * 256)
        with self.assertRaisesRegex(ValueError, "16385 bytes does not fit .* at most 16384"):
            a.send(bytes(a.max_frame + 1))
        received.release()

    def test_frames_of_several_buffers_wait_for_enough_room(self) -> None:
        a, b = self.pair(buffer_size=256, tx_slots=8)
        batch = [frame(number, 1500) for number in range(50)]
        self.assertEqual(a.send(batch, timeout=LIMIT), 50)
        self.assertEqual(collect(b, 50), batch)

    def test_a_ring_that_is_not_there_is_refused(self) -> None:
        a, b = self.pair(tx_rings=2, rx_rings=2)
        self.assertEqual([a.send(frame(number), ring=number) for number in (0, 1)], [1, 1])
        self.assertEqual(sorted(number_of(one) for one in collect(b, 2)), [0, 1])
        with self.assertRaisesRegex(IndexError, "ring 2 .* has 2 transmit rings"):
            a.send(frame(), ring=2)


class Views(Scene):
    def test_views_outlive_the_call_and_hold_their_frames(self) -> None:
        a, b = self.pair(rx_slots=16, spare_buffers=64)
        kept = []
        for number in range(48):
            a.send(frame(number), timeout=LIMIT)
            kept += b.recv(timeout=LIMIT)
        self.assertEqual([number_of(one) for one in kept], list(range(48)))
        self.assertEqual(b.held, 48)

    def test_views_may_be_released_in_any_order(self) -> None:
        a, b = self.pair(rx_slots=16, spare_buffers=16)
        for turn in range(8):
            kept = []
            for number in range(12):
                a.send(frame(100 * turn + number), timeout=LIMIT)
                kept += b.recv(timeout=LIMIT)
            self.assertEqual(sum(map(in_place, kept)), 12, "a buffer did not come back")
            for place in (5, 0, 11, 3, 7, 1, 9, 10, 2, 4, 8, 6):
                self.assertEqual(number_of(kept[place]), 100 * turn + place)
                kept[place].release()
            self.assertEqual(b.held, 0)

    def test_a_frame_that_arrives_while_the_ring_is_looked_at_stays_in_its_buffer(self) -> None:
        a, b = self.pair()
        for number in range(20_000):
            a.send(frame(number))
            while not (received := b.recv(timeout=0)):
                pass
            self.assertTrue(in_place(received[0]), number)

    def test_a_slice_keeps_the_buffer_until_it_is_released(self) -> None:
        a, b = self.pair()
        a.send(frame(5))
        [whole] = b.recv(timeout=LIMIT)
        part = whole[14:18]
        whole.release()
        self.assertEqual(b.held, 1)
        a.send([frame(6)] * 400, timeout=LIMIT)
        collect(b, 400)
        self.assertEqual(int.from_bytes(part, "big"), 5)
        del part
        self.assertEqual(b.held, 0)

    def test_a_view_cannot_be_written_to(self) -> None:
        a, b = self.pair()
        a.send(frame())
        [received] = b.recv(timeout=LIMIT)
        self.assertTrue(received.readonly)
        with self.assertRaises(TypeError):
            received[0] = 1

    def test_beyond_the_spare_buffers_frames_are_copies_and_the_ring_goes_on(self) -> None:
        for spares in (0, 3):
            with self.subTest(spares=spares):
                a, b = self.port(f"sp{spares}:a"), self.port(f"sp{spares}:b", rx_slots=4, spare_buffers=spares)
                kept = []
                for number in range(40):
                    a.send(frame(number), timeout=LIMIT)
                    kept += b.recv(timeout=LIMIT)
                self.assertEqual([number_of(one) for one in kept], list(range(40)))
                self.assertEqual(b.held, 40)
                self.assertEqual(sum(map(in_place, kept)), spares)
                kept.clear()
                self.assertEqual(b.held, 0)
                drops = ringway.Client().port(b.name)["drops"]
                self.assertEqual(sum(drops.values()), 0, drops)

    def test_closing_with_live_views_raises_and_closes_nothing(self) -> None:
        a, b = self.pair()
        a.send([frame(1), frame(2)])
        kept: list[memoryview] = []
        while len(kept) < 2:
            kept += b.recv(timeout=LIMIT)
        with self.assertRaisesRegex(BufferError, "2 received frames are in use"):
            b.close()
        a.send(frame(3))
        self.assertEqual(number_of(collect(b, 1)[0]), 3)
        for one in kept:
            one.release()
        b.close()
        b.close()
        self.assertTrue(b.closed)

    def test_an_error_in_the_context_is_not_hidden_by_its_views(self) -> None:
        a, b = self.pair()
        a.send(frame(8))
        with self.assertRaises(ZeroDivisionError):
            with b:
                [kept] = b.recv(timeout=LIMIT)
                raise ZeroDivisionError
        self.assertTrue(b.closed)
        self.assertEqual(number_of(kept), 8)
        with self.assertRaises(BufferError):
            with self.port("other:b") as c:
                a2 = self.port("other:a")
                a2.send(frame(9))
                kept = c.recv(timeout=LIMIT)[0]

    def test_views_outlive_a_port_that_was_forgotten(self) -> None:
        a, b = self.pair()
        a.send(frame(11))
        kept = ringway.Port.recv(b, timeout=LIMIT)[0]
        other = ringway.Port("forgotten:b")
        with ringway.Port("forgotten:a") as sender:
            sender.send(frame(12))
            late = other.recv(timeout=LIMIT)[0]
        del other
        gc.collect()
        self.assertEqual((number_of(kept), number_of(late)), (11, 12))

    def test_many_laps_of_the_ring_with_views_in_every_state(self) -> None:
        a, b = self.pair(rx_slots=32, spare_buffers=40)
        kept: list[memoryview] = []
        for number in range(5000):
            a.send(frame(number), timeout=LIMIT)
            kept += b.recv(timeout=LIMIT)
            self.assertEqual(number_of(kept[-1]), number)
            if len(kept) > 50:
                del kept[number % 50 :: 3]
        for one in kept:
            self.assertEqual(bytes(one), frame(number_of(one)))


class Forks(Scene):
    def test_a_child_must_not_use_the_port_and_cannot_harm_it(self) -> None:
        a, b = self.pair()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                uses = (b.recv, b.fileno, lambda: b.send(frame()), b.recv_bytes, b.__next__)
                status = sum(not self.is_refused(use) for use in uses)
                repr(b), b.ended
                with b:
                    pass
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        # The wait sleeps: the child has not woken it for ever.
        busy = time.process_time()
        self.assertEqual(b.recv(timeout=0.5), [])
        self.assertLess(time.process_time() - busy, 0.05)
        a.send(frame(4))
        self.assertEqual(number_of(b.recv(timeout=LIMIT)[0]), 4)

    def is_refused(self, use: Callable[[], object]) -> bool:
        try:
            use()
        except ValueError as error:
            return "belongs to the process that made it" in str(error)
        return False


class Shutdown(Scene):
    def test_an_interpreter_ends_while_threads_wait_and_views_live(self) -> None:
        program = (
            "import threading, ringway\n"
            "a, b = ringway.Port('end:a'), ringway.Port('end:b')\n"
            "a.send(bytes([255] * 6 + [2] * 54)); [kept] = b.recv(timeout=20)\n"
            "for _ in range(3): threading.Thread(target=b.recv, daemon=True).start()\n"
            "b.fileno(); b.cycle = kept, b\n"
        )
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, b""))


class Waiting(Scene):
    def test_a_timeout_gives_an_empty_list(self) -> None:
        _, b = self.pair()
        before = time.monotonic()
        self.assertEqual(b.recv(timeout=0), [])
        self.assertEqual(b.recv(timeout=0.05), [])
        self.assertEqual(b.recv_bytes(timeout=0.05), [])
        self.assertGreaterEqual(time.monotonic() - before, 0.09)
        for wrong in (-1, float("nan")):
            with self.assertRaisesRegex(ValueError, "timeout"):
                b.recv(timeout=wrong)
        with self.assertRaises(OverflowError):
            b.recv(-1)
        self.assertEqual(b.recv(0), [])

    def test_other_threads_run_while_one_waits(self) -> None:
        a, b = self.pair()
        got: list[bytes] = []
        threads = [threading.Thread(target=lambda: got.extend(b.recv_bytes(1))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(4):
            a.send(frame(number))
        for thread in threads:
            thread.join(LIMIT)
            self.assertFalse(thread.is_alive())
        self.assertEqual(sorted(map(number_of, got)), [0, 1, 2, 3])

    def test_one_thread_sends_while_another_waits_for_frames_of_the_same_port(self) -> None:
        a, b = self.pair()
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.extend(collect(a, 1)))
        thread.start()
        a.send(frame(1))
        self.assertEqual(number_of(collect(b, 1)[0]), 1)
        b.send(frame(2))
        thread.join(LIMIT)
        self.assertEqual([number_of(one) for one in got], [2])

    def test_closing_ends_another_threads_wait(self) -> None:
        _, b = self.pair()
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                b.recv()
            except ValueError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        b.close()
        thread.join(LIMIT)
        self.assertIn("is closed", str(errors[0]))

    def test_a_signal_interrupts_a_wait(self) -> None:
        _, b = self.pair()
        # A shell that starts the tests in the background has them ignore SIGINT.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        for wait in (b.recv, b.__next__, lambda: b.recv(timeout=LIMIT)):
            timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
            with self.assertRaises(KeyboardInterrupt):
                timer.start()
                wait()
            timer.join()

    def test_a_handler_that_returns_lets_the_wait_go_on(self) -> None:
        a, b = self.pair()
        before = signal.signal(signal.SIGALRM, lambda *_: a.send(frame(3)) and None)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        self.assertEqual([number_of(one) for one in b.recv(timeout=LIMIT)], [3])

    def test_iteration_waits_for_each_frame(self) -> None:
        a, b = self.pair()
        thread = threading.Thread(target=lambda: [a.send(frame(number)) for number in range(10)])
        thread.start()
        numbers = []
        for received in b:
            numbers.append(number_of(received))
            if len(numbers) == 10:
                break
        thread.join()
        self.assertEqual(numbers, list(range(10)))


class Readiness(Scene):
    def readable(self, port: ringway.Port, timeout: float = 0) -> bool:
        return bool(select.select([port], [], [], timeout)[0])

    def until_quiet(self, port: ringway.Port) -> None:
        """Waits until a port without frames is not readable. The call for a frame may come after the frame was taken."""
        self.until(lambda: port.recv(timeout=0) == [] and not self.readable(port), "nothing to read")

    def test_a_port_is_readable_exactly_while_there_are_frames(self) -> None:
        a, b = self.pair()
        self.assertFalse(self.readable(b))
        a.send([frame(1), frame(2)])
        self.assertTrue(self.readable(b, LIMIT))
        received = collect(b, 1)
        self.until(lambda: self.readable(b), "one frame is left")
        received += collect(b, 1)
        self.until_quiet(b)

    def test_each_frame_makes_a_port_readable_until_it_is_taken(self) -> None:
        a, b = self.pair()
        self.assertFalse(self.readable(b))
        for number in range(200):
            a.send(frame(number))
            # By the one call that was asked for: no other comes later.
            self.assertTrue(self.readable(b, LIMIT), number)
            self.assertEqual([number_of(one) for one in b.recv_bytes(timeout=0)], [number])
            self.assertFalse(self.readable(b), number)

    def test_a_frame_before_the_first_fileno_makes_it_readable(self) -> None:
        a, b = self.pair()
        a.send(frame(1))
        self.until(lambda: self.readable(b), "the frame")
        self.assertEqual(len(b.recv(timeout=0)), 1)

    def test_selectors_watch_many_ports(self) -> None:
        a, b = self.pair()
        c = self.port(a.name.replace(":a", ":c"))
        with selectors.DefaultSelector() as selector:
            for port in (b, c):
                selector.register(port, selectors.EVENT_READ)
            got = {b: 0, c: 0}
            for number in range(50):
                a.send(frame(number))
                while min(got.values()) <= number:
                    events = selector.select(LIMIT)
                    self.assertTrue(events, number)
                    for key, _ in events:
                        got[key.fileobj] += len(key.fileobj.recv(timeout=0))  # type: ignore[union-attr,index]
            self.assertEqual(list(got.values()), [50, 50])

    def test_blocking_waits_and_the_descriptor_do_not_disturb_each_other(self) -> None:
        a, b = self.pair()
        b.fileno()
        for number in range(100):
            a.send(frame(number))
            self.assertEqual(len(b.recv(timeout=LIMIT)), 1)
            a.send(frame(number))
            self.assertTrue(self.readable(b, LIMIT))
            self.assertEqual(len(b.recv(timeout=LIMIT)), 1)
            self.until_quiet(b)


class Offloads(Scene):
    def test_an_offload_passes_between_ports_that_ask_for_it(self) -> None:
        a, b = self.pair(offload=True, buffer_size=8192)
        ip = bytes.fromhex("45000fd4000040004006" "16ec" "0a0000010a000002")
        tcp = bytes.fromhex("03e803e8000000010000000150100200" "0000" "0000")
        large = b"\xff" * 6 + b"\x02\0\0\0\0\x01" + b"\x08\0" + ip + tcp + bytes(4052 - 40)
        offload = ringway.Offload(gso="tcp4", gso_size=1000, csum_start=34, csum_offset=16)
        self.assertEqual(a.send([(large, offload), (frame(1), None), frame(2)]), 3)
        received: list[tuple[memoryview, ringway.Offload | None]] = []
        while len(received) < 3:
            received += b.recv_offloaded(timeout=LIMIT)
        [first, second, third] = received
        self.assertEqual(first[0].nbytes, len(large))
        assert first[1] is not None
        self.assertEqual((first[1].gso, first[1].gso_size, first[1].csum_start), ("tcp4", 1000, 34))
        self.assertEqual([(bytes(view), header) for view, header in (second, third)], [(frame(1), None), (frame(2), None)])

    def test_the_header_is_no_part_of_a_frame(self) -> None:
        a, b = self.pair(offload=True)
        a.send([frame(1), frame(2)])
        [one] = b.recv(1, timeout=LIMIT)
        self.assertEqual(bytes(one), frame(1))
        self.assertEqual(collect(b, 1), [frame(2)])

    def test_an_offload_without_the_option_is_refused(self) -> None:
        a, _ = self.pair()
        with self.assertRaisesRegex(ValueError, "offload=True"):
            a.send((frame(), ringway.Offload(csum_start=34, csum_offset=16)))

    def test_an_offload_that_contradicts_itself_is_refused(self) -> None:
        a, _ = self.pair(offload=True)
        for wrong in (
            ringway.Offload(csum_start=34, csum_offset=16, gso="tcp4"),
            ringway.Offload(csum_start=34, csum_offset=16, gso="udp", gso_size=1000, ecn=True),
            ringway.Offload(csum_start=70_000, csum_offset=16),
        ):
            with self.assertRaises(ValueError):
                a.send((frame(), wrong))


class Attaching(Scene):
    config = """
        [switch.bound]
        [port.vm]
        switch = "bound"
        kind = "process"
        mac = "02:00:00:00:00:42"
    """

    def test_the_bound_address_is_known(self) -> None:
        self.assertEqual(self.port("bound:vm").mac, "02:00:00:00:00:42")
        self.assertIsNone(self.port("free:vm").mac)

    def test_a_second_port_of_the_name_is_refused_in_the_daemons_words(self) -> None:
        self.port("lan0:a")
        with self.assertRaisesRegex(ringway.AttachError, "the switch refused: .*a"):
            ringway.Port("lan0:a")
        self.assertTrue(issubclass(ringway.AttachError, ringway.Error))

    def test_names_and_shapes_out_of_range_are_refused(self) -> None:
        for name in ("lan0", "lan0:", ":a", "lan0:" + "x" * 1000, "lan0:a/b", "lan0:a\n"):
            with self.assertRaises(ringway.AttachError, msg=name):
                ringway.Port(name)
        shapes = {"tx_rings": 17, "rx_slots": 3, "tx_slots": 40_000, "buffer_size": 100, "spare_buffers": 100_000}
        for key, wrong in shapes.items():
            with self.assertRaisesRegex(ringway.AttachError, str(wrong)):
                ringway.Port("lan0:b", **{key: wrong})  # type: ignore[arg-type]

    def test_no_daemon_is_named_with_its_socket(self) -> None:
        with self.assertRaisesRegex(ringway.AttachError, "no switch at /nowhere/attach.sock"):
            ringway.Port("lan0:a", socket="/nowhere/attach.sock")

    def test_a_closed_port_refuses_everything(self) -> None:
        port = self.port("lan0:closed")
        port.close()
        for use in (port.recv, port.fileno, lambda: port.send(frame()), port.__next__, port.recv_bytes):
            with self.assertRaisesRegex(ValueError, "lan0:closed is closed"):
                use()
        self.assertIn("closed", repr(port))

    def test_the_port_goes_with_its_object_and_its_process(self) -> None:
        names = lambda: [port["name"] for port in ringway.Client().ports()]
        port = ringway.Port("lan0:gone")
        self.assertIn("gone", names())
        del port
        self.until(lambda: "gone" not in names(), "the object is gone")
        program = "import ringway; p = ringway.Port('lan0:child'); print('here', flush=True); p.recv()"
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            self.assertEqual(child.stdout.readline(), b"here\n")
            self.assertIn("child", names())
            child.kill()
        self.until(lambda: "child" not in names(), "the process is gone")


class Ends(Scene):
    def test_a_removed_port_ends_with_the_daemons_reason(self) -> None:
        a, b = self.pair()
        a.send(frame(5))
        self.until(lambda: ringway.Client().port(b.name)["out"]["frames"] == 1, "the frame is delivered")
        ringway.Client().delete_port(b.name)
        self.until(lambda: b.ended, "the end")
        self.assertTrue(select.select([b], [], [], LIMIT)[0])
        self.assertEqual(number_of(b.recv(timeout=LIMIT)[0]), 5)
        with self.assertRaisesRegex(ringway.PortEnded, "the port was removed"):
            b.recv(timeout=LIMIT)
        with self.assertRaises(ringway.PortEnded):
            b.recv_bytes(timeout=0)
        with self.assertRaises(ringway.PortEnded):
            for _ in range(1000):
                b.send(frame(), timeout=LIMIT)
        self.assertRegex(b.ended or "", "the port was removed")
        self.assertTrue(select.select([b], [], [], 0)[0])
        b.close()

    def test_a_killed_daemon_ends_every_wait(self) -> None:
        daemon = Daemon()
        self.addCleanup(daemon.end)
        port = ringway.Port("lan0:a", socket=daemon.attach)
        other = ringway.Port("lan0:b", socket=daemon.attach)
        other.send(frame(1))
        [kept] = port.recv(timeout=LIMIT)
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                port.recv()
            except ringway.PortEnded as error:
                errors.append(error)

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        port.fileno()
        daemon.stop(signal.SIGKILL)
        for thread in threads:
            thread.join(LIMIT)
        self.assertEqual(len(errors), 3)
        self.assertIn("gone", str(errors[0]))
        self.assertTrue(select.select([port], [], [], LIMIT)[0])
        self.assertEqual(number_of(kept), 1)
        kept.release()
        with port, other:
            pass
