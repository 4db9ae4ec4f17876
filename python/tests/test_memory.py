"""Memory of the program: frames from it and into it, waits, refusals, and its ends."""

import array
import gc
import mmap
import os
import threading

import ringway
from scene import LIMIT, Scene, collect, frame, number_of, sleeps

SMALL = {"tx_slots": 16, "rx_slots": 16, "buffer_size": 2048, "spare_buffers": 0}
ONE_PORT = 32 * 2048
"""Bytes that a port of this shape takes."""


def memfd(size: int) -> int:
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    return descriptor


class Sending(Scene):
    def test_frames_of_all_lengths_arrive_as_they_are_in_the_memory(self) -> None:
        for unit in (1, 16, 64):
            memory = ringway.Memory(4 << 20, unit=unit)
            a, b = self.port(f"lengths{unit}:a", memory=memory, **SMALL), self.port(f"lengths{unit}:b")
            area = memory.take(1 << 20)
            with memoryview(area) as view:
                for number, length in enumerate((14, 60, 127, 1514, 2048, 2049, 9000, 30_000)):
                    start = number * 977 // unit * unit
                    view[start : start + length] = frame(number, length)[:length]
                    self.assertEqual(a.send_from(area, (start, start + length)), 1)
                    self.assertEqual(collect(b, 1), [frame(number, length)[:length]])
                    self.assertTrue(a.wait_sent(LIMIT))

    def test_parts_are_sent_in_order_and_copies_between_them(self) -> None:
        memory = ringway.Memory(1 << 20)
        a, b = self.port("parts:a", memory=memory, **SMALL), self.port("parts:b")
        area = memory.take(64 * 60)
        with memoryview(area) as view:
            for number in range(64):
                view[60 * number : 60 * number + 60] = frame(number)
        before = bytes(area)
        parts = ((60 * number, 60 * number + 60) for number in range(32))
        self.assertEqual(a.send_from(area, parts, timeout=LIMIT), 32)
        # Copied into the buffers of the slots that have named the area.
        self.assertEqual(a.send([frame(number) for number in range(100, 132)], timeout=LIMIT), 32)
        self.assertEqual(a.send_from(area, [(60 * 63, 60 * 64)], timeout=LIMIT), 1)
        self.assertEqual([number_of(one) for one in collect(b, 65)], [*range(32), *range(100, 132), 63])
        self.assertTrue(a.wait_sent(LIMIT))
        self.assertEqual(bytes(area), before)

    def test_without_room_the_number_that_fitted_comes_back(self) -> None:
        memory = ringway.Memory(1 << 20)
        a = self.port("room:a", memory=memory, **SMALL)
        self.port("room:b")
        area = memory.take(1500)
        memoryview(area)[:] = frame(1, 1500)
        ringway.Client().set_port(a.name, ingress={"rate": "8kbit", "on_excess": "wait"})
        self.until(lambda: a.send_from(area, [(0, 1500)] * 20) < 15, "the ring is full")
        self.assertFalse(a.wait_sent(timeout=0))
        self.assertFalse(a.wait_sent(timeout=0.01))
        # A thread that waits is woken when the last one has been taken, not before.
        waited: list[bool] = []
        waiter = threading.Thread(target=lambda: waited.append(a.wait_sent(None)), daemon=True)
        waiter.start()
        self.until(lambda: sleeps(waiter), "the thread sleeps")
        self.assertEqual(waited, [])
        ringway.Client().set_port(a.name, ingress={"rate": "10Gbit", "on_excess": "wait"})
        waiter.join(LIMIT)
        self.assertEqual(waited, [True])
        self.assertEqual(a.send_from(area, [(0, 1500)] * 15), 15)

    def test_anything_with_the_buffer_protocol_writes_to_an_area(self) -> None:
        memory = ringway.Memory(1 << 20)
        a, b = self.port("writers:a", memory=memory, **SMALL), self.port("writers:b")
        area = memory.take(60)
        words = memoryview(area).cast("H")
        words[:] = array.array("H", frame(5))
        self.assertEqual((len(area), bytes(area)), (60, frame(5)))
        self.assertEqual(a.send_from(area), 1)
        self.assertEqual(collect(b, 1), [frame(5)])
        with self.assertRaisesRegex(TypeError, "Area"):
            a.send_from(bytearray(60))  # type: ignore[arg-type]

    def test_a_memory_of_a_file_is_that_file(self) -> None:
        descriptor = memfd(1 << 20)
        memory = ringway.Memory(fd=descriptor)
        whole = mmap.mmap(descriptor, 1 << 20)
        os.close(descriptor)
        self.assertEqual((memory.size, memory.unit), (1 << 20, 1))
        area = memory.take(60, offset=4096)
        self.assertEqual(area.offset, 4096)
        a, b = self.port("files:a", memory=memory, **SMALL), self.port("files:b")
        whole[4096:4156] = frame(8)
        self.assertEqual(a.send_from(area), 1)
        self.assertEqual(collect(b, 1), [frame(8)])
        # What is received is in the file, too.
        b.send(frame(77, 1000))
        [received] = a.recv(timeout=LIMIT)
        self.assertGreater(whole.find(frame(77, 1000)), 0)
        received.release()
        whole.close()

    def test_the_longest_frame_with_an_offload_request_arrives_whole(self) -> None:
        # IPv6 without a jumbogram: 65,535 bytes after its header.
        a, b = self.pair(offload=True, buffer_size=16384)
        head = b"\xff" * 6 + b"\x02\0\0\0\0\x01" + b"\x86\xdd" + b"\x60\0\0\0" + b"\xff\xff" + b"\x06\x40"
        tcp = bytes(12) + b"\x50\x10" + bytes(6)
        large = (head + bytes(31) + b"\1" + tcp).ljust(a.max_frame, b".")
        self.assertEqual(len(large), 14 + 40 + 65_535)
        request = ringway.Offload(gso="tcp6", gso_size=1428, csum_start=54, csum_offset=16)
        self.assertEqual(a.send((large, request)), 1)
        [(received, left)] = b.recv_offloaded(timeout=LIMIT)
        assert left is not None
        self.assertEqual((bytes(received), left.gso, left.gso_size), (large, "tcp6", 1428))
        received.release()


