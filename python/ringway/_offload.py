"""The offload header of a frame."""

import struct
from dataclasses import dataclass
from typing import Literal, Self

Gso = Literal["none", "tcp4", "tcp6", "udp-fragments", "udp"]

_HEADER = struct.Struct("<BBHHHH")
_NEEDS_CSUM = 1
_ECN = 0x80
_NUMBERS: dict[Gso, int] = {"none": 0, "tcp4": 1, "udp-fragments": 3, "tcp6": 4, "udp": 5}
_KINDS = {number: kind for kind, number in _NUMBERS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """What remains to be done before a frame can go onto a wire (``struct virtio_net_hdr``, virtio 1.3, 5.1.6).

    >>> Offload(gso="tcp4", gso_size=1448, csum_start=34, csum_offset=16).header().hex()
    '01010000a80522001000'
    """

    csum_start: int
    """Offset in the frame at which the summed bytes begin."""
    csum_offset: int
    """Offset of the checksum, from ``csum_start``. The sum of the pseudo-header is there now."""
    needs_csum: bool = True
    """The ones' complement sum from ``csum_start`` to the end is missing."""
    gso: Gso = "none"
    """The kind of segmentation: TCP over IPv4 or IPv6, UDP into IP fragments, or UDP into datagrams."""
    gso_size: int = 0
    """Most bytes of a segment after its headers, or of a fragment after its IP header."""
    ecn: bool = False
    """A TCP frame that reports congestion: only its first segment has CWR set."""
    hdr_len: int = 0
    """Bytes of all headers of a frame to be segmented, as found by the switch; a sender leaves it 0."""

    def header(self) -> bytes:
        """The ten bytes of the header."""
        if self.gso not in _NUMBERS:
            raise ValueError(f"gso {self.gso!r} is not possible: {', '.join(_NUMBERS)}")
        flags, kind = _NEEDS_CSUM if self.needs_csum else 0, _NUMBERS[self.gso] | (_ECN if self.ecn else 0)
        numbers = {"hdr_len": self.hdr_len, "gso_size": self.gso_size,
                   "csum_start": self.csum_start, "csum_offset": self.csum_offset}
        for name, number in numbers.items():
            if not 0 <= number <= 0xFFFF:
                raise ValueError(f"{name} {number} is not possible: 0 to 65535")
        return _HEADER.pack(flags, kind, *numbers.values())

    @classmethod
    def from_header(cls, header: bytes) -> Self:
        """Reads the ten bytes of a header.

        >>> Offload.from_header(bytes.fromhex('01010000a80522001000')).gso
        'tcp4'
        """
        flags, kind, hdr_len, gso_size, csum_start, csum_offset = _HEADER.unpack(header)
        return cls(needs_csum=bool(flags & _NEEDS_CSUM), gso=_KINDS[kind & ~_ECN], ecn=bool(kind & _ECN),
                   hdr_len=hdr_len, gso_size=gso_size, csum_start=csum_start, csum_offset=csum_offset)
