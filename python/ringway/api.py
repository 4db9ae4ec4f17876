"""The objects of the administration API, as `/openapi.json` describes them: see `ringway.Client`.

tools/api_types.py writes this file.
"""

from __future__ import annotations

from typing import Any, Required, TypedDict


class BucketKeys(TypedDict, total=False):
    """The keys of a bucket, as in `[bucket.NAME]`. Unknown keys are refused. A key of a table can be given alone,
    with a dot: `"TABLE.KEY": VALUE`."""

    burst: str
    """Bytes that may pass at once; by default what passes in 10 ms, at least 16KiB. The value is a size from 1514B to
    1GiB, like "64KiB"."""
    frames: str
    """Frames per second; by default as many as there are. The value is a rate in frames per second from 1pps to
    1Gpps, like "10kpps"."""
    frames_burst: int
    """Frames that may pass at once; by default what passes in 10 ms, at least 32. The value is a whole number from 1
    to 1000000000."""
    rate: Required[str]
    """Bits of frames per second, without FCS, that the ports have together; required. The value is a rate in bits per
    second from 8kbit to 400Gbit, like "500Mbit"."""


class BucketStatus(TypedDict, total=False):
    """A bucket that ports share, at one moment."""

    passed: Traffic
    """Frames that passed."""
    refused: Refused
    """Frames that were refused."""
    waited: float
    """Their waiting time in seconds, of all senders together: from the first look at the waiting frames until they
    passed."""
    waits: int
    """Times that waiting frames passed."""
    burst: Required[str]
    """Bytes that may pass at once."""
    fill: float | None
    """Fill of its bits, from 0 to 1."""
    frames: str | None
    """Frames per second."""
    frames_burst: int | None
    """Frames that may pass at once."""
    frames_fill: float | None
    """How full its bucket of frames is, from 0 to 1."""
    name: Required[str]
    """Its name."""
    ports: Required[int]
    """The number of ports that use it."""
    rate: Required[str]
    """Bits per second."""


class CallIntervals(TypedDict, total=False):
    """The least times between two calls in force, like `50us`; `0s`: none."""

    receive: Required[str]
    """Between calls for frames to receive."""
    send: Required[str]
    """Between calls for room to send."""


class CaptureStatus(TypedDict, total=False):
    """A running capture."""

    captured: Required[int]
    """Frames captured, whether read or not."""
    id: Required[int]
    """Its number."""
    lost: Required[int]
    """Frames lost because they were not read fast enough."""
    port: Required[str]
    """The captured port."""
    switch: Required[str]
    """The switch."""


class ChangedKey(TypedDict, total=False):
    """A key that a command changed."""

    file: Required[Any]
    """The value in the file; null: the default."""
    now: Required[Any]
    """The value now; null: the default."""


class ChangedSection(TypedDict, total=False):
    """A section that commands changed."""

    change: Required[str]
    """`added`, `changed` or `deleted`."""
    keys: dict[str, ChangedKey]
    """The keys of a changed section that differ from those of the file."""
    name: Required[str]
    """Its name."""
    not_in_force: str | None
    """Why the change is not in force; null: it is."""
    section: Required[str]
    """`port`, `bucket` or `switch`."""


class ConfigStatus(TypedDict, total=False):
    """The running configuration."""

    changed: Required[str]
    """The sections that commands changed, as TOML: each is whole, and replaces that of the file."""
    changes: Required[list[ChangedSection]]
    """What commands changed of the file."""
    running: Required[str]
    """All of it as TOML, with marks where commands changed it."""


class Death(TypedDict, total=False):
    """A death of the switch's process."""

    age: Required[float]
    """Seconds since then."""
    cause: Required[str]
    """The cause, as in the numbers by cause."""
    certain: Required[bool]
    """Whether the client of the port is the cause; otherwise, one of these is."""
    ports: Required[list[str]]
    """The ports that are blamed, as `SWITCH:PORT`; none: nobody."""


class Deaths(TypedDict, total=False):
    """Deaths of the switch's process. The keeper starts another one after each."""

    causes: Required[dict[str, int]]
    """Their numbers by cause: `signal 11`; `status 70`, a failure of Ringway that was not contained; `hang`, the
    keeper killed it as it made no progress; `other`."""
    count: Required[int]
    """Their number."""
    last: Death | None


