//! Why frames are lost.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a frame was not delivered. Counted at the port that caused it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// All of them, in order.
            pub const ALL: &[DropReason] = &[$(DropReason::$name,)*];

            /// The name in `status --json` and in metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

drop_reasons! {
    /// Source: shorter than an Ethernet header (14 bytes), or than the header that its port has before each frame.
    Runt = "runt",
    /// Source: longer than a frame may be, or spread over more slots.
    Oversize = "oversize",
    /// Source or receiver: a slot names a buffer that is not there.
    BadBuffer = "bad_buffer",
    /// Source: a slot's length is zero or more than a buffer.
    BadLength = "bad_length",
    /// Source: it asks for a checksum or segmentation that its frame contradicts, or for whose headers the private copy has no
    /// room.
    BadOffload = "bad_offload",
    /// Source: the source address is a group address or zero.
    BadSource = "bad_source",
    /// Source: the Ethernet source is not one of the port's addresses, or is bound to another port.
    SpoofedMac = "spoofed_mac",
    /// Source: ARP or RARP names a sender that the port is not.
    SpoofedArp = "spoofed_arp",
    /// Source: the IPv4 or IPv6 source is not one of the port's addresses.
    SpoofedIp = "spoofed_ip",
    /// Source: neighbour discovery speaks for an address that is not the port's.
    SpoofedNd = "spoofed_nd",
    /// Source: it answers DHCP clients, which the guard of the port forbids.
    DhcpServer = "dhcp_server",
    /// Source: it advertises a router, or redirects, which the guard of the port forbids.
    RouterAdvertised = "router_advertised",
    /// Source: what the guard has to look at is malformed, or not within the frame's first 128 bytes.
    GuardUnreadable = "guard_unreadable",
    /// Source: the destination is known to be on the port the frame came from.
    SamePort = "same_port",
    /// Source: no port has this destination, and the switch does not flood such frames.
    NoDestination = "no_destination",
    /// Source: group traffic of a class that the switch is set to drop.
    GroupDropped = "group_dropped",
    /// Source: addressed to bridges themselves (01:80:c2:00:00:0x).
    BridgeReserved = "bridge_reserved",
    /// Source: both ports are isolated.
    Isolated = "isolated",
    /// Source: one of the two ports does not allow the other.
    PairDenied = "pair_denied",
    /// Source: one of the two ports is an uplink that the other may not use.
    UplinkDenied = "uplink_denied",
    /// Source: source and destination are known, and the rules of the switch keep such frames apart.
    LocalDenied = "local_denied",
    /// Source: only the source address is known, and the rules of the switch do not let such frames out.
    OutboundDenied = "outbound_denied",
    /// Source: only the destination address is known, and the rules of the switch do not let such frames in.
    InboundDenied = "inbound_denied",
    /// Source: neither address is known, and the rules of the switch do not let such frames through.
    TransitDenied = "transit_denied",
    /// Source: the frame's VLAN is not the port's, or not the destination's; or it has no tag where it needs one.
    VlanDenied = "vlan_denied",
    /// Source: a tag behind a tag, on a port without a trunk or where the first would be taken off.
    VlanStacked = "vlan_stacked",
    /// Source: more than it may send.
    RateLimited = "rate_limited",
    /// Source: more broadcast, multicast or unknown unicast than it may send.
    StormLimited = "storm_limited",
    /// Receiver: more than it may be given, or than its sender's share of that.
    EgressLimited = "egress_limited",
    /// Source: it is a mirror port, which is given copies and may send nothing.
    MirrorPort = "mirror_port",
    /// Receiver: no room in its ring or device queue.
    ReceiverFull = "receiver_full",
    /// Receiver: delivering to it took its poller too long, so that it is set aside for a while.
    ReceiverSlow = "receiver_slow",
    /// Receiver: too long for its buffers or its device.
    ReceiverTooSmall = "receiver_too_small",
    /// Receiver: its device's filters do not let it in (addresses, VLANs), as its client has set them.
    ReceiverFiltered = "receiver_filtered",
    /// Receiver: counted as delivered when its NIC's packet buffer took it, and lost there: the guest reset the NIC, turned
    /// receiving off, did not want the frame any more or has not the buffers for it.
    BufferLost = "buffer_lost",
    /// Receiver: its device is down or refused the frame.
    ReceiverDown = "receiver_down",
    /// Source or receiver: Ringway itself failed while it served the port or gave it frames, and the port is being replaced.
    InternalError = "internal_error",
}
