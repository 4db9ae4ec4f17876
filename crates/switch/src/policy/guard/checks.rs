//! What a guard looks at.

use std::net::IpAddr;

/// What is looked at. Addresses are when there is a list of them.
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
    /// Nothing.
    pub const NONE: Checks = Checks { mac: false, ip: false, dhcp: false, ra: false };
}

/// An address, or all that begin with the same `length` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// Its bits beyond `length` are zero.
    pub address: IpAddr,
    /// 0 to 32 or 128.
    pub length: u8,
}
