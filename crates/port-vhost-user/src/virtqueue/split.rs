//! Split rings (virtio 1.3, 2.7).

use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use ringway_abi::suppression::SplitSuppression;
use ringway_memory::{Kept, prefetch_read};
use ringway_port::guest::{GuestMemory, Space};

use super::fault::RingFault;
use super::features::{F_EVENT_IDX, F_IN_ORDER, F_INDIRECT_DESC};
use super::inflight::InflightRange;
use super::ring::{self, Addresses, Chain, Descriptor, Head, KIND, NEXT, Ring};

/// Offsets in the available and the used ring, in 16-bit words: `flags` at 0, `idx` at 1, the entries from 2 on.
const IDX: usize = 1;
const RING: usize = 2;
/// Number of heads gathered before their kinds are checked.
const LOOKED_AT: usize = 8;

/// The device's side of a started split ring. Chains are marked used in the order in which they became available, so
/// the two indices `next` and `used` move together. They are separate because another device may have served the driver
/// before and left the two apart.
#[derive(Debug)]
pub struct Split {
    addresses: Addresses,
    descriptors: Kept<[[AtomicU64; 2]]>,
    available_ring: Kept<[AtomicU16]>,
    used_ring: Kept<[AtomicU16]>,
    /// The used entries: id and length of each.
    entries: Kept<[[AtomicU32; 2]]>,
    size: u16,
    event_idx: bool,
    in_order: bool,
    indirect: bool,
    /// Index of the next available entry that is not yet marked used.
    next: Index,
    /// The driver's `idx`, as of the last read.
    available: u16,
    /// Index of the next used entry to write.
    used: Index,
    /// Value of `used` at the last decision whether to call the driver; `None` before the first decision.
    told: Option<u16>,
    /// `untold`: entries published since the last decision whether to call. `published`: value of `used` at the last
    /// publication.
    untold: u32,
    published: Index,
    /// True if used entries were written since the last publication.
    unpublished: bool,
}

/// A 16-bit ring index in a word of 32 bits. If two 16-bit indices share a word, the compiler may read both with one
/// load. That load waits until all earlier stores have left the core (no store-to-load forwarding): measured, that took
/// half of all time.
#[derive(Clone, Copy, Debug)]
struct Index(u32);

impl Index {
    fn new(value: u16) -> Index {
        Index(value.into())
    }

    #[inline(always)]
    fn get(self) -> u16 {
        self.0 as u16
    }

    #[inline(always)]
    fn advance(&mut self, steps: usize) {
        self.0 = self.0.wrapping_add(steps as u32);
    }
}

impl Split {
    /// Starts a ring of `size` descriptors (a power of two, at most 32,768) where it is marked used; where that cannot be, at available
    /// index `base`. Returns `None`
    /// when a part of the ring is not in guest memory or not aligned as virtio 1.3, 2.7 demands.
    #[must_use]
    pub fn new(guest: &GuestMemory, addresses: Addresses, size: u16, base: u16, features: u64) -> Option<Split> {
        if !size.is_power_of_two() || size > 32_768 || !addresses.descriptors.is_multiple_of(16) {
            return None;
        }
        let event_idx = features & F_EVENT_IDX != 0;
        let words = |address, len: usize| guest.keep(address, len + 2 * usize::from(event_idx), |view| view.words16());
        let (driver, device, entries) = (addresses.driver, addresses.device, usize::from(size));
        let mut ring = Split {
            addresses,
            descriptors: ring::table(guest, addresses.descriptors, size)?,
            available_ring: words(driver, 4 + 2 * entries)?,
            used_ring: words(device, 4 + 8 * entries)?,
            entries: guest.keep(device.checked_add(4)?, 8 * entries, |view| Some(view.words32()?.as_chunks().0))?,
            size,
            event_idx,
            in_order: features & F_IN_ORDER != 0,
            indirect: features & F_INDIRECT_DESC != 0,
            next: Index::new(base),
            available: base,
            used: Index::new(base),
            told: None,
            untold: 0,
            published: Index::new(base),
            unpublished: false,
        };
        ring.used = Index::new(u16::from_le(ring.used_ring[IDX].load(Ordering::Acquire)));
        ring.published = ring.used;
        // The port serves what the used ring does not name, whatever the front end says: DPDK's virtio-user always begins at 0, and others at the
        // driver's `idx`, where nothing would be left. DPDK's and VPP's back ends go on there, too.
        let available = u16::from_le(ring.available_ring[IDX].load(Ordering::Acquire));
        if available.wrapping_sub(ring.used.get()) <= size {
            (ring.next, ring.available) = (ring.used, ring.used.get());
        }
        Some(ring)
    }

