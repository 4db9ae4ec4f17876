//! Packed rings (virtio 1.3, 2.8).

use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use ringway_abi::suppression::PackedSuppression;
use ringway_memory::{Kept, prefetch_read, prefetch_write};
use ringway_port::guest::{GuestMemory, Space};

use super::fault::RingFault;
use super::features::{F_EVENT_IDX, F_IN_ORDER, F_INDIRECT_DESC};
use super::inflight::{InflightNote, InflightRange};
use super::ring::{self, Addresses, Chain, Descriptor, Head, KIND, Ring, WRITE};

/// `VIRTQ_DESC_F_AVAIL`.
const AVAIL: u16 = 1 << 7;
/// `VIRTQ_DESC_F_USED`.
const USED: u16 = 1 << 15;
/// Offsets of the words of an event suppression structure.
const OFFSET: usize = 0;
const FLAGS: usize = 1;
const DESCRIPTORS_PER_LINE: usize = 4;
/// The bit of the wrap counter, in the offset word of an event suppression structure and in both halves of
/// GET_VRING_BASE.
const WRAP: u16 = 1 << 15;

/// A position in the ring: the slot, and the wrap counter in the top bit. The wrap counter starts as true. Both are in
/// one word, so that no load of one waits for a store of the other (see `split::Index`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(u32);

impl Position {
    /// Converts a half of GET_VRING_BASE.
    fn from_base(half: u16) -> Position {
        Position::new((half & !WRAP).into(), half & WRAP != 0)
    }

    fn to_base(self) -> u16 {
        self.0 as u16 | if self.wrap() { WRAP } else { 0 }
    }

    #[inline(always)]
    fn new(slot: u32, wrap: bool) -> Position {
        Position(slot | u32::from(wrap) << 31)
    }

    #[inline(always)]
    fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    #[inline(always)]
    fn wrap(self) -> bool {
        self.0 >> 31 != 0
    }
}

/// The device's side of a started packed ring.
#[derive(Debug)]
pub struct Packed {
    addresses: Addresses,
    descriptors: Kept<[[AtomicU64; 2]]>,
    /// The driver's event suppression: offset and flags.
    driver: Kept<[AtomicU16]>,
    /// The device's event suppression: offset and flags.
    device: Kept<[AtomicU16]>,
    size: u16,
    event_idx: bool,
    in_order: bool,
    indirect: bool,
    /// Position of the first chain that is not yet marked used.
    next: Position,
    /// `considered`: true after the first decision whether to call the driver. `untold`: descriptors marked used since
    /// the last decision.
    considered: bool,
    untold: u32,
    /// The first descriptor marked used since the last publication, which is written last: its slot, and its second
    /// word.
    held: Option<(usize, u64)>,
    /// Where the device notes its position and the word in `held`.
    noted: Option<InflightNote>,
}

impl Packed {
    /// Starts a ring of `size` descriptors (1 to 32,768) at `base` (vhost-user, "Vring state": the available position
    /// in the lower half, the used position in the upper). Returns `None` when a part of the ring is not in guest
    /// memory or not aligned.
    #[must_use]
    pub fn new(guest: &GuestMemory, addresses: Addresses, size: u16, base: u32, features: u64) -> Option<Packed> {
        // This device marks all chains that it has taken as used. Another device may have left chains between the two
        // positions: the ring starts at the first of these, so that their frames are sent again.
        let (available, used) = (Position::from_base(base as u16), Position::from_base((base >> 16) as u16));
        let next = if base >> 16 == 0 { available } else { used };
        if size == 0 || size > 32_768 || next.slot() >= size.into() || !addresses.descriptors.is_multiple_of(16) {
            return None;
        }
        let events = |address| guest.keep(address, 4, |view| view.words16());
        Some(Packed {
            addresses,
            descriptors: ring::table(guest, addresses.descriptors, size)?,
            driver: events(addresses.driver)?,
            device: events(addresses.device)?,
            size,
            event_idx: features & F_EVENT_IDX != 0,
            in_order: features & F_IN_ORDER != 0,
            indirect: features & F_INDIRECT_DESC != 0,
            next,
            considered: false,
            untold: 0,
            held: None,
            noted: None,
        })
    }