class Done(TypedDict, total=False):
    """The result of a successful change."""

    changes: Required[list[str]]
    """One line per step, like "added port vm1 to switch lan0"; empty if nothing differed."""


class E1000Status(TypedDict, total=False):
    """An e1000 port's NIC and its guest at one moment."""

    address: Required[str]
    """The NIC's own address."""
    completion_delay: Required[str]
    """Longest delay of the notification that frames were sent, like `2ms`."""
    csb: Required[bool]
    """Whether the paravirtual extension is offered."""
    interrupts: Required[str]
    """How interrupts reach the guest: `none` yet, `intx`, `msi` or `msi-x`."""
    interrupts_raised: int
    """Interrupts raised."""
    link: Required[str]
    """Whether its cable is plugged in: `up`, or `down`."""
    messages: int
    """Messages for all register accesses, and for unmasking the interrupt pin."""
    model: Required[str]
    """The NIC that the guest sees: `e1000` (82540EM) or `e1000e` (82574L)."""
    receive_ring: Required[int]
    """Descriptors of the ring of frames to the guest; 0: off."""
    register_reads: int
    """Register reads by the guest. Each takes a message and its answer."""
    register_writes: int
    """Register writes by the guest. Each takes a message."""
    registers: Required[str]
    """Whether the ring registers are `mapped` into the guest, or `trapped`."""
    socket: Required[str]
    """The socket, relative to the runtime directory."""
    tail_writes: int
    """Of these, writes of ring tails, which announce frames or buffers."""
    transmit_ring: Required[int]
    """Descriptors of the ring of frames from the guest; 0: off."""


class Fault(TypedDict, total=False):
    """A fault of a port's client. With `slow_client` the port stays attached; `internal_error` is a failure of
    Ringway itself."""

    age: Required[float]
    """Seconds since then."""
    detail: Required[str]
    """What happened, in words."""
    port: Required[str]
    """The port's name."""
    reason: Required[str]
    """What happened, as one word."""
    switch: Required[str]
    """The switch it was on."""


class FaultCount(TypedDict, total=False):
    """A count of faults."""

    count: Required[int]
    """How often."""
    place: str | None
    """The line of Ringway's source, for a defect of Ringway (`internal_error`)."""
    reason: Required[str]
    """What happened, as one word."""


class FdbEntry(TypedDict, total=False):
    """An address that a switch knows."""

    age: float | None
    """Seconds since its last frame; null for an address that is bound by configuration."""
    mac: Required[str]
    """The address."""
    port: Required[str]
    """Its port."""
    switch: Required[str]
    """The switch."""
    vlan: int | None
    """The VLAN in which it was heard; null: none, or all."""


class IdentityStatus(TypedDict, total=False):
    """A port's identity, and the ports that it may reach."""

    allow: list[str] | None
    """The ports except uplinks that it may reach; null: all."""
    guard: list[str]
    """The checks of its source guard: some of `mac`, `ip`, `dhcp`, `ra`."""
    ip: list[str]
    """IP addresses and prefixes bound to it; none: any."""
    native: int | None
    """A trunk's VLAN without tags."""
    trunk: list[str] | None
    """Its VLANs with tags, like `10` or `20-29`; null: it is no trunk."""
    uplink: bool
    """Whether it is an uplink."""
    uplinks: list[str] | None
    """The uplinks that it may use; null: all."""
    vlan: int | None
    """Its VLAN without tags; null: none, or that of `native`."""


class LimitStatus(TypedDict, total=False):
    """A limit at one moment."""

    passed: Traffic
    """Frames that passed."""
    refused: Refused
    """Frames that were refused."""
    waited: float
    """Their waiting time in seconds, of all senders together: from the first look at the waiting frames until they
    passed."""
    waits: int
    """Times that waiting frames passed."""
    bucket: str | None
    """The shared bucket."""
    burst: str | None
    """Bytes that may pass at once, like `64KiB`."""
    ceiling: str | None
    """The highest rate, including what a bucket lends."""
    fill: float | None
    """Fill of its bucket of bits, from 0 to 1; null: the port was never open, or bits are not limited."""
    frames: str | None
    """Frames per second, like `1.5Mpps`."""
    frames_burst: int | None
    """Frames that may pass at once."""
    frames_fill: float | None
    """Fill of its bucket of frames, from 0 to 1."""
    on_excess: Required[str]
    """What happens to frames above the limit: `shape`, `drop` or `wait`."""
    rate: str | None
    """Bits of frames (without FCS, preamble and gap) per second, like `1Gbit`; with a bucket the guaranteed rate."""


