//! The common part of both ring formats.

use std::sync::atomic::AtomicU64;

use ringway_memory::{Kept, View};

use super::fault::RingFault;
use crate::guest::{GuestMemory, Space, count_work};
use crate::vhost_user::{Noted, Taken};

/// VIRTQ_DESC_F_NEXT.
pub const NEXT: u16 = 1;
/// VIRTQ_DESC_F_WRITE.
pub const WRITE: u16 = 2;
/// VIRTQ_DESC_F_INDIRECT.
pub const INDIRECT: u16 = 4;

/// Most descriptors of one chain, direct and indirect: what QEMU and Linux take, too. A ring may have more.
pub const LONGEST_CHAIN: u32 = 1024;
const DESCRIPTOR_BYTES: u32 = 16;
/// What says what kind of chain begins with a descriptor: one that is alone and direct has `WRITE` or none of them.
pub const KIND: u16 = NEXT | WRITE | INDIRECT;

/// Where a ring's three parts are, as guest physical addresses. Packed: descriptors, driver's and device's event suppression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Descriptor table or ring.
    pub descriptors: u64,
    /// Available ring, or the driver's event suppression.
    pub driver: u64,
    /// Used ring, or the device's event suppression.
    pub device: u64,
}

/// A descriptor, read once, as the two words of a packed ring: the second holds length, buffer's id and flags, from the
/// lowest bits up. Of a split ring, the descriptor that follows is in the place of the id.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor {
    /// Guest physical address.
    pub address: u64,
    rest: u64,
}

impl Descriptor {
    /// From the two words of a split ring's table: address; length, flags, next.
    #[inline(always)]
    pub fn split(address: u64, rest: u64) -> Descriptor {
        let rest = u64::from_le(rest);
        let upper = ((rest >> 32) as u32).rotate_left(16);
        Descriptor { address: u64::from_le(address), rest: u64::from(upper) << 32 | rest & 0xffff_ffff }
    }

    /// From the two words of a packed ring: address; length, id, flags.
    #[inline(always)]
    pub fn packed(address: u64, rest: u64) -> Descriptor {
        Descriptor { address: u64::from_le(address), rest: u64::from_le(rest) }
    }

    /// Bytes.
    #[inline(always)]
    pub fn len(self) -> u32 {
        self.rest as u32
    }

    /// `NEXT`, `WRITE`, `INDIRECT`, and in a packed ring more.
    #[inline(always)]
    pub fn flags(self) -> u16 {
        (self.rest >> 48) as u16
    }

    /// What of its flags is not as it is of a direct descriptor that is alone, to be read (`kind` is 0) or written (`WRITE`).
    #[inline(always)]
    pub fn unlike(self, kind: u16) -> u16 {
        (self.flags() ^ kind) & KIND
    }

    /// Split: the descriptor that follows. Packed: the buffer's id.
    #[inline(always)]
    pub fn tail(self) -> u16 {
        (self.rest >> 32) as u16
    }

    /// The same with no other flags than these.
    pub fn with_only(self, flags: u16) -> Descriptor {
        Descriptor { rest: self.rest & !(0xffff << 48 & !(u64::from(flags) << 48)), ..self }
    }
}

/// Most chains looked at in one go.
pub const RUN: usize = 256;
/// The first descriptor of a chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// It.
    pub first: Descriptor,
    /// What the used ring of a split ring calls the chain: see [`Ring::id_of`].
    pub id: u16,
}

/// A chain that was taken, to be given back.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// What the used ring calls it.
    pub id: u16,
    /// Descriptors of the ring (not of an indirect table) that it takes.
    pub slots: u16,
}

