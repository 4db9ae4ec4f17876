//! The source guard: a port's frames speak in its own name only.

use std::net::{IpAddr, Ipv6Addr};

use ringway_memory::{HEAD_BYTES, Head};

use super::claims::{Claims, Ports, Protocol, Reading, Role, Unreadable, claims_nothing};
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

    /// Which range has a value.
    fn range(&self, value: T) -> Option<(T, T)> {
        let (first, last) = self.first;
        let after = self.more.partition_point(|(first, _)| *first <= value);
        let found = if value <= last { Some((first, last)) } else { self.more[..after].last().copied() };
        found.filter(|(first, last)| *first <= value && value <= *last)
    }

    #[inline(never)]
    fn is_further(&self, value: T) -> bool {
        let after = self.more.partition_point(|(first, _)| *first <= value);
        after > 0 && value <= self.more[after - 1].1
    }
}

/// The bits that all addresses of the range of a value have in common; all bits where it is in no range, or in one that is no
/// prefix.
macro_rules! common {
    ($number:ty) => {
        impl Ranges<$number> {
            fn common(&self, value: $number) -> $number {
                let Some((first, last)) = self.range(value) else { return <$number>::MAX };
                let others = first ^ last;
                if first & others == 0 && others & others.wrapping_add(1) == 0 { !others } else { <$number>::MAX }
            }
        }
    };
}

