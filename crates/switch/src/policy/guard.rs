//! The source guard: a port's frames speak in its own name only.

use std::net::{IpAddr, Ipv6Addr};

use super::claims::{Claims, Protocol, Role, Unreadable};
use crate::batch::Batch;
use crate::counters::DropReason;
use crate::mac::Mac;

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

/// A sorted list of ranges that do not touch.
#[derive(Clone, Debug, Default)]
struct Ranges<T>(Box<[(T, T)]>);

impl<T: Copy + Ord> Ranges<T> {
    fn new(mut ranges: Vec<(T, T)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged.into())
    }

    #[inline]
    fn contains(&self, value: T) -> bool {
        match &*self.0 {
            [] => false,
            [(first, last)] => *first <= value && value <= *last,
            many => {
                let after = many.partition_point(|(first, _)| *first <= value);
                after > 0 && value <= many[after - 1].1
            }
        }
    }
}

/// What one port may claim. Judges private copies only, which are what is delivered.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    checks: Checks,
    /// Sorted.
    macs: Box<[Mac]>,
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl Guard {
    /// For a port that has these addresses. With any IPv6 address it also has the link-local ones that its Ethernet
    /// addresses make (RFC 4291, appendix A).
    #[must_use]
    pub fn new(checks: Checks, macs: &[Mac], prefixes: &[Prefix]) -> Guard {
        let mut macs = macs.to_vec();
        macs.sort_unstable();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for prefix in prefixes {
            match prefix.address {
                IpAddr::V4(address) => {
                    let others = u32::MAX.checked_shr(prefix.length.into()).unwrap_or(0);
                    v4.push((u32::from(address), u32::from(address) | others));
                }
                IpAddr::V6(address) => {
                    let others = u128::MAX.checked_shr(prefix.length.into()).unwrap_or(0);
                    v6.push((u128::from(address), u128::from(address) | others));
                }
            }
        }
        if !v6.is_empty() {
            v6.extend(macs.iter().map(|mac| u128::from(link_local(*mac))).map(|address| (address, address)));
        }
        Guard { checks, macs: macs.into(), v4: Ranges::new(v4), v6: Ranges::new(v6) }
    }

    /// Whether there is anything to look at.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.checks == Checks::NONE
    }

    #[inline]
    fn has(&self, mac: Mac) -> bool {
        match &*self.macs {
            [one] => *one == mac,
            many => many.binary_search(&mac).is_ok(),
        }
    }

    /// Rejects the frames of a batch that claim what is not the port's.
    pub(crate) fn admit(&self, batch: &mut Batch<'_>) {
        let mut known = self.macs.first().copied().unwrap_or(Mac::BROADCAST);
        for index in 0..batch.len() {
            let (head, len) = batch.judged(index);
            if let Err(reason) = self.judge_after(&mut known, head, len) {
                batch.reject(index, reason);
            }
        }
    }

    /// Judges a frame by the `len` first bytes of `head`, 14 or more: all of it, or 128.
    ///
    /// # Errors
    /// Why it is to be dropped.
    pub fn judge(&self, head: &[u8; 128], len: usize) -> Result<(), DropReason> {
        let mut known = self.macs.first().copied().unwrap_or(Mac::BROADCAST);
        self.judge_after(&mut known, head, len)
    }

    /// The same, `known` being an address of the port's.
    #[inline]
    fn judge_after(&self, known: &mut Mac, head: &[u8; 128], len: usize) -> Result<(), DropReason> {
        let source = Mac::source(head);
        if self.checks.mac && source != *known {
            if !self.has(source) {
                return Err(DropReason::SpoofedMac);
            }
            *known = source;
        }
        if self.is_plain(head, len) { Ok(()) } else { self.judge_claims(head, len) }
    }

    /// Whether it is a frame as most are, and right: IPv4 without tags and options, and not UDP where that matters; or
    /// TCP or UDP over IPv6, alike.
    #[inline]
    fn is_plain(&self, head: &[u8; 128], len: usize) -> bool {
        match (head[12], head[13], head[14]) {
            (0x08, 0x00, 0x45) if len >= 38 => {
                let source = u32::from_be_bytes([head[26], head[27], head[28], head[29]]);
                (head[23] != 17 || !self.checks.dhcp || is_far_from_dhcp(head, 34))
                    && (!self.checks.ip || self.v4.contains(source))
            }
            (0x86, 0xdd, version) if version >> 4 == 6 && len >= 58 => {
                let transport = head[20];
                let plain = transport == 6 || transport == 17 && (!self.checks.dhcp || is_far_from_dhcp(head, 54));
                plain && (!self.checks.ip || self.v6.contains(v6_source(head)))
            }
            _ => false,
        }
    }

    #[inline(never)]
    fn judge_claims(&self, head: &[u8; 128], len: usize) -> Result<(), DropReason> {
        let frame = head.get(..len).unwrap_or(head);
        let claims = Claims::read(frame).map_err(|Unreadable| DropReason::GuardUnreadable)?;
        let spoofed = match claims.protocol {
            Protocol::Other | Protocol::Ip => DropReason::SpoofedIp,
            Protocol::Arp => DropReason::SpoofedArp,
            Protocol::Neighbour => DropReason::SpoofedNd,
        };
        if self.checks.mac && claims.hardware.is_some_and(|mac| !self.has(mac)) {
            return Err(spoofed);
        }
        match claims.role {
            Role::DhcpServer if self.checks.dhcp => return Err(DropReason::DhcpServer),
            Role::Router if self.checks.ra => return Err(DropReason::RouterAdvertised),
            _ => {}
        }
        let foreign = |address: Option<u128>| address.is_some_and(|address| !self.v6.contains(address));
        if self.checks.ip
            && (claims.v4.is_some_and(|address| !self.v4.contains(address))
                || foreign(claims.v6)
                || foreign(claims.target))
        {
            return Err(spoofed);
        }
        Ok(())
    }
}

/// Whether the ports of the UDP header at `at` are none of DHCP's. In a fragment but the first there may be anything; that
/// costs a closer look.
#[inline]
fn is_far_from_dhcp(head: &[u8; 128], at: usize) -> bool {
    let ports = [u16::from_be_bytes([head[at], head[at + 1]]), u16::from_be_bytes([head[at + 2], head[at + 3]])];
    !ports.iter().any(|port| matches!(port, 67 | 68 | 546 | 547))
}

#[inline]
fn v6_source(head: &[u8; 128]) -> u128 {
    let mut address = [0; 16];
    address.copy_from_slice(&head[22..38]);
    u128::from_be_bytes(address)
}

fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.octets();
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
