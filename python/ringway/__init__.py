"""Send and receive Ethernet frames on ports of a Ringway switch, and administer it.

`Port` is a port of a switch in this process: frames are views of memory that it shares with the switch. `Client` adds,
changes and removes ports. A `Memory` is the program's own, from which it sends without copies. `ringway.scapy` lets scapy
send and receive on a port.
"""

from . import api
from ._client import ApiError, Client
from ._native import Area, AttachError, Error, Memory, PortEnded
from ._offload import Offload
from ._port import Frame, Port

__all__ = [
    "ApiError", "Area", "AttachError", "Client", "Error", "Frame", "Memory", "Offload", "Port", "PortEnded", "api",
]

for _public in (ApiError, Client, Offload, Port):
    # Where programs find them, in messages and in pickles.
    _public.__module__ = __name__
del _public
