//! The common part of both ring formats.

use std::sync::atomic::AtomicU64;

use ringway_memory::{Kept, View};
use ringway_port::guest::{GuestMemory, Space, count_work};

use super::fault::RingFault;
use super::inflight::{InflightNote, InflightRange};

/// `VIRTQ_DESC_F_NEXT`.
pub const NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`.
pub const WRITE: u16 = 2;
/// `VIRTQ_DESC_F_INDIRECT`.
pub const INDIRECT: u16 = 4;

/// Most descriptors of one chain, direct and indirect together: the limit of QEMU and Linux, too. A ring may have more
/// descriptors.
pub const LONGEST_CHAIN: u32 = 1024;
const DESCRIPTOR_BYTES: u32 = 16;
/// The flags that decide the kind of chain that a descriptor begins. A chain of one direct descriptor has only `WRITE`
/// of these, or none.
pub const KIND: u16 = NEXT | WRITE | INDIRECT;

/// Guest physical addresses of the three parts of a ring. A packed ring has descriptors, the driver's event suppression
/// and the device's event suppression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Descriptor table (split) or descriptor ring (packed).
    pub descriptors: u64,
    /// Available ring (split) or driver event suppression (packed).
    pub driver: u64,
    /// Used ring (split) or device event suppression (packed).
    pub device: u64,
}

/// A copy of a descriptor, as the two words of a packed ring: the address, and a word that holds the length, the buffer
/// id and the flags, from the lowest bits up. For a split ring, `next` takes the place of the id.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor {
    /// Guest physical address of the buffer.
    pub address: u64,
    rest: u64,
}

impl Descriptor {
    /// Converts the two words of a split ring's descriptor: the address; length, flags and next.
    #[inline(always)]
    pub fn split(address: u64, rest: u64) -> Descriptor {
        let rest = u64::from_le(rest);
        let upper = ((rest >> 32) as u32).rotate_left(16);
        Descriptor { address: u64::from_le(address), rest: u64::from(upper) << 32 | rest & 0xffff_ffff }
    }

    /// Converts the two words of a packed ring's descriptor: the address; length, id and flags.
    #[inline(always)]
    pub fn packed(address: u64, rest: u64) -> Descriptor {
        Descriptor { address: u64::from_le(address), rest: u64::from_le(rest) }
    }

    /// Length of the buffer in bytes.
    #[inline(always)]
    pub fn len(self) -> u32 {
        self.rest as u32
    }

    /// The flags: `NEXT`, `WRITE`, `INDIRECT`, and in a packed ring also AVAIL and USED.
    #[inline(always)]
    pub fn flags(self) -> u16 {
        (self.rest >> 48) as u16
    }

    /// Compares the [`KIND`] flags with those of a single direct descriptor that the device reads (`kind` is 0) or
    /// writes (`kind` is `WRITE`). Returns the flags that differ.
    #[inline(always)]
    pub fn unlike(self, kind: u16) -> u16 {
        (self.flags() ^ kind) & KIND
    }

    /// Split ring: the index of the next descriptor. Packed ring: the buffer id.
    #[inline(always)]
    pub fn tail(self) -> u16 {
        (self.rest >> 32) as u16
    }

    /// Returns the descriptor with all flags cleared except those in `flags`.
    pub fn with_only(self, flags: u16) -> Descriptor {
        Descriptor { rest: self.rest & !(0xffff << 48 & !(u64::from(flags) << 48)), ..self }
    }
}

/// Most chains gathered at a time.
pub const RUN: usize = 256;
/// The head of a chain: its first descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// A copy of the descriptor.
    pub first: Descriptor,
    /// Split ring: the chain's id in the used ring. [`Ring::id_of`] returns the id in either format.
    pub id: u16,
}

/// A chain that was taken from the ring and has to be marked used.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// The chain's id in the used ring.
    pub id: u16,
    /// Number of ring descriptors that the chain takes, without those of indirect tables.
    pub slots: u16,
}

/// The device's side of one ring, in one of the two formats. The device keeps all positions in private memory: the
/// driver only decides how many chains are available.
pub trait Ring: Send + 'static {
    /// A position in the ring, at which a chain begins.
    type At: Copy;
    /// True if the driver's memory holds the device's position (the used index of a split ring).
    const SAYS_WHERE: bool;

    /// Reads how many chains the driver has made available.
    ///
    /// # Errors
    /// The driver's index is further ahead than the ring is long.
    fn refresh(&mut self) -> Result<(), RingFault>;

    /// Continues at the position of a predecessor that died, if `noted`, its in-flight note, agrees with the ring.
    /// Returns the chains that the predecessor took and did not mark used.
    fn take_over(&mut self, space: &mut Space<'_>, noted: InflightRange) -> Vec<Chain>;

    /// Notes the device's position in `noted` from now on, so that a successor can continue there.
    fn set_noted(&mut self, noted: Option<InflightNote>) {
        drop(noted);
    }

    /// Position of the first chain that is not yet marked used.
    fn first(&self) -> Self::At;

    /// Reads the heads of the chains from `at` on into `heads`, as of the last [`Ring::refresh`]. Returns how many were
    /// read: all chains that are available and fit. It stops early at the ring's end, and after the first chain that is
    /// not one direct descriptor for the device to read (`kind` is 0) or to write (`kind` is `WRITE`). Only the last
    /// head can therefore be of another kind.
    ///
    /// # Errors
    /// The first chain begins with a descriptor that does not exist.
    fn gather(&self, at: Self::At, kind: u16, heads: &mut [Head]) -> Result<usize, RingFault>;

    /// Prefetches the ring memory of about `chains` chains from `at` on, if any are available: for writing, if marking
    /// them used writes there.
    fn approach(&self, at: Self::At, chains: usize) {
        let _ = (at, chains);
    }

    /// Returns the head of the chain at `at`, or `None` if the driver has not made that chain available.
    ///
    /// # Errors
    /// The chain begins with a descriptor that does not exist.
    fn head(&self, at: Self::At) -> Result<Option<Head>, RingFault> {
        let mut heads = [Head::default()];
        Ok((self.gather(at, 0, &mut heads)? > 0).then_some(heads[0]))
    }

    /// Returns the direct descriptor that follows `descriptor`, whose `NEXT` flag is set. `steps` is the number of
    /// descriptors from the head at `at` to the wanted one.
    ///
    /// # Errors
    /// The next descriptor does not exist.
    fn follow(&self, at: Self::At, descriptor: Descriptor, steps: u16) -> Result<Descriptor, RingFault>;

    /// Converts the two words of an indirect table's entry.
    fn entry(&self, address: u64, rest: u64) -> Descriptor;

    /// Returns the index of the descriptor that follows entry `index` in an indirect table of `count` entries, or
    /// `None` at the end of the chain.
    ///
    /// # Errors
    /// The next descriptor does not exist.
    fn follow_indirect(&self, descriptor: Descriptor, index: u32, count: u32) -> Result<Option<u32>, RingFault>;

    /// Returns the id of a chain with this head and with `last` as its last direct descriptor.
    fn id_of(&self, head: Head, last: Descriptor) -> u16;

    /// Returns the chain that consists of this head alone.
    #[inline(always)]
    fn alone(&self, head: &Head) -> Chain {
        Chain { id: self.id_of(*head, head.first), slots: 1 }
    }

    /// Returns the position after a chain at `at` that takes `slots` ring descriptors.
    fn after(&self, at: Self::At, slots: u16) -> Self::At;

    /// Returns the position after `chains` chains of one descriptor each.
    fn past(&self, at: Self::At, chains: usize) -> Self::At;

    /// Returns true if `at` is the first slot of the ring.
    fn is_start(&self, at: Self::At) -> bool;

    /// Marks a chain used, with `len` bytes written. Chains are marked used in the order in which they became
    /// available.
    fn give_back(&mut self, chain: Chain, len: u32);

    /// Marks chains of one descriptor each used. `lens` are the bytes written to each.
    fn give_back_written(&mut self, heads: &[Head], lens: &[u32]) {
        for (head, &len) in heads.iter().zip(lens) {
            self.give_back(self.alone(head), len);
        }
    }

    /// Marks all transmit chains of a batch used. The device writes nothing to them.
    fn give_back_read(&mut self, chains: &[Chain]) {
        for &chain in chains {
            self.give_back(chain, 0);
        }
    }

    /// Makes the used chains visible to the driver.
    fn publish(&mut self);

    /// Returns true if there are available chains that the device has not taken.
    fn pending(&mut self) -> bool;

    /// Enables kicks, from the next chain on. The caller's next look at the ring comes after the driver can see the
    /// request.
    fn arm(&mut self);

    /// Disables kicks.
    fn disarm(&mut self);

    /// Returns true if the driver wants a call for the chains published since the last such question. The caller has
    /// issued a full fence.
    fn call_wanted(&mut self) -> bool;

    /// The position in the format of GET_VRING_BASE (vhost-user, "Vring state").
    fn base_of(&self, at: Self::At) -> u32;

    /// The position to continue at, in the format of GET_VRING_BASE.
    fn base(&self) -> u32 {
        self.base_of(self.first())
    }

    /// Number of descriptors of the ring.
    fn size(&self) -> u16;

    /// Estimates how many chains are available. A split ring counts chains, a packed ring descriptors. The result may
    /// be wrong: use it only as a hint.
    fn room(&mut self) -> Option<usize>;

    /// The parts of the ring that the device writes, as guest physical addresses and lengths in bytes, for the dirty
    /// log.
    fn written(&self) -> [(u64, u64); 2];

    /// Returns true if indirect descriptors were negotiated.
    fn may_indirect(&self) -> bool;
}

/// Returns the gathered heads that are of the requested `kind`: all heads, or all but the last.
#[inline(always)]
pub fn plain(heads: &[Head], kind: u16) -> &[Head] {
    match heads {
        [others @ .., last] if last.first.unlike(kind) != 0 => others,
        _ => heads,
    }
}

/// Returns the chains from the first that is not marked used up to position `until`, in the format of GET_VRING_BASE.
/// Returns `None` if no chain ends there.
pub fn chains_until<R: Ring>(ring: &R, space: &mut Space<'_>, until: u32) -> Option<Vec<Chain>> {
    let (mut at, mut chains) = (ring.first(), Vec::new());
    while ring.base_of(at) != until {
        let head = ring.head(at).ok().flatten()?;
        let chain = walk(ring, space, at, head, |_, _| Ok(())).ok()?;
        chains.push(chain);
        if chains.len() > usize::from(ring.size()) {
            return None;
        }
        at = ring.after(at, chain.slots);
    }
    Some(chains)
}

/// Walks a chain from its head, and calls `visit` with every descriptor that has a buffer, in order. Returns the chain.
///
/// # Errors
/// The chain is malformed, or `visit` returns an error.
#[inline]
pub fn walk<'m, R: Ring>(
    ring: &R,
    space: &mut Space<'m>,
    at: R::At,
    head: Head,
    mut visit: impl FnMut(&mut Space<'m>, Descriptor) -> Result<(), RingFault>,
) -> Result<Chain, RingFault> {
    let mut seen = 0;
    let mut slots = 0;
    let mut descriptor = head.first;
    loop {
        slots += 1;
        if slots > ring.size() {
            return Err(RingFault::Endless(ring.size().into()));
        }
        if descriptor.flags() & INDIRECT != 0 {
            walk_table(ring, space, descriptor, &mut seen, &mut visit)?;
        } else {
            seen += 1;
            count_work(1);
            visit(space, descriptor)?;
        }
        if seen > LONGEST_CHAIN {
            return Err(RingFault::Endless(LONGEST_CHAIN));
        }
        if descriptor.flags() & NEXT == 0 {
            return Ok(Chain { id: ring.id_of(head, descriptor), slots });
        }
        descriptor = ring.follow(at, descriptor, slots)?;
    }
}

fn walk_table<'m, R: Ring>(
    ring: &R,
    space: &mut Space<'m>,
    descriptor: Descriptor,
    seen: &mut u32,
    visit: &mut impl FnMut(&mut Space<'m>, Descriptor) -> Result<(), RingFault>,
) -> Result<(), RingFault> {
    if !ring.may_indirect() {
        return Err(RingFault::IndirectRefused);
    }
    let (address, len) = (descriptor.address, descriptor.len());
    let count = len / DESCRIPTOR_BYTES;
    if count == 0 || !len.is_multiple_of(DESCRIPTOR_BYTES) {
        return Err(RingFault::IndirectSize(len));
    }
    // The table may be unaligned or span several regions. Each entry is copied once.
    let table = space.view(address, len);
    if table.is_none() && space.pieces(address, len).is_none() {
        return Err(RingFault::BadAddress { address, len });
    }
    let mut index = 0;
    loop {
        *seen += 1;
        count_work(1);
        if *seen > LONGEST_CHAIN {
            return Err(RingFault::Endless(LONGEST_CHAIN));
        }
        let words = match table {
            Some(table) => entry_in(table, index),
            None => entry_across(space, address, index),
        };
        let Some((first, second)) = words else {
            return Err(RingFault::NextOutOfRange { next: index as u16, size: count });
        };
        let descriptor = ring.entry(first.to_le(), second.to_le());
        if descriptor.flags() & INDIRECT != 0 {
            return Err(RingFault::IndirectNested);
        }
        visit(space, descriptor)?;
        match ring.follow_indirect(descriptor, index, count)? {
            Some(next) => index = next,
            None => return Ok(()),
        }
    }
}

/// Reads an entry of an indirect table in one region.
fn entry_in(table: View<'_>, index: u32) -> Option<(u64, u64)> {
    let entry = table.sub(index as usize * DESCRIPTOR_BYTES as usize, DESCRIPTOR_BYTES as usize)?;
    Some((entry.first_word()?, entry.sub(8, 8)?.first_word()?))
}

/// Reads an entry of an indirect table that spans several regions.
#[cold]
fn entry_across(space: &Space<'_>, table: u64, index: u32) -> Option<(u64, u64)> {
    let mut bytes = [0; DESCRIPTOR_BYTES as usize];
    let at = table.checked_add(u64::from(index) * u64::from(DESCRIPTOR_BYTES))?;
    let (first, second) = space.read(at, &mut bytes).then(|| bytes.split_at(8))?;
    Some((u64::from_le_bytes(first.try_into().ok()?), u64::from_le_bytes(second.try_into().ok()?)))
}

/// Returns a descriptor table in guest memory as pairs of words, and keeps the memory mapped.
pub fn table(guest: &GuestMemory, address: u64, size: u16) -> Option<Kept<[[AtomicU64; 2]]>> {
    guest.keep(address, usize::from(size) * DESCRIPTOR_BYTES as usize, |view| Some(view.words64()?.as_chunks().0))
}
