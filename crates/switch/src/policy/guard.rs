//! The source guard: a port's frames speak in its own name only.

use std::net::{IpAddr, Ipv6Addr};

use ringway_memory::Head;

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

/// Ranges that do not touch: most ports have one.
#[derive(Clone, Debug)]
struct Ranges<T> {
    first: (T, T),
    /// The others, sorted.
    more: Box<[(T, T)]>,
}

impl<T: Copy + Ord> Ranges<T> {
    /// `nothing` is a range that ends before it begins.
    fn new(mut ranges: Vec<(T, T)>, nothing: (T, T)) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        let mut merged = merged.into_iter();
        Self { first: merged.next().unwrap_or(nothing), more: merged.collect() }
    }

    #[inline]
    fn contains(&self, value: T) -> bool {
        let (first, last) = self.first;
        first <= value && value <= last || !self.more.is_empty() && self.is_further(value)
    }

    #[inline(never)]
    fn is_further(&self, value: T) -> bool {
        let after = self.more.partition_point(|(first, _)| *first <= value);
        after > 0 && value <= self.more[after - 1].1
    }
}

/// What one port may claim. Judges private copies only, which are what is delivered.
#[derive(Clone, Debug)]
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
        Guard { checks, macs: macs.into(), v4: Ranges::new(v4, (1, 0)), v6: Ranges::new(v6, (1, 0)) }
    }

    /// Whether there is anything to look at.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.checks == Checks::NONE
    }

    /// Whether nobody else may use the port's Ethernet addresses.
    pub(crate) fn has_macs(&self) -> bool {
        self.checks.mac
    }

    #[inline]
    fn has(&self, mac: Mac) -> bool {
        match &*self.macs {
            [one] => *one == mac,
            many => many.binary_search(&mac).is_ok(),
        }
    }

    /// Rejects the frames of a batch that claim what is not the port's.
    #[inline]
    pub(crate) fn admit(&self, batch: &mut Batch<'_>) {
        batch.judge(&mut self.judging());
    }

    /// Judges a frame by the `len` first bytes of `head`, 14 or more: all of it, or 128.
    ///
    /// # Errors
    /// Why it is to be dropped.
    pub fn judge(&self, head: &[u8; 128], len: usize) -> Result<(), DropReason> {
        self.judging().judge(head, len)
    }

    #[inline]
    pub(crate) fn judging(&self) -> Judging<'_> {
        Judging { guard: self, known: self.macs.first().copied().unwrap_or(Mac::BROADCAST), last: None }
    }

    /// Whether it is a frame as most are, and right: IPv4 without tags and options, and not DHCP where that matters; or TCP
    /// or UDP over IPv6, alike.
    #[inline(always)]
    fn is_plain(&self, known: Mac, head: &[u8; 128], len: usize) -> bool {
        let Checks { mac, ip, dhcp, .. } = self.checks;
        if mac && Mac::source(head) != known {
            return false;
        }
        match u16::from_be_bytes([head[12], head[13]]) {
            0x0800 if head[14] == 0x45 && len >= 38 => {
                let source = u32::from_be_bytes([head[26], head[27], head[28], head[29]]);
                (!ip || self.v4.contains(source)) && (!dhcp || head[23] != 17 || has_no_port(head, 34, 67))
            }
            0x86dd if head[14] >> 4 == 6 && len >= 58 => {
                (head[20] == 6 || head[20] == 17 && (!dhcp || has_no_port(head, 54, 546)))
                    && (!ip || self.v6.contains(v6_source(head)))
            }
            _ => false,
        }
    }

    fn judge_claims(&self, frame: &[u8]) -> Result<(), DropReason> {
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

/// A look at one frame after the other.
pub(crate) struct Judging<'g> {
    guard: &'g Guard,
    /// An address of the port's.
    known: Mac,
    last: Option<Alike>,
}

impl Judging<'_> {
    /// As [`Guard::judge`].
    #[inline(always)]
    pub(crate) fn judge(&mut self, head: &[u8; 128], len: usize) -> Result<(), DropReason> {
        if self.last.as_ref().is_some_and(|last| last.is_like(head, len)) {
            return Ok(());
        }
        if self.guard.checks.mac && self.guard.macs.len() == 1 && Mac::source(head) != self.known {
            return Err(DropReason::SpoofedMac);
        }
        if self.guard.is_plain(self.known, head, len) {
            self.last = Some(Alike::of(head, self.guard.checks.dhcp));
            return Ok(());
        }
        self.judge_closely(head, len)
    }

    /// Whether all these have what was looked at of the last frame that passed, which is in the first [`Judging::looked_at`]
    /// bytes, that they need to have; and whether they have its Ethernet header.
    #[inline(always)]
    pub(crate) fn are_like<const N: usize>(&self, heads: &[Head; N]) -> (bool, bool) {
        self.last.as_ref().map_or((false, false), |last| last.are_like(heads))
    }

    /// Bytes of the last frame that passed that were looked at.
    #[inline]
    pub(crate) fn looked_at(&self) -> u32 {
        self.last.as_ref().map_or(u32::MAX, |last| last.len as u32)
    }

    #[inline(never)]
    fn judge_closely(&mut self, head: &[u8; 128], len: usize) -> Result<(), DropReason> {
        let source = Mac::source(head);
        if self.guard.checks.mac && source != self.known {
            if !self.guard.has(source) {
                return Err(DropReason::SpoofedMac);
            }
            self.known = source;
        }
        self.guard.judge_claims(head.get(..len).unwrap_or(head))
    }
}

