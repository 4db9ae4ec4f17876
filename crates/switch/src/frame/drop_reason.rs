//! Reasons for dropped frames.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a frame was not delivered. Each is counted at the port that caused the loss.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// All reasons, in order.
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
    /// Source: the frame is shorter than an Ethernet header (14 bytes), or than the header that its port has before
    /// each frame.
    Runt = "runt",
    /// Source: the frame is longer than the maximum, or uses more slots.
    Oversize = "oversize",
    /// Source or receiver: a slot names a buffer that does not exist.
    BadBuffer = "bad_buffer",
    /// Source: its device had no buffer for the frame, because the switch did not take frames as fast as they came.
    DeviceOverrun = "device_overrun",
    /// Source: a slot's length is zero or more than a buffer.
    BadLength = "bad_length",
    /// Source: the frame contradicts its offload, or its headers do not fit into the private copy.
    BadOffload = "bad_offload",
    /// Source: the source address is a group address or zero.
    BadSource = "bad_source",
    /// Source: the Ethernet source is not one of the port's addresses, or is bound to another port.
    SpoofedMac = "spoofed_mac",
    /// Source: ARP or RARP names a sender address that is not the port's.
    SpoofedArp = "spoofed_arp",
    /// Source: the IPv4 or IPv6 source is not one of the port's addresses.
    SpoofedIp = "spoofed_ip",
    /// Source: neighbour discovery names an address that is not the port's.
    SpoofedNd = "spoofed_nd",
    /// Source: the frame answers DHCP clients, and the port's guard forbids that.
    DhcpServer = "dhcp_server",
    /// Source: the frame advertises a router or redirects, and the port's guard forbids that.
    RouterAdvertised = "router_advertised",
    /// Source: a header that the guard must check is malformed, or not within the frame's first 128 bytes.
    GuardUnreadable = "guard_unreadable",
    /// Source: the destination is at the port that the frame came from.
    SamePort = "same_port",
    /// Source: no port has this destination, and the switch does not flood such frames.
    NoDestination = "no_destination",
    /// Source: group traffic of a class that the switch is set to drop.
    GroupDropped = "group_dropped",
    /// Source: the destination is an address of bridges themselves (01:80:c2:00:00:0x).
    BridgeReserved = "bridge_reserved",
    /// Source: the switch's forwarding program drops the frame, for a reason of its own.
    ProgramDropped = "program_dropped",
    /// Source: the switch's forwarding program failed, and the switch is set to drop frames then; or it is not there yet since the start.
    ProgramFault = "program_fault",
    /// Source: both ports are isolated.
    Isolated = "isolated",
    /// Source: one of the two ports does not allow the other.
    PairDenied = "pair_denied",
    /// Source: one of the two ports is an uplink that the other may not use.
    UplinkDenied = "uplink_denied",
    /// Source: source and destination are bound, and the rule `local` drops such frames.
    LocalDenied = "local_denied",
    /// Source: only the source address is bound, and the rule `outbound` drops such frames.
    OutboundDenied = "outbound_denied",
    /// Source: only the destination address is bound, and the rule `inbound` drops such frames.
    InboundDenied = "inbound_denied",
    /// Source: neither address is bound, and the rule `transit` drops such frames.
    TransitDenied = "transit_denied",
    /// Source: the frame's VLAN is not the port's or not the destination's, or the frame lacks a required tag.
    VlanDenied = "vlan_denied",
    /// Source: a tag behind a tag, on a port without a trunk or where the first tag would be removed.
    VlanStacked = "vlan_stacked",
    /// Source: the frame exceeds the port's ingress limit.
    RateLimited = "rate_limited",
    /// Source: the frame exceeds the port's limit on broadcast, multicast or unknown unicast.
    StormLimited = "storm_limited",
    /// Source: the frame goes to so many ports that cutting and copying it for each takes longer than a visit may, and
    /// it cannot wait.
    FloodLimited = "flood_limited",
    /// Receiver: the frame exceeds the port's egress limit, or its sender's share of it.
    EgressLimited = "egress_limited",
    /// Source: the port is a mirror, which receives copies and may not send.
    MirrorPort = "mirror_port",
    /// Receiver: no room in its ring or device queue.
    ReceiverFull = "receiver_full",
    /// Receiver: delivery to the port took too long, so the port is set aside for a while.
    ReceiverSlow = "receiver_slow",
    /// Receiver: the frame is too long for its buffers or its device.
    ReceiverTooSmall = "receiver_too_small",
    /// Receiver: the filters of its device (addresses, VLANs), which its client sets, reject the frame.
    ReceiverFiltered = "receiver_filtered",
    /// Receiver: the NIC's packet buffer took the frame, which counted as delivered, and lost it: the guest reset the
    /// NIC, disabled reception, changed its filters or posted too small buffers.
    BufferLost = "buffer_lost",
    /// Receiver: its device is down or refused the frame.
    ReceiverDown = "receiver_down",
    /// Source or receiver: Ringway panicked while it served the port or delivered to it, and the port is being
    /// replaced.
    InternalError = "internal_error",
}