/// One ring in one of the formats. Positions are the device's own: nothing that the driver writes moves them, except
/// that chains become available.
pub trait Ring: Send + 'static {
    /// A chain's place.
    type At: Copy;
    /// Whether it says itself, in the driver's memory, how far it is.
    const SAYS_WHERE: bool;

    /// Looks how far the driver has come.
    ///
    /// # Errors
    /// It has come further than it can.
    fn refresh(&mut self) -> Result<(), RingFault>;

    /// Goes on where a predecessor was that died, if what it noted is of this ring as it is now. Returns the chains that it
    /// took and did not give back.
    fn take_over(&mut self, space: &mut Space<'_>, noted: Noted) -> Vec<Chain>;

    /// From now on notes where it is, so that a successor knows.
    fn set_noted(&mut self, noted: Option<Taken>) {
        drop(noted);
    }

    /// The first chain that was not given back yet.
    fn first(&self) -> Self::At;

    /// The first descriptors of the chains from `at` on, as of the last [`Ring::refresh`]: as many as there are and as fit.
    /// Fewer at the ring's end, and where a chain is not one direct descriptor, to be read (`kind` is 0) or written
    /// (`WRITE`): it is then the last of them, and the only one that is not.
    ///
    /// # Errors
    /// There is no such descriptor as the first chain begins with.
    fn gather(&self, at: Self::At, kind: u16, heads: &mut [Head]) -> Result<usize, RingFault>;

    /// Starts to bring near what about so many chains from `at` on are in, if there are any, where giving them back writes there.
    fn approach(&self, at: Self::At, chains: usize) {
        let _ = (at, chains);
    }

    /// The first descriptor of the chain at `at`; `None` when the driver has not come so far.
    ///
    /// # Errors
    /// There is no such descriptor.
    fn head(&self, at: Self::At) -> Result<Option<Head>, RingFault> {
        let mut heads = [Head::default()];
        Ok((self.gather(at, 0, &mut heads)? > 0).then_some(heads[0]))
    }

    /// The direct descriptor after `descriptor`, which has `NEXT`. `steps` is how many were followed before.
    ///
    /// # Errors
    /// There is no such descriptor.
    fn follow(&self, at: Self::At, descriptor: Descriptor, steps: u16) -> Result<Descriptor, RingFault>;

    /// An entry of an indirect table.
    fn entry(&self, address: u64, rest: u64) -> Descriptor;

    /// The descriptor of an indirect table after number `index`; `None` at its end.
    ///
    /// # Errors
    /// There is no such descriptor.
    fn follow_indirect(&self, descriptor: Descriptor, index: u32, count: u32) -> Result<Option<u32>, RingFault>;

    /// The id of a chain whose last direct descriptor is `last`.
    fn id_of(&self, head: Head, last: Descriptor) -> u16;

    /// The chain that has only its head.
    #[inline(always)]
    fn alone(&self, head: &Head) -> Chain {
        Chain { id: self.id_of(*head, head.first), slots: 1 }
    }

    /// The place after a chain.
    fn after(&self, at: Self::At, slots: u16) -> Self::At;

    /// The place after so many chains of one descriptor.
    fn past(&self, at: Self::At, chains: usize) -> Self::At;

    /// Whether it is the first place of the ring.
    fn is_start(&self, at: Self::At) -> bool;

    /// Gives a chain back with `len` bytes written. Chains are given back in the order in which they came.
    fn give_back(&mut self, chain: Chain, len: u32);

    /// Gives back chains of one descriptor each, with as many bytes written as `lens` says.
    fn give_back_written(&mut self, heads: &[Head], lens: &[u32]) {
        for (head, &len) in heads.iter().zip(lens) {
            self.give_back(self.alone(head), len);
        }
    }

    /// Gives back all of a batch's transmit chains, of which nothing is written.
    fn give_back_read(&mut self, chains: &[Chain]) {
        for &chain in chains {
            self.give_back(chain, 0);
        }
    }

    /// Makes what was given back visible to the driver.
    fn publish(&mut self);

    /// Whether there is anything that was not taken.
    fn pending(&mut self) -> bool;

    /// Asks for a kick from the next chain on, visibly for the driver before what the caller looks at next.
    fn arm(&mut self);

    /// Asks for no kicks.
    fn disarm(&mut self);

    /// Whether the driver wants to be called for what was published since it was last asked. The caller has fenced.
    fn call_wanted(&mut self) -> bool;

    /// A place, as GET_VRING_BASE states it.
    fn base_of(&self, at: Self::At) -> u32;

    /// Where to go on.
    fn base(&self) -> u32 {
        self.base_of(self.first())
    }

    /// Descriptors of the ring.
    fn size(&self) -> u16;

    /// About how many chains are available: split rings count chains, packed ones their descriptors. Whoever asks must not build
    /// on it.
    fn room(&mut self) -> Option<usize>;

    /// The parts that the device writes, as guest physical addresses and lengths: for the dirty log.
    fn written(&self) -> [(u64, u64); 2];

    /// Whether indirect tables were negotiated.
    fn may_indirect(&self) -> bool;
}

/// Those of gathered heads that are of the `kind` asked for: all, or all but the last.
#[inline(always)]
pub fn plain(heads: &[Head], kind: u16) -> &[Head] {
    match heads {
        [others @ .., last] if last.first.unlike(kind) != 0 => others,
        _ => heads,
    }
}

/// The chains from the first that was not given back up to the place that is `until`, if that is one.
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

/// Walks a chain from its head: `visit` sees every descriptor that holds data, in order. Returns the chain.
///
/// # Errors
/// The chain is not as it must be, or `visit` says so.
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
    // A table at an odd address, or in several regions, is read all the same: a copy of each entry, once.
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

/// An entry of an indirect table.
fn entry_in(table: View<'_>, index: u32) -> Option<(u64, u64)> {
    let entry = table.sub(index as usize * DESCRIPTOR_BYTES as usize, DESCRIPTOR_BYTES as usize)?;
    Some((entry.first_word()?, entry.sub(8, 8)?.first_word()?))
}

/// An entry of an indirect table that lies in several regions.
#[cold]
fn entry_across(space: &Space<'_>, table: u64, index: u32) -> Option<(u64, u64)> {
    let mut bytes = [0; DESCRIPTOR_BYTES as usize];
    let at = table.checked_add(u64::from(index) * u64::from(DESCRIPTOR_BYTES))?;
    let (first, second) = space.read(at, &mut bytes).then(|| bytes.split_at(8))?;
    Some((u64::from_le_bytes(first.try_into().ok()?), u64::from_le_bytes(second.try_into().ok()?)))
}

/// A table of descriptors in memory, as pairs of words.
pub fn table(guest: &GuestMemory, address: u64, size: u16) -> Option<Kept<[[AtomicU64; 2]]>> {
    guest.keep(address, usize::from(size) * DESCRIPTOR_BYTES as usize, |view| Some(view.words64()?.as_chunks().0))
}