class Refusals(Scene):
    def test_a_refused_port_leaves_the_memory_for_another_try(self) -> None:
        # Room for the buffers of one port.
        memory = ringway.Memory(4096 + ONE_PORT, unit=64)
        self.port("tries:taken")
        with self.assertRaisesRegex(ringway.AttachError, "in use"):
            self.port("tries:taken", memory=memory, **SMALL)
        with self.assertRaisesRegex(ringway.AttachError, "no switch"):
            self.port("tries:a", socket="/no/such.sock", memory=memory, **SMALL)
        self.port("tries:a", memory=memory, **SMALL)
        with self.assertRaisesRegex(ringway.AttachError, "no room"):
            self.port("tries:b", memory=memory, **SMALL)

    def test_parts_that_cannot_be_sent_are_refused_with_the_reason(self) -> None:
        memory = ringway.Memory(1 << 20, unit=16)
        a, other = self.port("wrong:a", memory=memory, **SMALL), self.port("wrong:b")
        area = memory.take(60_000)
        for part in ((0, 60_001), (60, 0), (59_990, 60_050), (1 << 40, 1 << 41)):
            with self.assertRaisesRegex(ValueError, "is not in the area|does not fit"):
                a.send_from(area, part)
        with self.assertRaisesRegex(ValueError, "counted from its start"):
            a.send_from(area, (0, -1))
        with self.assertRaisesRegex(ValueError, "a multiple of the memory's unit, 16"):
            a.send_from(area, (8, 68))
        with self.assertRaisesRegex(ValueError, "does not fit into the rings"):
            a.send_from(area, (0, 40_000))
        for area, port in ((ringway.Memory(1 << 16, unit=16).take(60), a), (area, other)):
            with self.assertRaisesRegex(ValueError, "of another memory than the port's"):
                port.send_from(area, (0, 60))
        with self.assertRaisesRegex(IndexError, "ring 1 .* has 1 transmit rings"):
            a.send_from(memory.take(60), ring=1)
        for parts in ([7], [(1, 2, 3)], [(1,)], "ab", [("a", "b")], ("a", 60), (0, None), (0.0, 60.0)):
            with self.assertRaisesRegex(TypeError, "a part is a pair of a frame's start and end"):
                a.send_from(area, parts)  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "not iterable"):
            a.send_from(area, 7)  # type: ignore[arg-type]

    def test_bytes_are_given_away_once(self) -> None:
        memory = ringway.Memory(1 << 16, unit=64)
        area = memory.take(4096, offset=8192)
        for size, offset in ((1, 0), (1, 127), (64, 8128 + 1), (1, 12287), (1, 1 << 16), (1 << 16, 128)):
            with self.assertRaisesRegex(ValueError, "are not free"):
                memory.take(size, offset=offset)
        with self.assertRaisesRegex(MemoryError, "no 65536 bytes are left"):
            memory.take(1 << 16)
        self.assertNotEqual(memory.take(4096).offset, area.offset)
        # Also when the area is gone: the switch may still read a frame there.
        del area
        gc.collect()
        with self.assertRaises(ValueError):
            memory.take(1, offset=8192)

    def test_memories_that_cannot_be_are_refused(self) -> None:
        closed = memfd(4096)
        os.close(closed)
        empty = memfd(0)
        self.addCleanup(os.close, empty)
        for arguments in ({}, {"size": 0}, {"size": 4096, "fd": 0}, {"fd": -1}, {"size": 4096, "unit": 3}):
            with self.assertRaises(ValueError, msg=arguments):
                ringway.Memory(**arguments)
        for descriptor in (closed, empty, os.pipe2(os.O_CLOEXEC)[0]):
            with self.assertRaises(OSError):
                ringway.Memory(fd=descriptor)
        with self.assertRaises(ValueError):
            ringway.Memory(4096).take(0)

    def test_a_child_does_not_have_its_parents_memory(self) -> None:
        memory = ringway.Memory(1 << 20)
        area = memory.take(64)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                memory.take(64)
            except ValueError:
                try:
                    ringway.Port("child:a", memory=memory, **SMALL)
                except ValueError:
                    memoryview(area)[0] = 7
                    status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        # The bytes are shared, as those of any mapped file.
        self.assertEqual(bytes(area)[0], 7)