    /// Flags of a used descriptor: AVAIL and USED both equal the wrap counter (2.8.1). WRITE if `len` bytes were
    /// written.
    #[inline(always)]
    fn used_flags(wrap: bool, len: u32) -> u16 {
        let lap = if wrap { AVAIL | USED } else { 0 };
        if len > 0 { lap | WRITE } else { lap }
    }

    /// Flags of an available descriptor: AVAIL equals the wrap counter, USED its inverse (2.8.1).
    #[inline(always)]
    fn available_flags(wrap: bool) -> u16 {
        if wrap { AVAIL } else { USED }
    }

    #[inline(always)]
    fn is_available(flags: u16, wrap: bool) -> bool {
        flags & (AVAIL | USED) == Self::available_flags(wrap)
    }

    #[inline(always)]
    fn advance(&self, at: Position, slots: u16) -> Position {
        let sum = at.slot() as u32 + u32::from(slots);
        let size = u32::from(self.size);
        if sum >= size { Position::new(sum - size, !at.wrap()) } else { Position::new(sum, at.wrap()) }
    }

    #[inline(always)]
    fn pass_by(&mut self, slots: u16) {
        self.next = self.advance(self.next, slots);
        self.untold = self.untold.saturating_add(slots.into());
    }

    /// Returns the notification request in one side's event suppression structure.
    fn wish<'m>(&self, area: &'m [AtomicU16]) -> PackedSuppression<'m> {
        PackedSuppression { place: &area[OFFSET], flags: &area[FLAGS], event_idx: self.event_idx }
    }

    #[inline(always)]
    fn used_word(wrap: bool, id: u16, len: u32) -> u64 {
        (u64::from(len) | u64::from(id) << 32 | u64::from(Self::used_flags(wrap, len)) << 48).to_le()
    }

    /// Writes a used descriptor. Holds back the first since the last publication: only its word makes the others
    /// visible.
    #[inline(always)]
    fn write_used(&mut self, id: u16, len: u32) {
        let word = Self::used_word(self.next.wrap(), id, len);
        if self.held.is_none() {
            self.held = Some((self.next.slot(), word));
            if let Some(noted) = &self.noted {
                noted.hold(word);
            }
        } else {
            self.descriptors[self.next.slot()][1].store(word, Ordering::Release);
        }
    }

    /// Marks `count` chains of one descriptor each used; `count` is at most the size of the ring. The device has
    /// written bytes to all of them (`written`) or to none. For a range of these chains, `chains` returns the id of
    /// each and the bytes written to it.
    #[inline(always)]
    fn give_back_all<C: Iterator<Item = (u16, u32)>>(
        &mut self,
        count: usize,
        chains: impl Fn(Range<usize>) -> C,
        written: bool,
    ) {
        let mut done = 0;
        if self.held.is_none()
            && count > 0
            && let Some((id, len)) = chains(0..1).next()
        {
            self.write_used(id, len);
            self.pass_by(1);
            done = 1;
        }
        // First the descriptors up to the ring's end, then those from its beginning, with the inverted wrap counter.
        while done < count {
            let piece = &self.descriptors[self.next.slot()..];
            let until = count.min(done + piece.len());
            let flags = u64::from(Self::used_flags(self.next.wrap(), written.into())) << 48;
            for (words, (id, len)) in piece.iter().zip(chains(done..until)) {
                words[1].store((u64::from(len) | u64::from(id) << 32 | flags).to_le(), Ordering::Release);
            }
            self.pass_by((until - done) as u16);
            done = until;
        }
    }
}

/// Returns the flags of a descriptor.
fn flags_of(words: &[AtomicU64; 2]) -> u16 {
    (u64::from_le(words[1].load(Ordering::Acquire)) >> 48) as u16
}

/// Returns true if a descriptor was marked used in the lap of this wrap counter and is not available again.
fn is_used(words: &[AtomicU64; 2], wrap: bool) -> bool {
    flags_of(words) & (AVAIL | USED) == Packed::used_flags(wrap, 0)
}

/// Taking over from a predecessor.
impl Packed {
    fn words(&self, at: Position) -> &[AtomicU64; 2] {
        &self.descriptors[at.slot()]
    }

    fn chain_at(&self, space: &mut Space<'_>, at: Position) -> Option<Chain> {
        let head = self.head(at).ok().flatten()?;
        ring::walk(self, space, at, head, |_, _| Ok(())).ok()
    }

