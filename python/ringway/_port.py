"""A process port of a switch."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self, SupportsIndex, TypeAlias

from . import _native
from ._native import Area, Memory
from ._offload import Offload
from ._paths import attach_socket
from ._readiness import Readiness

if TYPE_CHECKING:
    # For type checkers only; Python has the name since 3.12.
    from typing_extensions import Buffer

Frame: TypeAlias = "Buffer | tuple[Buffer, Offload | None]"
"""A frame to send: any object with the buffer protocol, or a pair of it and what it leaves to the receiver."""


def _batch(frames: Frame | Iterable[Frame]) -> Buffer | tuple[Buffer, Offload | None] | list[Frame]:
    """One frame as it is, several as a list."""
    if isinstance(frames, (list, bytes)):
        return frames
    if isinstance(frames, str):
        raise TypeError("a frame is a bytes-like object, not str")
    if isinstance(frames, tuple):
        # A pair of frame and offload, or a batch.
        pair = len(frames) == 2 and (frames[1] is None or isinstance(frames[1], Offload))
        return frames if pair else list(frames)
    try:
        memoryview(frames).release()  # type: ignore[arg-type]
    except TypeError:
        return list(frames)  # type: ignore[arg-type]
    return frames  # type: ignore[return-value]


def _pair(part: tuple[SupportsIndex, SupportsIndex]) -> tuple[int, int]:
    """The start and the end of a frame."""
    try:
        start, end = map(operator.index, part)
    except (TypeError, ValueError):
        raise TypeError(f"a part is a pair of a frame's start and end in the area, not {part!r}") from None
    if min(start, end) < 0:
        raise ValueError(f"the part ({start}, {end}) is not in the area: places are counted from its start")
    return start, end


class Port(Iterator[memoryview], AsyncIterator[memoryview]):
    """A port of a switch, attached by this process. It is a context manager: at the end it detaches.

    >>> import ringway
    >>> with ringway.Port("lan0:one") as one, ringway.Port("lan0:two") as two:
    ...     one.send(b"\\xff" * 6 + b"\\2\\0\\0\\0\\0\\1" + b"\\x88\\xb5" + b"hello".ljust(46))
    ...     for frame in two.recv(timeout=5):
    ...         print(bytes(frame[14:19]))
    ...         frame.release()
    1
    b'hello'

    `name` is ``SWITCH:PORT``. `socket` is the daemon's ``attach.sock``, by default what ``RINGWAY_ATTACH_SOCKET``
    names, or that of the runtime directory. Switch and port are made if the daemon's configuration allows it.

    The shape of the memory that this process shares with the switch: `tx_rings` and `rx_rings` (1 to 16) of `tx_slots`
    and `rx_slots` (4 to 32,768) buffers of `buffer_size` bytes (128 to 65,472, a multiple of 64); and `spare_buffers` (up
    to 65,536). A spare buffer takes the place of each received one that the program still looks at.

    With `offload`, frames may leave checksums and segmentation to their receiver, in both directions.

    With `memory`, the port's buffers are in a `Memory` of this program: `send_from` sends from it without a copy, and received frames
    are in it. A port that is refused leaves the memory as it was, unless the switch has asked for the memory already.

    Raises `AttachError` when the port cannot be had.

    Several threads may use a port. A port belongs to the process that made it: in a child made by ``os.fork`` it raises
    ``ValueError``, and closing it there does nothing.
    """

    def __init__(
        self,
        name: str,
        *,
        socket: str | None = None,
        tx_rings: int = 1,
        rx_rings: int = 1,
        tx_slots: int = 512,
        rx_slots: int = 512,
        buffer_size: int = 2112,
        spare_buffers: int = 1024,
        offload: bool = False,
        memory: Memory | None = None,
    ) -> None:
        self._port = _native.Port(
            name, attach_socket() if socket is None else socket,
            tx_rings, rx_rings, tx_slots, rx_slots, buffer_size, spare_buffers, offload, memory,
        )
        self._readable: Readiness | None = None
        self._writable: Readiness | None = None

    # Sending.

    def send(self, frames: Frame | Iterable[Frame], *, timeout: float | None = 0, ring: SupportsIndex = 0) -> int:
        """Sends a frame, or an iterable of frames, which are published at once. Returns the number that fitted.

        A frame is any bytes-like object: ``bytes``, ``bytearray``, ``memoryview``, an array. On a port with
        `offload` it may be a pair of the frame and its `Offload`. The frames are copied into the port's buffers. An
        iterable is read to its end first.

        While there is no room, `send` waits, in total for `timeout` seconds; ``None`` is without limit, and 0, the
        default, does not wait. `ring` is the transmit ring.

        >>> port = ringway.Port("lan0:sender", tx_slots=4)
        >>> port.send([bytes(60)] * 2)
        2
        >>> port.send([bytes(60)] * 100, timeout=None)
        100
        >>> port.close()

        Raises `PortEnded` when there is no room because the switch has ended the port. Until the ring is full, `send`
        does not notice that: see `ended`.
        """
        return self._port.send(_batch(frames), 0, timeout, ring.__index__())

    async def asend(self, frames: Frame | Iterable[Frame], *, ring: SupportsIndex = 0) -> int:
        """Sends all frames, and lets other tasks run while there is no room. Returns their number."""
        batch = _batch(frames)
        if not isinstance(batch, list):
            batch = [batch]
        sent = 0
        while True:
            now = self._port.send(batch, sent, 0, ring.__index__())
            sent += now
            if sent >= len(batch):
                return sent
            # Another thread may close the port at any time.
            writable = self._writable
            if writable is None:
                writable = self._writable = Readiness(self._port.writable_fileno())
            if self._port.arm_writable() and now == 0:
                # There is room, but too little for a frame of several buffers; or another ring has it.
                await asyncio.sleep(0.0001)
            await writable.wait()

    def send_from(
        self,
        area: Area,
        parts: tuple[SupportsIndex, SupportsIndex] | Iterable[tuple[SupportsIndex, SupportsIndex]] | None = None,
        *,
        timeout: float | None = 0,
        ring: SupportsIndex = 0,
    ) -> int:
        """Sends parts of an `Area` of the port's `Memory` as frames, without a copy. Returns the number that fitted.

        `parts` is a pair of a frame's start and end in the area, as in a slice, or an iterable of such pairs, which are published at
        once; without it the whole area is a frame. A frame begins at a multiple of the memory's unit. On a port with `offload` a part
        begins with the frame's header: the ten bytes of `Offload.header`, or zeroes, and two zeroes.

        The switch reads the bytes when it takes the frame: `wait_sent` tells when they may be changed. Waits for room like `send`.

        >>> memory = ringway.Memory(8 << 20, unit=64)
        >>> area = memory.take(4096)
        >>> with ringway.Port("lan0:writer", memory=memory) as port, ringway.Port("lan0:reader") as reader:
        ...     for at in range(0, 256, 64):
        ...         memoryview(area)[at : at + 60] = b"\\xff" * 6 + b"\\2" * 53 + bytes([at])
        ...     print(port.send_from(area, [(at, at + 60) for at in range(0, 256, 64)]), port.wait_sent(timeout=5))
        ...     print([frame[59] for frame in reader.recv_bytes(timeout=5)])
        4 True
        [0, 64, 128, 192]
        """
        if parts is None:
            pairs = [(0, len(area))]
        elif isinstance(parts, tuple) and len(parts) == 2 and not isinstance(parts[0], tuple):
            pairs = [_pair(parts)]
        else:
            pairs = [_pair(part) for part in parts]
        return self._port.send_from(area, pairs, timeout, ring.__index__())

    def wait_sent(self, timeout: float | None = None) -> bool:
        """Waits until the switch has taken all frames that were sent: what `send_from` named may be changed then.

        Returns false when `timeout` seconds have passed first; ``None`` is without limit, and 0 does not wait.

        Raises `PortEnded` when the switch has ended the port first.
        """
        return self._port.wait_sent(timeout)

    @property
    def max_frame(self) -> int:
        """Bytes of the longest frame that can be sent."""
        return self._port.max_frame

    # Receiving.

    def recv(self, max: int = 256, timeout: float | None = None) -> list[memoryview]:
        """Receives up to `max` frames that are there. If there are none, waits until there are.

        Returns an empty list when `timeout` seconds have passed first; ``None`` is without limit, and 0 does not wait.

        Each frame is a read-only view of the buffer that it arrived in. The buffer goes back when the last view of it
        is released (by ``release()``, or with its last reference), in any order. Slices and casts are views, too. A
        frame is a copy if it spans several buffers, or if all spare buffers are in use.

        >>> receiver, sender = ringway.Port("lan0:receiver"), ringway.Port("lan0:sender")
        >>> sender.send([bytes([255] * 6 + [2] * 6 + [number] * 48) for number in range(3)])
        3
        >>> frames = receiver.recv(timeout=5)
        >>> frames[0][:14].hex(" ")
        'ff ff ff ff ff ff 02 02 02 02 02 02 00 00'
        >>> receiver.held == len(frames)
        True
        >>> receiver.close()
        Traceback (most recent call last):
        BufferError: cannot close lan0:receiver: 3 received frames are in use (release their views first)
        >>> del frames
        >>> receiver.close(), sender.close()
        (None, None)

        Raises `PortEnded` when no frame is left and the switch has ended the port.
        """
        return self._port.recv(max, timeout)

    def recv_bytes(self, max: int = 256, timeout: float | None = None) -> list[bytes]:
        """Receives like `recv`, but copies of the frames, which the program may keep for ever."""
        return self._port.recv_bytes(max, timeout)

    def recv_offloaded(
        self, max: int = 256, timeout: float | None = None
    ) -> list[tuple[memoryview, Offload | None]]:
        """Receives like `recv` on a port with `offload`: each frame comes with what remains to be done with it.

        The other methods return such frames, too, without saying that a checksum is missing.
        """
        pairs = self._port.recv_offloaded(max, timeout)
        return [(frame, None if header is None else Offload.from_header(header)) for frame, header in pairs]

    async def arecv(self, max: int = 256) -> list[memoryview]:
        """Receives like `recv`, and lets other tasks run while there is no frame.

        >>> import asyncio
        >>> async def echo(frame):
        ...     with ringway.Port("lan0:near") as near, ringway.Port("lan0:far") as far:
        ...         await near.asend(frame)
        ...         return [bytes(view) == frame for view in await far.arecv()]
        >>> asyncio.run(echo(b"\\xff" * 6 + b"\\2" * 54))
        [True]
        """
        while True:
            # Another thread may close the port at any time.
            readable = self._readable
            if readable is None:
                readable = self._readable = Readiness(self._port.fileno())
            if frames := self._port.recv(max, 0):
                return frames
            await readable.wait()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> memoryview:
        frame = self._port.recv_one(None)
        if frame is None:
            raise StopIteration
        return frame

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> memoryview:
        return (await self.arecv(1))[0]

    # For event loops.

    def fileno(self) -> int:
        """A descriptor that is readable while there are frames, or when the switch has ended the port.

        For ``select``, ``poll``, ``selectors`` and the like. It only becomes readable: never read it, and receive with
        ``timeout=0`` until the result is empty. It may be readable once without a frame. Every `recv` that leaves no
        frame asks the switch for the next call. A program that never asks for `fileno` does not pay for that.

        >>> import select
        >>> with ringway.Port("lan0:watched") as port, ringway.Port("lan0:sender") as sender:
        ...     print(select.select([port], [], [], 0) == ([], [], []))
        ...     sender.send(b"\\xff" * 6 + b"\\2" * 54)
        ...     print(select.select([port], [], [], 5) == ([port], [], []))
        ...     print(len(port.recv_bytes(timeout=0)))
        True
        1
        True
        1
        """
        return self._port.fileno()

    # State.

    @property
    def name(self) -> str:
        """``SWITCH:PORT``."""
        return self._port.name

    @property
    def mac(self) -> str | None:
        """The MAC address that the switch's configuration binds to the port."""
        return self._port.mac

    @property
    def ended(self) -> str | None:
        """Why the switch has ended the port, in its words; ``None`` while it has not."""
        return self._port.ended

    @property
    def held(self) -> int:
        """The number of received frames that have views."""
        return self._port.held

    @property
    def closed(self) -> bool:
        """Whether the port is closed."""
        return self._port.closed

    def close(self) -> None:
        """Detaches from the switch. Threads and tasks that wait for the port get a ``ValueError``.

        Raises `BufferError` while there are views of received frames.
        """
        self._close(False)

    def _close(self, force: bool) -> None:
        self._port.close(force)
        for readiness in (self._readable, self._writable):
            if readiness is not None:
                readiness.close()
        self._readable = self._writable = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The frames of a traceback may have views: they stay valid, and the program's error is what counts.
        self._close(force=kind is not None)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "ended" if self.ended else "attached"
        return f"<ringway.Port {self.name}, {state}>"