    #[inline(always)]
    fn place(&self, at: u16) -> usize {
        usize::from(at & (self.size - 1))
    }

    /// Marks `count` chains used; `count` is at most the size of the ring. For a range of these chains, `chains`
    /// returns the id of each and the bytes written to it.
    #[inline(always)]
    fn give_back_all<C: Iterator<Item = (u16, u32)>>(&mut self, count: usize, chains: impl Fn(Range<usize>) -> C) {
        let mut done = 0;
        let (before, from) = self.entries.split_at(self.place(self.used.get()));
        // First the entries up to the ring's end, then those from its beginning.
        for piece in [from, before] {
            let until = count.min(done + piece.len());
            for (entry, (chain, len)) in piece[..until - done].iter().zip(chains(done..until)) {
                put(entry, chain, len);
            }
            done = until;
        }
        self.used.advance(count);
        self.next.advance(count);
        self.unpublished |= count > 0;
    }

    fn own_wish(&self) -> SplitSuppression<'_> {
        let event = self.event_idx.then(|| &self.used_ring[RING + 4 * usize::from(self.size)]);
        SplitSuppression { flags: &self.used_ring[0], event }
    }

    fn used_bytes(&self) -> u32 {
        4 + 8 * u32::from(self.size) + if self.event_idx { 2 } else { 0 }
    }
}

impl Ring for Split {
    type At = u16;
    const SAYS_WHERE: bool = true;

    #[inline(always)]
    fn refresh(&mut self) -> Result<(), RingFault> {
        self.available = u16::from_le(self.available_ring[IDX].load(Ordering::Acquire));
        let ahead = self.available.wrapping_sub(self.next.get());
        if ahead > self.size {
            return Err(RingFault::IndexJump { ahead, size: self.size });
        }
        Ok(())
    }

    fn take_over(&mut self, space: &mut Space<'_>, noted: InflightRange) -> Vec<Chain> {
        if noted.from != self.base() || self.refresh().is_err() {
            return Vec::new();
        }
        ring::chains_until(self, space, noted.until).unwrap_or_default()
    }

    #[inline(always)]
    fn first(&self) -> u16 {
        self.next.get()
    }

    #[inline(always)]
    fn gather(&self, at: u16, kind: u16, heads: &mut [Head]) -> Result<usize, RingFault> {
        let there = usize::from(self.available.wrapping_sub(at));
        let start = RING + self.place(at);
        // Only the entries up to the ring's end are contiguous.
        let entries = self.available_ring.get(start..RING + usize::from(self.size)).unwrap_or_default();
        let (count, descriptors) = (there.min(heads.len()).min(entries.len()), &self.descriptors);
        let wanted = u64::from(kind) << 32;
        // A few heads at a time: those after a chain of another kind will be gathered again.
        let mut done = 0;
        for (entries, heads) in entries[..count].chunks(LOOKED_AT).zip(heads.chunks_mut(LOOKED_AT)) {
            let (mut unlike, mut unknown) = (0, None);
            for (step, (entry, head)) in entries.iter().zip(heads.iter_mut()).enumerate() {
                let id = u16::from_le(entry.load(Ordering::Relaxed));
                let Some(words) = descriptors.get(usize::from(id)) else {
                    unknown = Some((step, id));
                    break;
                };
                let [address, rest] = words.each_ref().map(|word| word.load(Ordering::Relaxed));
                unlike |= u64::from_le(rest) ^ wanted;
                *head = Head { first: Descriptor::split(address, rest), id };
            }
            if unlike & u64::from(KIND) << 32 != 0 {
                return Ok(done + heads.iter().take_while(|head| head.first.unlike(kind) == 0).count() + 1);
            }
            match unknown {
                None => {}
                Some((step, id)) if done + step == 0 => {
                    return Err(RingFault::HeadOutOfRange { head: id, size: self.size });
                }
                Some((step, _)) => return Ok(done + step),
            }
            done += entries.len();
        }
        // Prefetches the descriptors that the next call will read. Four descriptors share a cache line if the driver
        // uses them in order.
        let ahead = entries.len().min(there).min(2 * count);
        for entry in entries[count..ahead].iter().step_by(4) {
            let id = usize::from(u16::from_le(entry.load(Ordering::Relaxed)));
            if let Some(words) = descriptors.get(id) {
                prefetch_read(words.as_ptr().cast());
            }
        }
        Ok(count)
    }

    fn follow(&self, _at: u16, descriptor: Descriptor, _steps: u16) -> Result<Descriptor, RingFault> {
        let next = descriptor.tail();
        let words = self.descriptors.get(usize::from(next));
        words.map(read).ok_or(RingFault::NextOutOfRange { next, size: self.size.into() })
    }