    /// Returns the chain at `at`, which was marked used in this lap before the driver could see it. The first
    /// descriptor of the chain no longer has its NEXT flag. If the chain has further descriptors, the last of them has
    /// the chain's id (2.8.6).
    fn given_back_at(&self, space: &mut Space<'_>, at: Position) -> Chain {
        let id = (u64::from_le(self.words(at)[1].load(Ordering::Acquire)) >> 32) as u16;
        let others = self.chain_at(space, self.advance(at, 1)).filter(|others| others.id == id);
        Chain { id, slots: 1 + others.map_or(0, |others| others.slots) }
    }

    /// Advances `next` by `slots` descriptors, but not beyond `end`: the contents of the ring may claim more
    /// descriptors than it has.
    fn go_on(&mut self, slots: u16, end: Position) {
        for _ in 0..slots {
            if self.next != end {
                self.next = self.advance(self.next, 1);
            }
        }
    }

    /// Skips used descriptors at `next`. Another device marked them used, so the driver may have seen them.
    fn pass_by_what_is_given_back(&mut self, space: &mut Space<'_>) {
        let end = self.advance(self.next, self.size);
        while self.next != end && is_used(self.words(self.next), self.next.wrap()) {
            // A driver reuses an id as soon as it has seen the chain used. Only in a ring without indirect descriptors,
            // where chains have several, can the following descriptors belong to this chain.
            let slots = if self.indirect { 1 } else { self.given_back_at(space, self.next).slots };
            self.go_on(slots, end);
        }
    }

    /// Returns the chains from `next` up to `until`, and the chains after these as far as some are marked used. The
    /// driver can have seen only the first of them as used.
    fn half_given_back(&self, space: &mut Space<'_>, until: Position) -> Vec<Chain> {
        let (mut at, mut chains, mut slots, mut last) = (self.next, Vec::new(), 0, None);
        loop {
            if at == until {
                last = Some(chains.len());
            }
            let is_given_back = is_used(self.words(at), at.wrap());
            let chain = if is_given_back { Some(self.given_back_at(space, at)) } else { self.chain_at(space, at) };
            let Some(chain) = chain else { break };
            slots += u32::from(chain.slots);
            if slots > self.size.into() {
                break;
            }
            chains.push(chain);
            if is_given_back && last.is_some() {
                last = Some(chains.len());
            }
            at = self.advance(at, chain.slots);
        }
        // If no chain ends at `until`, the note does not belong to this ring.
        chains.truncate(last.unwrap_or(0));
        chains
    }
}

impl Ring for Packed {
    type At = Position;
    const SAYS_WHERE: bool = false;

    #[inline]
    fn refresh(&mut self) -> Result<(), RingFault> {
        Ok(())
    }

    /// The driver sees used descriptors only when the first of a batch is written, which happens last. Until then, the
    /// note's `held` is the word that has to be written there. When the descriptors after the first are written, the
    /// note's `until` becomes the position after them.
    ///
    /// Meanwhile another device may have marked chains used anywhere. QEMU (7.2) discards what a driver sends while
    /// there is no back end, starting at the last ring position it knows. Chains that were not taken before then are
    /// discarded, too.
    fn take_over(&mut self, space: &mut Space<'_>, noted: InflightRange) -> Vec<Chain> {
        let places = [noted.from, noted.until].map(|place| Position::from_base(place as u16));
        let [from, until] = places;
        // A driver clears a ring before it uses it. USED is set in descriptors that the device used in the first lap,
        // and in those that the driver made available in the second. A descriptor used in the second lap has neither
        // flag, but an address.
        let is_served = self.descriptors.iter().any(|words| match flags_of(words) & (AVAIL | USED) {
            0 => words[0].load(Ordering::Relaxed) != 0,
            flags => flags & USED != 0,
        });
        if places.iter().any(|place| place.slot() >= self.size.into()) || (noted.from != self.base() && !is_served) {
            return Vec::new();
        }
        self.next = from;
        // The descriptor at `from` was available when it was taken.
        let is_available = Self::is_available(flags_of(self.words(from)), from.wrap());
        if from != until && !is_available {
            self.next = until;
        } else if noted.held != 0 {
            // Both the frames after the first and the first frame itself have been written to their buffers.
            self.next = until;
            if from == until {
                let end = self.advance(from, self.size);
                let first = self.chain_at(space, from);
                self.go_on(first.map_or(1, |first| first.slots), end);
                while self.next != end && is_used(self.words(self.next), self.next.wrap()) {
                    let slots = self.given_back_at(space, self.next).slots;
                    self.go_on(slots, end);
                }
            }
            self.words(from)[1].store(noted.held, Ordering::Release);
        } else if from != until {
            return self.half_given_back(space, until);
        }
        self.pass_by_what_is_given_back(space);
        self.half_given_back(space, self.next)
    }