class LimitTally(TypedDict, total=False):
    """The counters of a limit, or of a bucket that ports share."""

    passed: Traffic
    """Frames that passed."""
    refused: Refused
    """Frames that were refused."""
    waited: float
    """Their waiting time in seconds, of all senders together: from the first look at the waiting frames until they
    passed."""
    waits: int
    """Times that waiting frames passed."""


class MemoryStatus(TypedDict, total=False):
    """The memory that a front end gives, and its bounds."""

    filled: Required[int]
    """Bytes of missing pages that were allocated."""
    holes: Required[int]
    """Most bytes of missing pages that are allocated within an hour."""
    mapped: Required[int]
    """Bytes of its files that are mapped."""
    mappings: Required[int]
    """Mappings."""
    most_mappings: Required[int]
    """Most mappings."""
    size: Required[int]
    """Most bytes that may be mapped."""


class Message(TypedDict, total=False):
    """A message to a forwarding program."""

    text: Required[str]
    """The message."""


class Mistake(TypedDict, total=False):
    """A part of a configuration that cannot be used."""

    key: Required[str]
    """The key, from the root of what was read: `port.vm1.weight` in a file, `weight` in `port add`. Empty for text
    that is not TOML."""
    right: str
    """What would be right; empty when `what` says it."""
    what: Required[str]
    """What was wrong."""


MoveStatus = TypedDict("MoveStatus", {
    "age": "Required[float]",
    "count": "Required[int]",
    "duplicate": "Required[bool]",
    "from": "str | None",
    "held": "int",
    "mac": "Required[str]",
    "to": "str | None",
    "vlan": "int | None",
}, total=False)


class PollerStatus(TypedDict, total=False):
    """One poller at one moment."""

    busy: Required[float]
    """Seconds spent on frames."""
    core: int | None
    """The CPU it is pinned to; null: none."""
    free: Required[float]
    """Seconds spent polling in vain or sleeping."""
    passes: int
    """Rounds that moved frames."""
    shared: bool
    """Other threads want its processor, as of its last work: with `idle = "adaptive"` and without `cores` it sleeps
    at once while they do."""
    sleeps: int
    """Times it went to sleep."""
    stuck: bool
    """It has not gone round its loop since the last check: it serves no port."""


