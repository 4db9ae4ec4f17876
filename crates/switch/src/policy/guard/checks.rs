//! What a source guard checks.

use std::net::IpAddr;

/// The checks of a source guard. Address checks apply to the lists of addresses given with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Ethernet source, and the hardware addresses in ARP and neighbour discovery.
    pub mac: bool,
    /// IPv4 and IPv6 source, and the protocol addresses in ARP and neighbour discovery.
    pub ip: bool,
    /// Answers to DHCP and DHCPv6 clients are dropped.
    pub dhcp: bool,
    /// Router advertisements and redirects are dropped.
    pub ra: bool,
}

impl Checks {
    /// No checks.
    pub const NONE: Checks = Checks { mac: false, ip: false, dhcp: false, ra: false };
}

/// An IP prefix: all addresses that begin with the same `length` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// The address. Its bits beyond `length` are zero.
    pub address: IpAddr,
    /// Bits of the prefix: 0 to 32 (IPv4) or 128 (IPv6).
    pub length: u8,
}