    fn set_noted(&mut self, noted: Option<InflightNote>) {
        self.noted = noted;
    }

    #[inline]
    fn first(&self) -> Position {
        self.next
    }

    #[inline(always)]
    fn gather(&self, at: Position, kind: u16, heads: &mut [Head]) -> Result<usize, RingFault> {
        // Only the descriptors up to the ring's end are contiguous. All of them are in one lap.
        let descriptors = self.descriptors.get(at.slot()..).unwrap_or_default();
        let count = heads.len().min(descriptors.len());
        let (descriptors, heads) = (&descriptors[..count], &mut heads[..count]);
        let lap = Self::available_flags(at.wrap());
        let odd = |flags: u16| (flags ^ (lap | kind)) & (AVAIL | USED | KIND);
        // Checks a cache line of descriptors at a time. From the first line in which a descriptor is not available or
        // of another kind, checks one by one.
        let mut done = 0;
        for (words, heads) in descriptors.as_chunks::<DESCRIPTORS_PER_LINE>().0.iter().zip(heads.as_chunks_mut().0) {
            let heads: &mut [Head; DESCRIPTORS_PER_LINE] = heads;
            let rests = words.each_ref().map(|words| u64::from_le(words[1].load(Ordering::Acquire)));
            if rests.iter().fold(0, |all, rest| all | odd((rest >> 48) as u16)) != 0 {
                break;
            }
            for ((head, words), rest) in heads.iter_mut().zip(words).zip(rests) {
                head.first = Descriptor::packed(words[0].load(Ordering::Relaxed), rest.to_le());
            }
            done += DESCRIPTORS_PER_LINE;
        }
        for (words, head) in descriptors[done..].iter().zip(&mut heads[done..]) {
            let rest = words[1].load(Ordering::Acquire);
            let first = Descriptor::packed(words[0].load(Ordering::Relaxed), rest);
            let odd = odd(first.flags());
            if odd & !KIND != 0 {
                return Ok(done);
            }
            head.first = first;
            done += 1;
            if odd != 0 {
                return Ok(done);
            }
        }
        Ok(count)
    }

    /// Without a prefetch for writing, a line is fetched once for reading and again for writing. Reads one after the
    /// other also leave few fetches in flight at a time.
    #[inline]
    fn approach(&self, at: Position, chains: usize) {
        let (before, from) = self.descriptors.split_at(at.slot());
        if !from.first().is_some_and(|words| Self::is_available(flags_of(words), at.wrap())) {
            return;
        }
        let near = from.len().min(chains);
        let others = &before[..before.len().min(chains - near)];
        for piece in [&from[..near], others] {
            let (lines, last) = piece.as_chunks::<DESCRIPTORS_PER_LINE>();
            for words in lines.iter().map(|line| &line[0]).chain(last.first()) {
                match self.in_order {
                    // With VIRTIO_F_IN_ORDER one used descriptor stands for all, so most lines are only read.
                    true => prefetch_read(words.as_ptr().cast()),
                    false => prefetch_write(words.as_ptr().cast_mut().cast()),
                }
            }
        }
    }

