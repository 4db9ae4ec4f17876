//! Where a ring is, and the meaning of its words.

use std::sync::atomic::{AtomicU64, Ordering};

use ringway_port::copy::ROW;
use ringway_port::guest::GuestMemory;

use super::fault::RingFault;

/// Bytes of a descriptor. A packet split descriptor counts as two.
const BYTES: u32 = 16;
/// Most descriptors: the length registers hold multiples of 128 bytes below 1 MiB (SDM 13.4.27, RDLEN).
const MOST: u32 = (1 << 16) - 8;

/// A descriptor, in memory that is shared with the driver.
pub(super) type Words = [AtomicU64; 2];

/// A ring in guest memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    base: u64,
    count: u32,
}

impl Table {
    /// Checks a ring of `count` descriptors at guest physical address `base`.
    pub(super) fn new(base: u64, count: u32) -> Result<Table, RingFault> {
        let table = Table { base, count };
        if count == 0 || !count.is_multiple_of(8) || count > MOST {
            return Err(RingFault::BadLength(count));
        }
        if !base.is_multiple_of(BYTES.into()) {
            return Err(RingFault::BadBase { base, bytes: table.bytes() });
        }
        Ok(table)
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    fn bytes(&self) -> u32 {
        self.count * BYTES
    }

    /// Returns the descriptors, for the length of a batch.
    #[inline]
    pub(super) fn words<'m>(&self, memory: &'m GuestMemory) -> Result<&'m [Words], RingFault> {
        let view = memory.space().view(self.base, self.bytes());
        match view.and_then(|view| view.words64()) {
            Some(words) => Ok(words.as_chunks().0),
            None => Err(RingFault::BadBase { base: self.base, bytes: self.bytes() }),
        }
    }

    /// Returns the number of descriptors from `from` to `tail`.
    #[inline(always)]
    pub(super) fn ahead(&self, from: u32, tail: u32) -> u32 {
        if tail >= from { tail - from } else { tail + self.count - from }
    }

    /// Returns the index `steps` (at most the size of the ring) after `from`.
    #[inline(always)]
    pub(super) fn after(&self, from: u32, steps: u32) -> u32 {
        let sum = from + steps;
        if sum >= self.count { sum - self.count } else { sum }
    }

    /// Checks that a head register is inside the ring.
    pub(super) fn check_head(&self, head: u32) -> Result<(), RingFault> {
        if head < self.count { Ok(()) } else { Err(RingFault::HeadOutOfRange { head, count: self.count }) }
    }

    /// Checks that a tail register is inside the ring.
    #[inline(always)]
    pub(super) fn check_tail(&self, tail: u32) -> Result<(), RingFault> {
        if tail < self.count { Ok(()) } else { Err(RingFault::TailOutOfRange { tail, count: self.count }) }
    }
}

/// Prefetches the descriptors after the next row of a run.
#[inline(always)]
pub(super) fn prefetch_run(run: &[Words], line: impl Fn(*const u8)) {
    let ahead = run.get(ROW..).unwrap_or(&[]);
    ahead.iter().take(ROW).step_by(4).for_each(|words| line(words.as_ptr().cast()));
}

/// Descriptor done (DD), in a transmit descriptor's second word.
pub(super) const TX_DONE: u64 = 1 << 32;
/// End of packet (EOP).
pub(super) const EOP: u64 = 1 << 24;
/// Insert the frame check sequence (IFCS).
pub(super) const IFCS: u64 = 1 << 25;
/// Legacy descriptor: insert a checksum (IC). Data and context descriptor: segmentation (TSE).
pub(super) const IC: u64 = 1 << 26;
/// Report status (RS).
pub(super) const RS: u64 = 1 << 27;
/// Descriptor extension (DEXT): a context or data descriptor, not a legacy one.
const DEXT: u64 = 1 << 29;
/// Insert a VLAN tag (VLE).
pub(super) const VLE: u64 = 1 << 30;
/// Interrupt delay enable (IDE).
pub(super) const IDE: u64 = 1 << 31;
/// Type of an extended descriptor (DTYP).
const TYPE: u64 = 0xf << 20;
const DATA: u64 = 1 << 20;
/// Data descriptor: insert an IP checksum (IXSM).
pub(super) const IXSM: u64 = 1 << 40;
/// Data descriptor: insert a TCP or UDP checksum (TXSM).
pub(super) const TXSM: u64 = 1 << 41;

/// Kind of a transmit descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Legacy,
    Data,
    Context,
    /// An undefined type.
    Unknown,
}

/// A copy of a transmit descriptor (SDM 3.3.3, 3.3.6 and 3.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transmitted {
    pub(super) address: u64,
    pub(super) word: u64,
}

impl Transmitted {
    #[inline(always)]
    pub(super) fn read(words: &Words) -> Transmitted {
        let word = |place: usize| u64::from_le(words[place].load(Ordering::Relaxed));
        Transmitted { address: word(0), word: word(1) }
    }

    #[inline(always)]
    pub(super) fn has(self, flags: u64) -> bool {
        self.word & flags != 0
    }

    pub(super) fn kind(self) -> Kind {
        match self.word & TYPE {
            _ if !self.has(DEXT) => Kind::Legacy,
            DATA => Kind::Data,
            0 => Kind::Context,
            _ => Kind::Unknown,
        }
    }

    /// Returns true if the descriptor holds a whole frame and requests no insertion except that of the frame check
    /// sequence.
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        self.word & (EOP | IFCS | IC | VLE) == EOP | IFCS
            && (self.word & DEXT == 0 || self.word & (TYPE | IXSM | TXSM) == DATA)
            && self.address != 0
    }

    /// Returns the length of the buffer in bytes. A buffer at address 0 is no buffer (SDM 3.3.3.1, note 3).
    #[inline(always)]
    pub(super) fn len(self) -> u32 {
        let mask = if self.has(DEXT) { 0xf_ffff } else { 0xffff };
        (self.word & mask) as u32
    }

    /// Returns the VLAN tag to insert.
    pub(super) fn special(self) -> u16 {
        (self.word >> 48) as u16
    }
}