class Ends(Scene):
    def test_an_area_outlives_its_memory_and_the_port(self) -> None:
        memory = ringway.Memory(1 << 20)
        port = self.port("ends:a", memory=memory, **SMALL)
        area = memory.take(60)
        view = memoryview(area)
        view[:] = frame(3)
        port.send_from(area)
        port.close()
        del memory, area
        gc.collect()
        view[0] = 1
        self.assertEqual(bytes(view[1:]), frame(3)[1:])

    def test_a_wait_ends_with_the_port(self) -> None:
        memory = ringway.Memory(1 << 20)
        area = memory.take(1500)
        for name, kind in (("deleted", ringway.PortEnded), ("closed", ValueError)):
            port = self.port(f"ends:{name}", memory=memory, **SMALL)
            ringway.Client().set_port(port.name, ingress={"rate": "8kbit", "on_excess": "wait"})
            self.until(lambda port=port: port.send_from(area, [(0, 1500)] * 20) < 15, "the ring is full")  # type: ignore[misc]
            raised: list[BaseException] = []

            def wait(port: ringway.Port = port, raised: list[BaseException] = raised) -> None:
                try:
                    port.wait_sent()
                except (ringway.PortEnded, ValueError) as error:
                    raised.append(error)

            waiter = threading.Thread(target=wait, daemon=True)
            waiter.start()
            self.until(lambda waiter=waiter: sleeps(waiter), "the thread sleeps")  # type: ignore[misc]
            if name == "closed":
                port.close()
            else:
                ringway.Client().delete_port(port.name)
            waiter.join(LIMIT)
            self.assertEqual([type(error) for error in raised], [kind])
