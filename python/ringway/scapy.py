"""Scapy on a port of a switch.

>>> from scapy.layers.inet import ICMP, IP
>>> from scapy.layers.l2 import Ether
>>> from ringway.scapy import RingwaySocket
>>> with RingwaySocket("lan0:one") as one, RingwaySocket("lan0:two") as two:
...     sent = one.send(Ether(dst="ff:ff:ff:ff:ff:ff") / IP(dst="10.0.0.2") / ICMP())
...     print(two.sniff(count=1, timeout=5)[0][IP].dst)
10.0.0.2
"""

from __future__ import annotations

import time
from typing import Any

from scapy.config import conf
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.supersocket import SuperSocket

from ._port import Port

__all__ = ["RingwaySocket"]


class RingwaySocket(SuperSocket):
    """A socket of scapy that sends and receives on a port.

    `iface` is ``SWITCH:PORT``, attached for this socket, with the options of `ringway.Port`; or it is a `ringway.Port`,
    which the program closes itself. ``send``, ``sr``, ``sr1``, ``sniff`` and ``sndrcv`` work as with a socket of an
    interface.

    A filter in tcpdump's language needs a socket of the kernel and is refused: give ``lfilter`` to ``sniff``.
    """

    desc = "ports of a Ringway switch"

    def __init__(
        self,
        iface: str | Port,
        type: int | None = None,
        promisc: bool | None = None,
        filter: str | None = None,
        nofilter: int = 0,
        **options: Any,
    ) -> None:
        self.closed = True
        if filter and not nofilter:
            raise ValueError(f"a port cannot filter by {filter!r}: give lfilter= to sniff")
        self._owned = not isinstance(iface, Port)
        self.port = iface if isinstance(iface, Port) else Port(str(iface), **options)
        self.iface = self.port.name
        self.ins = self.outs = self.port  # type: ignore[assignment]
        self.closed = False

    def send(self, x: Packet | bytes) -> int:
        """Sends a packet, and waits for room if there is none. Returns the number of its bytes."""
        frame = bytes(x)
        if isinstance(x, Packet):
            # Before the answer can come.
            x.sent_time = time.time()
        self.port.send(frame, timeout=None)
        return len(frame)

    def recv_raw(self, x: int = 65535) -> tuple[type[Packet] | None, bytes | None, float | None]:
        """Receives a frame, at most its first `x` bytes."""
        if not (frames := self.port.recv_bytes(1)):
            return None, None, None
        return Ether, frames[0][:x], time.time()

    def fileno(self) -> int:
        """The descriptor that is readable while there are frames."""
        return self.port.fileno()

    def close(self) -> None:
        """Detaches, if this socket has attached the port."""
        if not self.closed:
            self.closed = True
            if self._owned:
                self.port.close()

    @staticmethod
    def select(sockets: list[SuperSocket], remain: float | None = conf.recv_poll_rate) -> list[SuperSocket]:
        """Returns the sockets that have frames, when there are some or after `remain` seconds."""
        return SuperSocket.select(sockets, remain)