    fn entry(&self, address: u64, rest: u64) -> Descriptor {
        Descriptor::split(address, rest)
    }

    fn follow_indirect(&self, descriptor: Descriptor, _index: u32, count: u32) -> Result<Option<u32>, RingFault> {
        let next = descriptor.tail();
        match descriptor.flags() & NEXT {
            0 => Ok(None),
            _ if u32::from(next) < count => Ok(Some(next.into())),
            _ => Err(RingFault::NextOutOfRange { next, size: count }),
        }
    }

    #[inline(always)]
    fn id_of(&self, head: Head, _last: Descriptor) -> u16 {
        head.id
    }

    #[inline(always)]
    fn after(&self, at: u16, _slots: u16) -> u16 {
        at.wrapping_add(1)
    }

    #[inline(always)]
    fn past(&self, at: u16, chains: usize) -> u16 {
        at.wrapping_add(chains as u16)
    }

    #[inline(always)]
    fn is_start(&self, at: u16) -> bool {
        self.place(at) == 0
    }

    #[inline(always)]
    fn give_back(&mut self, chain: Chain, len: u32) {
        put(&self.entries[self.place(self.used.get())], chain.id, len);
        self.used.advance(1);
        self.next.advance(1);
        self.unpublished = true;
    }

    #[inline(always)]
    fn give_back_written(&mut self, heads: &[Head], lens: &[u32]) {
        let each =
            |range: Range<usize>| heads[range.clone()].iter().map(|head| head.id).zip(lens[range].iter().copied());
        self.give_back_all(heads.len().min(lens.len()), each);
    }

    #[inline]
    fn give_back_read(&mut self, chains: &[Chain]) {
        match chains {
            // With VIRTIO_F_IN_ORDER, one used entry that names the last chain stands for all (2.7.9).
            [_, .., last] if self.in_order => {
                self.give_back(*last, 0);
                self.used.advance(chains.len() - 1);
                self.next.advance(chains.len() - 1);
            }
            _ => self.give_back_all(chains.len(), |range| chains[range].iter().map(|chain| (chain.id, 0))),
        }
    }

    #[inline]
    fn publish(&mut self) {
        if std::mem::take(&mut self.unpublished) {
            self.used_ring[IDX].store(self.used.get().to_le(), Ordering::Release);
            let entries = self.used.get().wrapping_sub(self.published.get());
            self.untold = self.untold.saturating_add(entries.into());
            self.published = self.used;
        }
    }

    #[inline]
    fn pending(&mut self) -> bool {
        u16::from_le(self.available_ring[IDX].load(Ordering::Acquire)) != self.next.get()
    }

    fn arm(&mut self) {
        self.own_wish().ask(self.next.get());
    }

    fn disarm(&mut self) {
        self.own_wish().decline();
    }

    #[inline]
    fn call_wanted(&mut self) -> bool {
        let new = self.used.get();
        let untold = std::mem::take(&mut self.untold);
        let Some(told) = self.told.replace(new) else { return true };
        // If more entries were published than a 16-bit index can count, the driver's event index was certainly passed,
        // unless it is the next entry.
        let old = if untold > u16::MAX.into() { new.wrapping_add(1) } else { told };
        let event = self.event_idx.then(|| &self.available_ring[RING + usize::from(self.size)]);
        SplitSuppression { flags: &self.available_ring[0], event }.is_wanted(old, new)
    }

    #[inline]
    fn base_of(&self, at: u16) -> u32 {
        at.into()
    }

    #[inline]
    fn size(&self) -> u16 {
        self.size
    }

    fn room(&mut self) -> Option<usize> {
        self.refresh().ok()?;
        Some(self.available.wrapping_sub(self.next.get()).into())
    }

    fn written(&self) -> [(u64, u64); 2] {
        [(self.addresses.device, self.used_bytes().into()), (self.addresses.device, 0)]
    }

    #[inline]
    fn may_indirect(&self) -> bool {
        self.indirect
    }
}

/// Writes a used entry, unless the entry already has these values. Where the driver uses its buffers in turn, each lap
/// writes the same values; then the cache line stays shared with the core that reads it.
#[inline(always)]
fn put([id, written]: &[AtomicU32; 2], chain: u16, len: u32) {
    for (word, value) in [(id, u32::from(chain).to_le()), (written, len.to_le())] {
        if word.load(Ordering::Relaxed) != value {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// Reads a descriptor of the table.
#[inline(always)]
fn read(words: &[AtomicU64; 2]) -> Descriptor {
    Descriptor::split(words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed))
}