class PortKeys(TypedDict, total=False):
    """The keys of a port, as in `[port.NAME]`. Unknown keys are refused. A key of a table can be given alone, with a
    dot: `"TABLE.KEY": VALUE`."""

    access: dict[str, Any]
    """Who may connect to the socket; what is left out is as in the section sockets. Of vhost-user, e1000, stream
    ports. Cannot change while the port exists. The value is a table of keys."""
    allow: list[str] | str
    """The other ports that the port may reach; both sides must allow it; an empty list is uplinks only. The value is
    "all", or a list of up to 4096 ports like ["vm2"]."""
    call_above: str
    """Rate of frames up to which calls have no least time between them, so that a quiet port keeps its latency. The
    value is a rate in frames per second from 0pps to 1Gpps, like "10kpps"."""
    call_interval: str
    """Least time between two calls (interrupts, wake-ups) of the client; 0s: none; auto: as the traffic needs. The
    value is a duration from 0s to 1s, like "50us", or "auto"."""
    coalesce: str
    """Whether TCP segments for the port are joined: auto, if its client accepts unsegmented TCP; off, never. The
    value is "auto" or "off"."""
    completion_delay: str
    """Longest time until the guest is told that frames were sent; 0s: at once. Of e1000 ports. The value is a
    duration from 0s to 1s, like "50us"."""
    config_space: bool
    """Whether front ends are offered the configuration space of the port: address, link, queue pairs and MTU. Of
    vhost-user ports. Cannot change while the port exists. The value is true or false."""
    csb: bool
    """Whether drivers are offered the Communication Status Block, by which they need hardly any register. Of e1000
    ports. Cannot change while the port exists. The value is true or false."""
    device: str
    """The network device, by default called like the port; for packet ports also the path of a macvtap, "/dev/tapN".
    A TAP device is made if it is not there. Of tap, xdp, packet ports. Cannot change while the port exists. The value
    is a network device's name."""
    egress: dict[str, Any]
    """How much the port may receive; {}: as much as there is. Each sender has its share by weight. The value is a
    table of keys."""
    guard: list[str] | str
    """What the source guard checks: bound addresses (auto), also DHCP servers and routers (all), nothing (off), or a
    list. The value is "auto", "all", "off", or a list of "mac", "ip", "dhcp", "ra"."""
    host: bool
    """Whether the host's stack keeps frames to the device's own address, and group frames. Of xdp ports. Cannot
    change while the port exists. The value is true or false."""
    ingress: dict[str, Any]
    """How much the port may send; {}: as much as it can. The value is a table of keys."""
    ip: list[str] | str
    """Bound IP addresses and prefixes; none: any. The value is a list of up to 1024 IP addresses and prefixes like
    ["10.0.0.5", "fd00::/64"]."""
    isolated: bool
    """Isolated ports do not reach each other. The value is true or false."""
    kind: str
    """What the port connects; required. Cannot change while the port exists. The value is "process", "tap", "vhost-
    user", "e1000", "stream", "xdp" or "packet"."""
    link: str
    """Whether the NIC's cable is plugged in. Of e1000 ports. The value is "up" or "down"."""
    mac: list[str] | str
    """Bound Ethernet addresses; in a map switch also where frames go; none: any. The value is a list of up to 4096
    Ethernet addresses like ["52:54:00:00:00:01"]."""
    memory: dict[str, Any]
    """How much memory the front end may give; more is refused (memory_limit). Of vhost-user, e1000 ports. Cannot
    change while the port exists. The value is a table of keys."""
    mirror: list[str] | str
    """Ports of its switch whose frames are copied to it; it is then a mirror, and nothing else. The value is a list
    of ports of the same switch like ["vm1"]."""
    mirror_direction: str
    """Which of their frames a mirror gets: from their clients (in), to them (out), or both. The value is "both", "in"
    or "out"."""
    mode: str
    """How frames get from the device to the port: what the device has (auto), by the device itself (zero-copy),
    copied below the stack (copy) or in it (generic). Of xdp ports. Cannot change while the port exists. The value is
    "auto", "zero-copy", "copy" or "generic"."""
    model: str
    """The NIC: an Intel 82540EM (e1000) or an 82574L (e1000e). Of e1000 ports. Cannot change while the port exists.
    The value is "e1000" or "e1000e"."""
    mtu: int
    """The MTU that the guest is told, and longer frames are dropped; of a TAP device: that it gets; by default the
    guest's or the device's own. Of tap, vhost-user ports. Cannot change while the port exists. The value is a whole
    number from 68 to 65513."""
    name: str
    """The port's name; only, and necessarily, for a new port."""
    native: int | str
    """The VLAN of a trunk's frames without tags; none: they are dropped. The value is a VLAN, 1 to 4094, or
    "none"."""
    netns: str
    """The network namespace of the device, a name of "ip netns" or a path; by default Ringway's own. Of tap, xdp,
    packet ports. Cannot change while the port exists. The value is a network namespace's name or path."""
    offload: bool
    """Whether checksums and segmentation may be left to the other side. Of vhost-user ports. Cannot change while the
    port exists. The value is true or false."""
    poller: int | str
    """The poller that serves the port, from 0, in the order of cores in the section engine. The value is a poller's
    number, or "any"."""
    queues: int
    """Most queue pairs. Of vhost-user, xdp ports. Cannot change while the port exists. The value is a whole number
    from 1 to 8."""
    registers: str
    """How the guest accesses the registers of its rings; by default mapped for an e1000e, and trapped for an e1000,
    which can have no others. Of e1000 ports. Cannot change while the port exists. The value is "mapped" or
    "trapped"."""
    ring_reset: bool
    """Whether guests may reset single rings, as ethtool -G and AF_XDP without copies do; only for front ends that
    pass it on. Of vhost-user ports. Cannot change while the port exists. The value is true or false."""
    role: str
    """Which side listens on the socket: Ringway (server) or the peer (client). Of vhost-user, stream ports. Cannot
    change while the port exists. The value is "server" or "client"."""
    socket: str
    """The socket, relative to the runtime directory; by default NAME.sock. Of vhost-user, e1000, stream ports. Cannot
    change while the port exists. The value is a socket's path."""
    storm: dict[str, Any]
    """How much the port may send to many; {}: as much as it can. The value is a table of keys."""
    switch: str
    """The switch that the port is on; required. Cannot change while the port exists. The value is a switch's name."""
    trunk: list[int | str] | int | str
    """The VLANs of a port with tags; none: the port has no tags. The value is a list of VLANs and ranges like [10,
    "20-29"], "all", or "none"."""
    uplink: bool
    """Whether the port leads out: to the host, or to a physical network. The value is true or false."""
    uplinks: list[str] | str
    """The uplinks that the port may use. The value is "all", or a list of up to 4096 ports like ["vm2"]."""
    vlan: int | str
    """The VLAN of a port without tags; none: VLAN 1, once another port of its switch has one. The value is a VLAN, 1
    to 4094, or "none"."""
    weight: int
    """Share of a poller's attention, and of a port or bucket that several fill. The value is a whole number from 1 to
    64."""