/// What was looked at of a plain frame that passed: another that has the same passes, too.
struct Alike {
    /// The frame's first 38 bytes, and which of their bits were looked at.
    seen: Words,
    mask: Words,
    /// As long as the first one had to be.
    len: usize,
    /// UDP's ports, where they matter, and what they must not be.
    ports: Option<Ports>,
}

struct Ports {
    seen: u32,
    at: usize,
    server: u16,
}

/// The first 38 bytes of a frame: words at 0, 8, 16, 24 and 30.
type Words = [u64; 5];
/// The Ethernet header.
const ETHERNET: Words = [u64::MAX, 0xffff_ffff_ffff, 0, 0, 0];

#[inline(always)]
fn words(head: &[u8; 128]) -> Words {
    [word::<0>(head), word::<8>(head), word::<16>(head), word::<24>(head), word::<30>(head)]
}

#[inline(always)]
fn word<const AT: usize>(head: &[u8; 128]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&head[AT..AT + 8]);
    u64::from_le_bytes(bytes)
}

/// Notes in `difference` where two differ.
#[inline(always)]
fn compare(difference: &mut Words, one: &Words, other: &Words) {
    for place in 0..difference.len() {
        difference[place] |= one[place] ^ other[place];
    }
}

/// Whether there is no difference where `mask` has bits.
#[inline(always)]
fn is_none(difference: &Words, mask: &Words) -> bool {
    let mut all = 0;
    for place in 0..difference.len() {
        all |= difference[place] & mask[place];
    }
    all == 0
}

#[inline(always)]
fn ports(head: &[u8; 128], at: usize) -> u32 {
    head[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

impl Alike {
    /// Ethernet source and type; version and length of the header; protocol and source.
    const V4: Words = [0xffff << 48, 0xff_ffff_ffff_ffff, 0xff << 56, 0xffff_ffff << 16, 0];
    /// Ethernet source and type; version and next header; source.
    const V6: Words = [0xffff << 48, 0xf0_ffff_ffff_ffff, 0xffff_00ff << 32, u64::MAX, u64::MAX];

    #[inline(never)]
    fn of(head: &[u8; 128], dhcp: bool) -> Alike {
        let (mask, protocol, at, server) = match head[12..14] == [0x08, 0x00] {
            true => (Self::V4, head[23], 34, 67),
            false => (Self::V6, head[20], 54, 546),
        };
        let ports = (dhcp && protocol == 17).then(|| Ports { seen: ports(head, at), at, server });
        Alike { seen: words(head), mask, len: at + 4, ports }
    }

    #[inline(always)]
    fn is_like(&self, head: &[u8; 128], len: usize) -> bool {
        let mut difference = [0; 5];
        compare(&mut difference, &words(head), &self.seen);
        let harmless = |is: &Ports| is.seen == ports(head, is.at) || has_no_port(head, is.at, is.server);
        is_none(&difference, &self.mask) && len >= self.len && self.ports.as_ref().is_none_or(harmless)
    }

    /// As [`Alike::is_like`] for frames that are long enough, and have the same ports where these matter; and whether they have
    /// the same Ethernet header.
    #[inline(always)]
    fn are_like<const N: usize>(&self, heads: &[Head; N]) -> (bool, bool) {
        let (mut difference, mut other) = ([0; 5], 0);
        let (at, seen) = self.ports.as_ref().map_or((0, None), |is| (is.at % 64, Some(is.seen)));
        for head in heads {
            compare(&mut difference, &words(&head.0), &self.seen);
            other |= ports(&head.0, at) ^ seen.unwrap_or(0);
        }
        let are_like = is_none(&difference, &self.mask) && (other == 0 || seen.is_none());
        (are_like, is_none(&difference, &ETHERNET))
    }
}

/// Whether the ports of the UDP header at `at` are neither `port` nor the next. In a fragment but the first there may be
/// anything; that costs a closer look.
#[inline]
fn has_no_port(head: &[u8; 128], at: usize, port: u16) -> bool {
    let is_not = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]).wrapping_sub(port) > 1;
    is_not(at) && is_not(at + 2)
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
