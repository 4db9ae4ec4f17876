//! Frames that match one that passed need not be judged one by one.

use ringway_memory::{HEAD_BYTES, Head};

use super::checks::Checks;
use super::claims::{Claims, Ports, Reading};
use super::ranges::Ranges;
use crate::batch;

/// The addresses that a port may use.
pub(super) struct Addresses<'g> {
    pub(super) v4: &'g Ranges<u32>,
    pub(super) v6: &'g Ranges<u128>,
}

/// The bytes of a frame that passed, with a mask of those that decided it. Another frame that matches passes, too.
#[derive(Debug)]
pub(crate) struct Pattern {
    seen: [Block; BLOCKS],
    /// The bits that must match. Of an IP address: the common bits of the port's range that holds it.
    mask: [Block; BLOCKS],
    /// Number of leading blocks of 16 bytes with bits in the mask.
    blocks: usize,
    /// Least length of a frame that matches.
    len: u32,
    /// The ports that must not be DHCP's.
    ports: Option<PortFilter>,
}

impl Pattern {
    /// The pattern of a frame that passed, if the decision depended on nothing else.
    #[inline(never)]
    pub(super) fn of(checks: Checks, addresses: &Addresses<'_>, head: &[u8; 128], len: usize) -> Option<Pattern> {
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
        let Checks { mac, ip, dhcp, .. } = checks;
        if mac {
            must_have(6, &[u8::MAX; 6]);
            basis.hardware.into_iter().for_each(|at| must_have(at, &[u8::MAX; 6]));
        }
        if ip {
            let v4 = || addresses.v4.common(claims.v4.unwrap_or(0)).to_be_bytes();
            let v6 = || addresses.v6.common(claims.v6.unwrap_or(0)).to_be_bytes();
            basis.v4.into_iter().for_each(|at| must_have(at, &v4()));
            basis.v6.into_iter().for_each(|at| must_have(at, &v6()));
        }
        let ports = basis.ports.filter(|_| dhcp).map(PortFilter::new);
        let (seen, mask) = (Block::all(&Head(*head)), Block::all(&mask));
        Some(Pattern { seen, mask, blocks: end.div_ceil(16), len: basis.len as u32, ports })
    }

    /// [`batch::Pattern::leading`], comparing the first `B` blocks.
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

impl batch::Pattern for Pattern {
    #[inline(always)]
    fn len(&self) -> u32 {
        self.len
    }

    #[inline(never)]
    fn leading<const N: usize>(&self, rows: &[[Head; N]]) -> (usize, bool) {
        match self.blocks {
            1 => self.leading_by::<1, N>(rows),
            2 => self.leading_by::<2, N>(rows),
            3 => self.leading_by::<3, N>(rows),
            4 => self.leading_by::<4, N>(rows),
            _ => self.leading_by::<BLOCKS, N>(rows),
        }
    }
}

/// Sixteen bytes, as words that the compiler vectorises.
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

/// A filter for frames that may have a port of DHCP or DHCPv6.
#[derive(Clone, Copy, Debug)]
struct PortFilter {
    /// Position of the two ports in the frame.
    at: usize,
    /// The common bits of both DHCP ports, and their value, once for each of the two ports.
    mask: u32,
    value: u32,
}

impl PortFilter {
    fn new(ports: Ports) -> PortFilter {
        let common = !(ports.first ^ ports.first.wrapping_add(1));
        let twice = |port: u16| u32::from(port.swap_bytes()) * 0x0001_0001;
        PortFilter { at: ports.at.min(HEAD_BYTES - 4), mask: twice(common), value: twice(ports.first & common) }
    }

    /// Returns true if one of these frames may have a DHCP port. May also return true if none has.
    #[inline(always)]
    fn suspects(&self, heads: &[Head]) -> bool {
        let (at, mut suspects) = (self.at.min(HEAD_BYTES - 4), 0);
        for head in heads {
            let ports = head.0[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let differ = ports & self.mask ^ self.value;
            // Nonzero in the high bits if one of the halves is zero (Hacker's Delight, 6-1).
            suspects |= differ.wrapping_sub(0x0001_0001) & !differ;
        }
        suspects & 0x8000_8000 != 0
    }
}