PortStatus = TypedDict("PortStatus", {
    "call_above": "Required[str]",
    "call_interval": "Required[str]",
    "call_intervals": "CallIntervals",
    "calls": "Required[int]",
    "coalesced": "int",
    "detail": "str | None",
    "device": "str | None",
    "drops": "Required[dict[str, int]]",
    "e1000": "E1000Status | None",
    "egress": "LimitStatus | None",
    "faults": "dict[str, int]",
    "identity": "IdentityStatus",
    "in": "Required[Traffic]",
    "ingress": "LimitStatus | None",
    "isolated": "Required[bool]",
    "kicks": "Required[int]",
    "kind": "Required[str]",
    "mac": "Required[list[str]]",
    "memory": "MemoryStatus | None",
    "mirror": "list[str]",
    "mirror_direction": "str | None",
    "moves_held": "int",
    "name": "Required[str]",
    "out": "Required[Traffic]",
    "poller": "int | None",
    "slow": "SlowStatus | None",
    "state": "Required[str]",
    "storm": "StormStatus | None",
    "stream": "StreamStatus | None",
    "switch": "Required[str]",
    "vhost_user": "VhostUserStatus | None",
    "weight": "Required[int]",
    "xdp": "XdpStatus | None",
}, total=False)


class ProgramStatus(TypedDict, total=False):
    """A switch's forwarding program at one moment. Counters since the program was loaded."""

    batches: Required[int]
    """Calls of `ringway_frames`."""
    counters: Required[dict[str, int]]
    """Its own counters."""
    detail: str | None
    """Why it failed; null if it has not."""
    drops: Required[dict[str, int]]
    """Frames that it dropped, by its own reasons."""
    faults: Required[dict[str, int]]
    """Faults, by name."""
    gauges: Required[dict[str, int]]
    """Its own gauges, the sum of all instances."""
    instances: Required[int]
    """Instances, one for each poller."""
    last_fault: str | None
    """The last fault; null: none."""
    last_fault_age: float | None
    """Seconds since the last fault; null: none."""
    lost_lines: Required[int]
    """Lines of its log that were not written, because they were too many."""
    map_entries: Required[int]
    """Entries of the map that its instances share."""
    state: Required[str]
    """`running`; `loading`: the daemon has started without it, and the switch forwards nothing yet; or `failed`:
    taken out after faults, or not loaded when the daemon started, and then the switch forwards nothing until it can
    be loaded."""


class Refusal(TypedDict, total=False):
    """Why a request was refused. Nothing has changed then."""

    error: Required[str]
    """What is wrong and what would be right."""
    mistakes: list[Mistake]
    """The mistakes in keys."""


class Refused(TypedDict, total=False):
    """Frames that were refused, by the limit that was reached."""

    bits: Required[int]
    """The limit's bits, or a sender's share of them."""
    bucket: int | None
    """For a port's limit: the shared bucket, or the port's share of it."""
    frames: Required[int]
    """The limit's frames, or a sender's share of them."""