common!(u32);
common!(u128);

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

    /// Whether the second frame is let through only because it is like the first, which is judged: what a batch does with rows
    /// of frames, for tests.
    #[cfg(any(test, fuzzing))]
    #[must_use]
    pub fn is_like(&self, judged: (&[u8; 128], usize), other: (&[u8; 128], usize)) -> bool {
        let pattern = self.judging().pattern(judged.0, judged.1);
        pattern.is_some_and(|pattern| other.1 >= pattern.len() as usize && pattern.leading(&[[Head(*other.0)]]).0 == 1)
    }

    #[inline]
    pub(crate) fn judging(&self) -> Judging<'_> {
        Judging { guard: self, known: self.macs.first().copied().unwrap_or(Mac::BROADCAST) }
    }

    /// Whether it is a frame as most are, and right but for its Ethernet source: IPv4 without tags and options, and not DHCP where
    /// that matters; TCP or UDP over IPv6, alike; or a protocol without addresses.
    #[inline(always)]
    fn is_plain(&self, head: &[u8; 128], len: usize) -> bool {
        let Checks { ip, dhcp, .. } = self.checks;
        match u16::from_be_bytes([head[12], head[13]]) {
            0x0800 if head[14] == 0x45 && len >= 38 => {
                let source = u32::from_be_bytes([head[26], head[27], head[28], head[29]]);
                (!ip || self.v4.contains(source)) && (!dhcp || head[23] != 17 || has_no_port(head, 34, 67))
            }
            0x86dd if head[14] >> 4 == 6 && len >= 58 => {
                (head[20] == 6 || head[20] == 17 && (!dhcp || has_no_port(head, 54, 546)))
                    && (!ip || self.v6.contains(v6_source(head)))
            }
            kind => claims_nothing(kind),
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
}

impl Judging<'_> {
    /// As [`Guard::judge`].
    #[inline(always)]
    pub(crate) fn judge(&mut self, head: &[u8; 128], len: usize) -> Result<(), DropReason> {
        if self.guard.checks.mac && Mac::source(head) != self.known {
            if self.guard.macs.len() == 1 {
                return Err(DropReason::SpoofedMac);
            }
        } else if self.guard.is_plain(head, len) {
            return Ok(());
        }
        self.judge_closely(head, len)
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

    /// Judges a frame. If it passes: what all others that have it pass with, too, if there is such a thing.
    #[inline]
    pub(crate) fn pattern(&mut self, head: &[u8; 128], len: usize) -> Option<Pattern> {
        self.judge(head, len).ok()?;
        Pattern::of(self.guard, head, len)
    }
}

/// What a frame that passed has, as far as it was looked at: another that has the same passes, too.
#[derive(Debug)]
pub(crate) struct Pattern {
    seen: [Block; BLOCKS],
    /// The bits that have to be the same: of an address those that all of the port's range of it have in common.
    mask: [Block; BLOCKS],
    /// Only the first so many blocks of 16 bytes have such bits.
    blocks: usize,
    /// The others must have as many bytes.
    len: u32,
    /// Where ports are that must not be DHCP's.
    ports: Option<PortFilter>,
}

impl Pattern {
    /// That of a frame that passed.
    #[inline(never)]
    fn of(guard: &Guard, head: &[u8; 128], len: usize) -> Option<Pattern> {
        let mut reading = Reading::new(head.get(..len).unwrap_or(head));
        let claims = Claims::read_from(&mut reading).ok()?;
        let basis = reading.basis();
        if basis.is_partial {
            return None;
        }
        let (mut mask, mut end) = (Head::default(), 0);
        let mut must_have = |at: usize, bits: &[u8]| {
            if let Some(place) = mask.0.get_mut(at..at + bits.len()) {
                place.copy_from_slice(bits);
                end = end.max(at + bits.len());
            }
        };
        let mut bytes = basis.bytes;
        while bytes != 0 {
            must_have(bytes.trailing_zeros() as usize, &[u8::MAX]);
            bytes &= bytes - 1;
        }
        let Checks { mac, ip, dhcp, .. } = guard.checks;
        if mac {
            must_have(6, &[u8::MAX; 6]);
            basis.hardware.into_iter().for_each(|at| must_have(at, &[u8::MAX; 6]));
        }
        if ip {
            let v4 = || guard.v4.common(claims.v4.unwrap_or(0)).to_be_bytes();
            let v6 = || guard.v6.common(claims.v6.unwrap_or(0)).to_be_bytes();
            basis.v4.into_iter().for_each(|at| must_have(at, &v4()));
            basis.v6.into_iter().for_each(|at| must_have(at, &v6()));
        }
        let ports = basis.ports.filter(|_| dhcp).map(PortFilter::new);
        let (seen, mask) = (Block::all(&Head(*head)), Block::all(&mask));
        Some(Pattern { seen, mask, blocks: end.div_ceil(16), len: basis.len as u32, ports })
    }

    /// Bytes that the others must have for [`Pattern::leading`].
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// How many of these rows have it, from the first on, if their frames are long enough; and whether they have the Ethernet
    /// header of the frame that it is of.
    #[inline(never)]
    pub(crate) fn leading<const N: usize>(&self, rows: &[[Head; N]]) -> (usize, bool) {
        match self.blocks {
            1 => self.leading_by::<1, N>(rows),
            2 => self.leading_by::<2, N>(rows),
            3 => self.leading_by::<3, N>(rows),
            4 => self.leading_by::<4, N>(rows),
            _ => self.leading_by::<BLOCKS, N>(rows),
        }
    }

    /// The same by the first `B` blocks.
    #[inline(always)]
    fn leading_by<const B: usize, const N: usize>(&self, rows: &[[Head; N]]) -> (usize, bool) {
        let (Some(&seen), Some(&mask)) = (self.seen.first_chunk::<B>(), self.mask.first_chunk::<B>()) else {
            return (0, false);
        };
        let (mut like, mut header) = (0, Block::ZERO);
        for heads in rows {
            let mut differ = [Block::ZERO; B];
            for head in heads {
                for block in 0..B {
                    differ[block] = differ[block].or(Block::of(head, block).xor(seen[block]));
                }
            }
            let others = (0..B).fold(Block::ZERO, |others, block| others.or(differ[block].and(mask[block])));
            if !others.is_zero() || self.ports.as_ref().is_some_and(|filter| filter.suspects(heads)) {
                break;
            }
            header = header.or(differ[0]);
            like += 1;
        }
        (like, header.and(Block::ETHERNET).is_zero())
    }
}

/// Sixteen bytes, as words that the compiler takes together.
#[derive(Clone, Copy, Debug)]
struct Block([u32; 4]);

/// Blocks in a head.
const BLOCKS: usize = HEAD_BYTES / 16;

impl Block {
    const ZERO: Block = Block([0; 4]);
    /// The Ethernet header in the first block.
    const ETHERNET: Block = Block([u32::MAX, u32::MAX, u32::MAX, u32::from_le_bytes([0xff, 0xff, 0, 0])]);

    #[inline(always)]
    fn of(head: &Head, number: usize) -> Block {
        let (words, _) = head.0.as_chunks::<4>();
        Block(std::array::from_fn(|word| u32::from_le_bytes(words[number * 4 + word])))
    }

    fn all(head: &Head) -> [Block; BLOCKS] {
        std::array::from_fn(|number| Block::of(head, number))
    }

    #[inline(always)]
    fn or(self, other: Block) -> Block {
        Block(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    #[inline(always)]
    fn xor(self, other: Block) -> Block {
        Block(std::array::from_fn(|word| self.0[word] ^ other.0[word]))
    }

    #[inline(always)]
    fn and(self, other: Block) -> Block {
        Block(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        self.0[0] | self.0[1] | self.0[2] | self.0[3] == 0
    }
}

/// Tells the two ports of a transport header from the two of DHCP or DHCPv6.
#[derive(Clone, Copy, Debug)]
struct PortFilter {
    /// Where they are.
    at: usize,
    /// The bits that both of DHCP's have in common, and what they are there, for each port.
    mask: u32,
    value: u32,
}

impl PortFilter {
    fn new(ports: Ports) -> PortFilter {
        let common = !(ports.first ^ ports.first.wrapping_add(1));
        let twice = |port: u16| u32::from(port.swap_bytes()) * 0x0001_0001;
        PortFilter { at: ports.at.min(HEAD_BYTES - 4), mask: twice(common), value: twice(ports.first & common) }
    }

    /// Whether one of these may have one of the two: also of some that have not.
    #[inline(always)]
    fn suspects(&self, heads: &[Head]) -> bool {
        let (at, mut suspects) = (self.at.min(HEAD_BYTES - 4), 0);
        for head in heads {
            let ports = head.0[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let differ = ports & self.mask ^ self.value;
            // Whether one of the halves is zero (Hacker's Delight, 6-1).
            suspects |= differ.wrapping_sub(0x0001_0001) & !differ;
        }
        suspects & 0x8000_8000 != 0
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
