//! Where a ring is, and the meaning of its words.

use std::sync::atomic::{AtomicU64, Ordering};

use super::fault::RingFault;
use crate::copy::ROW;
use crate::guest::GuestMemory;

/// Bytes of a descriptor; one of packet split counts as two.
const BYTES: u32 = 16;
/// Most descriptors: the length registers hold multiples of 128 bytes below 1 MiB (SDM 13.4.27, RDLEN).
const MOST: u32 = (1 << 16) - 8;

/// A descriptor as the driver and we share it.
pub(super) type Words = [AtomicU64; 2];

/// A ring in guest memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    base: u64,
    count: u32,
}

impl Table {
    /// `count` descriptors at guest physical address `base`.
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

    fn bytes(&self) -> u32 {
        self.count * BYTES
    }

    /// The ring, for the length of a batch.
    #[inline]
    pub(super) fn words<'m>(&self, memory: &'m GuestMemory) -> Result<&'m [Words], RingFault> {
        let view = memory.space().view(self.base, self.bytes());
        match view.and_then(|view| view.words64()) {
            Some(words) => Ok(words.as_chunks().0),
            None => Err(RingFault::BadBase { base: self.base, bytes: self.bytes() }),
        }
    }

    /// Descriptors from `from` to `tail`.
    #[inline(always)]
    pub(super) fn ahead(&self, from: u32, tail: u32) -> u32 {
        if tail >= from { tail - from } else { tail + self.count - from }
    }

    /// The place `steps` (at most a lap) after `from`.
    #[inline(always)]
    pub(super) fn after(&self, from: u32, steps: u32) -> u32 {
        let sum = from + steps;
        if sum >= self.count { sum - self.count } else { sum }
    }

    /// That a head register is a place of the ring.
    pub(super) fn check_head(&self, head: u32) -> Result<(), RingFault> {
        if head < self.count { Ok(()) } else { Err(RingFault::HeadOutOfRange { head, count: self.count }) }
    }

    /// That a tail register is a place of the ring.
    #[inline(always)]
    pub(super) fn check_tail(&self, tail: u32) -> Result<(), RingFault> {
        if tail < self.count { Ok(()) } else { Err(RingFault::TailOutOfRange { tail, count: self.count }) }
    }
}

/// Starts to bring the descriptors behind the next row of a run near.
#[inline(always)]
pub(super) fn prefetch_run(run: &[Words], line: impl Fn(*const u8)) {
    let ahead = run.get(ROW..).unwrap_or(&[]);
    ahead.iter().take(ROW).step_by(4).for_each(|words| line(words.as_ptr().cast()));
}

/// Descriptor done, in a transmit descriptor's second word.
pub(super) const TX_DONE: u64 = 1 << 32;
/// End of packet.
pub(super) const EOP: u64 = 1 << 24;
/// Insert the frame check sequence.
pub(super) const IFCS: u64 = 1 << 25;
/// Legacy: insert a checksum. Data: a part of a segmentation (TSE). The same in a context.
pub(super) const IC: u64 = 1 << 26;
/// Report status.
pub(super) const RS: u64 = 1 << 27;
/// The descriptor is a context or data descriptor, not a legacy one.
const DEXT: u64 = 1 << 29;
/// Insert a VLAN tag.
pub(super) const VLE: u64 = 1 << 30;
/// Delay the interrupt.
pub(super) const IDE: u64 = 1 << 31;
/// What kind of extended descriptor it is.
const TYPE: u64 = 0xf << 20;
const DATA: u64 = 1 << 20;
/// Data: insert an IP checksum.
pub(super) const IXSM: u64 = 1 << 40;
/// Data: insert a TCP or UDP checksum.
pub(super) const TXSM: u64 = 1 << 41;

/// What a transmit descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Legacy,
    Data,
    Context,
    /// Of a type that there is not.
    Unknown,
}

/// A transmit descriptor, read once (SDM 3.3.3, 3.3.6 and 3.3.7).
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

    /// Whether it is a whole frame with nothing to insert but the frame check sequence.
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        self.word & (EOP | IFCS | IC | VLE) == EOP | IFCS
            && (self.word & DEXT == 0 || self.word & (TYPE | IXSM | TXSM) == DATA)
            && self.address != 0
    }

    /// Bytes of its buffer. A buffer at address 0 is none (SDM 3.3.3.1, note 3).
    #[inline(always)]
    pub(super) fn len(self) -> u32 {
        let mask = if self.has(DEXT) { 0xf_ffff } else { 0xffff };
        (self.word & mask) as u32
    }

    /// The VLAN tag to insert.
    pub(super) fn special(self) -> u16 {
        (self.word >> 48) as u16
    }
}