class SlowStatus(TypedDict, total=False):
    """The use of poller time beyond a port's budget. Causes are page faults in its memory, and frames in very many
    pieces."""

    longest: Required[float]
    """The longest of these times."""
    quarantined: Required[bool]
    """A thread of the quarantine serves it, until it has kept its budget for a while."""
    seconds: Required[float]
    """Time of these visits over the budget, in seconds."""
    slow: Required[bool]
    """It is over its budget at present, and served with growing pauses (`slow_client` in `faults`)."""
    times: Required[int]
    """Times that it became slow."""
    visits: Required[int]
    """Visits over the budget."""


class Status(TypedDict, total=False):
    """The daemon at one moment. Counters of a port count since the port was added."""

    buckets: list[BucketStatus]
    """All buckets, sorted by name."""
    captures: list[CaptureStatus]
    """The running captures, sorted by number."""
    deaths: Deaths
    """Deaths of the switch, which others went on for, since its keeper started."""
    fault_counts: list[FaultCount]
    """The number of faults since the daemon started, by reason, of all ports together."""
    faults: Required[list[Fault]]
    """Faults of ports, and failures of Ringway itself, latest first: the last 32 of each port."""
    log_lines_lost: int
    """Lines of the log and of standard output that were lost, because they could not be written, or because their
    reader was too slow."""
    pollers: Required[list[PollerStatus]]
    """All pollers."""
    ports: Required[list[PortStatus]]
    """All ports, sorted by switch and name."""
    switches: Required[list[SwitchStatus]]
    """All switches, sorted by name."""
    uptime: Required[float]
    """Seconds since the daemon was ready."""
    version: Required[str]
    """Version of the daemon."""
    warnings: list[Mistake]
    """What is doubtful: names of ports that do not exist, addresses that several ports have or use."""


class StormBursts(TypedDict, total=False):
    """The bursts of storm control by class: like `32 frames`, or `16KiB` for a rate in bits."""

    broadcast: str | None
    """Broadcast."""
    multicast: str | None
    """Multicast."""
    unknown_unicast: str | None
    """Unicast to a station whose port is not known."""


class StormCounts(TypedDict, total=False):
    """Frames to many by class."""

    broadcast: Required[int]
    """Broadcast."""
    multicast: Required[int]
    """Multicast."""
    unknown_unicast: Required[int]
    """Unicast to a station whose port is not known."""


class StormStatus(TypedDict, total=False):
    """Storm control: rates in bits or frames per second."""

    broadcast: str | None
    """The rate of broadcast frames."""
    bursts: StormBursts
    """The bursts."""
    multicast: str | None
    """The rate of multicast frames."""
    passed: StormCounts
    """Frames that passed since the port has storm control. The counters continue when clients of the port change."""
    refused: StormCounts
    """Frames that were refused."""
    unknown_unicast: str | None
    """The rate of unicast frames to a station whose port is not known."""


class StreamStatus(TypedDict, total=False):
    """What only a stream port has."""

    role: Required[str]
    """The daemon's role: `server` if it listens, or `client`."""
    socket: Required[str]
    """The socket, relative to the runtime directory."""


class SwitchKeys(TypedDict, total=False):
    """The keys of a switch, as in `[switch.NAME]`. Unknown keys are refused. A key of a table can be given alone,
    with a dot: `"TABLE.KEY": VALUE`."""

    ageing: str
    """Learned addresses are forgotten after this time without a frame from them, in whole seconds; 0s: never. The
    value is a duration in whole seconds, like "300s"."""
    broadcast: str
    """Where frames to everybody go. The value is "flood", "drop" or "port:NAME"."""
    forward_reserved: list[str] | str
    """Protocols of bridges that go to other ports like multicast: stp, lacp, eapol, lldp, or a group of
    01:80:c2:00:00:00 to 0f; otherwise they are dropped (bridge_reserved). The value is a list of "stp", "lacp",
    "eapol", "lldp", and groups like "01:80:c2:00:00:08"."""
    forwarding: dict[str, Any] | str
    """How destinations are found: by learned addresses, by the addresses bound to ports (map), or by a program of
    yours. The value is "learning", "map" or { program = "FILE.wasm" }."""
    inbound: str
    """Frames from an address that is not bound to one that is. The value is "allow" or "drop"."""
    local: str
    """Frames between addresses that are bound to ports. The value is "allow" or "drop"."""
    mac_entries: int
    """Size of the MAC table, a power of two; with another size the switch learns anew. The value is a whole number
    from 64 to 1048576 that is a power of two."""
    mac_limit: int
    """Most addresses learned behind one port, up to mac_entries. The value is a whole number from 1 to 1048576."""
    multicast: str
    """Where frames to groups go. The value is "flood", "drop" or "port:NAME"."""
    outbound: str
    """Frames from a bound address to one that is not. The value is "allow" or "drop"."""
    transit: str
    """Frames between addresses that are not bound. The value is "allow" or "drop"."""
    unknown_unicast: str
    """Where frames to a station without a known port go; a map switch drops them. The value is "flood", "drop" or
    "port:NAME"."""