    fn follow(&self, at: Position, _descriptor: Descriptor, steps: u16) -> Result<Descriptor, RingFault> {
        // The descriptors of a chain are contiguous and became available with the first (2.8.6).
        let words = &self.descriptors[self.advance(at, steps).slot()];
        Ok(Descriptor::packed(words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)))
    }

    fn entry(&self, address: u64, rest: u64) -> Descriptor {
        let entry = Descriptor::packed(address, rest);
        // Of the flags in an indirect table only WRITE has a meaning (2.8.7).
        entry.with_only(WRITE)
    }

    fn follow_indirect(&self, _descriptor: Descriptor, index: u32, count: u32) -> Result<Option<u32>, RingFault> {
        Ok((index + 1 < count).then_some(index + 1))
    }

    #[inline]
    fn id_of(&self, _head: Head, last: Descriptor) -> u16 {
        last.tail()
    }

    #[inline(always)]
    fn after(&self, at: Position, slots: u16) -> Position {
        self.advance(at, slots)
    }

    #[inline(always)]
    fn past(&self, at: Position, chains: usize) -> Position {
        self.advance(at, chains as u16)
    }

    #[inline(always)]
    fn is_start(&self, at: Position) -> bool {
        at.slot() == 0
    }

    #[inline(always)]
    fn give_back(&mut self, chain: Chain, len: u32) {
        self.write_used(chain.id, len);
        self.pass_by(chain.slots);
    }

    #[inline]
    fn give_back_read(&mut self, chains: &[Chain]) {
        match chains {
            // With VIRTIO_F_IN_ORDER, one used descriptor that names the last chain stands for all (2.8.9).
            [_, .., last] if self.in_order => {
                self.write_used(last.id, 0);
                chains.iter().for_each(|chain| self.pass_by(chain.slots));
            }
            // A fold does not stop at the first mismatch, so that the compiler can check several chains at once.
            _ if chains.iter().fold(true, |all, chain| all & (chain.slots == 1)) => {
                let each = |range: Range<usize>| chains[range].iter().map(|chain| (chain.id, 0));
                self.give_back_all(chains.len(), each, false);
            }
            _ => chains.iter().for_each(|&chain| self.give_back(chain, 0)),
        }
    }

    #[inline(always)]
    fn give_back_written(&mut self, heads: &[Head], lens: &[u32]) {
        let each = |range: Range<usize>| {
            heads[range.clone()].iter().map(|head| head.first.tail()).zip(lens[range].iter().copied())
        };
        self.give_back_all(heads.len().min(lens.len()), each, true);
    }

    #[inline]
    fn publish(&mut self) {
        let Some((slot, word)) = self.held.take() else { return };
        let Some(noted) = &self.noted else {
            self.descriptors[slot][1].store(word, Ordering::Release);
            return;
        };
        let (from, until) = (noted.noted().map_or(0, |noted| noted.from), self.base());
        // This order matters: see `take_over`.
        noted.note(from, until);
        self.descriptors[slot][1].store(word, Ordering::Release);
        noted.hold(0);
        noted.note(until, until);
    }

    #[inline]
    fn pending(&mut self) -> bool {
        let rest = u64::from_le(self.descriptors[self.next.slot()][1].load(Ordering::Acquire));
        Self::is_available((rest >> 48) as u16, self.next.wrap())
    }

    fn arm(&mut self) {
        self.wish(&self.device).ask(self.next.to_base());
    }

    fn disarm(&mut self) {
        self.wish(&self.device).decline();
    }

    #[inline]
    fn call_wanted(&mut self) -> bool {
        let passed = std::mem::take(&mut self.untold);
        if !std::mem::replace(&mut self.considered, true) {
            return true;
        }
        self.wish(&self.driver).is_wanted(passed, self.next.to_base(), self.size)
    }

    #[inline]
    fn base_of(&self, at: Position) -> u32 {
        let place = u32::from(at.to_base());
        place << 16 | place
    }

    #[inline]
    fn size(&self) -> u16 {
        self.size
    }

    /// A driver makes descriptors available in order, so binary search finds the last. The search first doubles from
    /// the current position, because callers mostly have few chains available.
    fn room(&mut self) -> Option<usize> {
        let size = u32::from(self.size);
        let there = |count: u32| {
            let at = self.advance(self.next, (count - 1) as u16);
            let rest = u64::from_le(self.descriptors[at.slot()][1].load(Ordering::Acquire));
            Self::is_available((rest >> 48) as u16, at.wrap())
        };
        let (mut least, mut beyond) = (0, 1);
        while beyond <= size && there(beyond) {
            (least, beyond) = (beyond, 2 * beyond);
        }
        beyond = beyond.min(size + 1);
        while beyond - least > 1 {
            let middle = u32::midpoint(least, beyond);
            if there(middle) { least = middle } else { beyond = middle }
        }
        Some(least as usize)
    }

    fn written(&self) -> [(u64, u64); 2] {
        [(self.addresses.descriptors, 16 * u64::from(self.size)), (self.addresses.device, 4)]
    }

    #[inline]
    fn may_indirect(&self) -> bool {
        self.indirect
    }
}