class SwitchStatus(TypedDict, total=False):
    """One switch at one moment."""

    ageing: str
    """Learned addresses are forgotten after this time without a frame from them, in whole seconds; 0s: never. The
    value is a duration in whole seconds, like "300s"."""
    broadcast: str
    """Where frames to everybody go. The value is "flood", "drop" or "port:NAME"."""
    forward_reserved: list[str] | str
    """Protocols of bridges that go to other ports like multicast: stp, lacp, eapol, lldp, or a group of
    01:80:c2:00:00:00 to 0f; otherwise they are dropped (bridge_reserved). The value is a list of "stp", "lacp",
    "eapol", "lldp", and groups like "01:80:c2:00:00:08"."""
    forwarding: dict[str, Any] | str
    """How destinations are found: by learned addresses, by the addresses bound to ports (map), or by a program of
    yours. The value is "learning", "map" or { program = "FILE.wasm" }."""
    inbound: str
    """Frames from an address that is not bound to one that is. The value is "allow" or "drop"."""
    local: str
    """Frames between addresses that are bound to ports. The value is "allow" or "drop"."""
    mac_entries: int
    """Size of the MAC table, a power of two; with another size the switch learns anew. The value is a whole number
    from 64 to 1048576 that is a power of two."""
    mac_limit: int
    """Most addresses learned behind one port, up to mac_entries. The value is a whole number from 1 to 1048576."""
    multicast: str
    """Where frames to groups go. The value is "flood", "drop" or "port:NAME"."""
    outbound: str
    """Frames from a bound address to one that is not. The value is "allow" or "drop"."""
    transit: str
    """Frames between addresses that are not bound. The value is "allow" or "drop"."""
    unknown_unicast: str
    """Where frames to a station without a known port go; a map switch drops them. The value is "flood", "drop" or
    "port:NAME"."""
    moved: int
    """Moves of addresses: times that an address was heard at another port than before."""
    moves: list[MoveStatus]
    """Addresses that moved, latest first; the last 64."""
    moves_held: int
    """Times that an address was heard at another port and did not move, because it had moved shortly before."""
    name: Required[str]
    """Its name."""
    ports: Required[int]
    """How many ports it has, also those that wait for a client or a device."""
    program: ProgramStatus | None


class Traffic(TypedDict, total=False):
    """Frames and their bytes without FCS."""

    bytes: Required[int]
    """Their bytes."""
    frames: Required[int]
    """The number of frames."""


class VhostUserStatus(TypedDict, total=False):
    """A vhost-user port's front end at one moment."""

    config_space: Required[bool]
    """Whether the configuration space is offered."""
    features: Required[list[str]]
    """The virtio features in use, like `mrg_rxbuf`."""
    most_queues: Required[int]
    """Most queue pairs."""
    mtu: int | None
    """The MTU that the guest is told; null: none."""
    offload: Required[bool]
    """Whether checksums and segmentation are offered."""
    queues: Required[int]
    """Queues that are started."""
    ring_reset: Required[bool]
    """Whether guests may reset single rings."""
    ring_size: Required[int]
    """Descriptors of the first started queue."""
    role: Required[str]
    """The daemon's role: `server` if it listens, or `client`."""
    socket: Required[str]
    """The socket, relative to the runtime directory."""


class XdpStatus(TypedDict, total=False):
    """What only an XDP port has."""

    checksums: Required[str]
    """Who writes checksums that senders left to the port, into frames to the device: `device`, or `software`
    (Ringway)."""
    mode: Required[str]
    """How frames get from the device to the port: `zero-copy`, `copy` or `generic`."""
    queues: Required[int]
    """Number of the device's queues that the port has."""
