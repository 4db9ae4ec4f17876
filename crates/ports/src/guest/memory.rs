//! All regions of a guest's memory, sorted by address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_memory::{Kept, View, losses};

use super::region::Region;
use super::work::count_work;

/// A guest's memory table: immutable, replaced as a whole. Every lookup is a binary search, so that what a client's visit costs
/// does not grow with the number of its regions.
#[derive(Debug, Default)]
pub struct GuestMemory {
    /// By guest physical address.
    regions: Vec<Arc<Region>>,
    /// Of each region its first address, and where the run of adjacent regions ends that it is in.
    spans: Box<[Span]>,
    /// Places in `regions`, by address in the front end.
    by_user: Box<[u16]>,
    /// The place of the largest region: the first lookup of a batch tries this one.
    largest: usize,
    /// How many mappings of this process were lost when this table was looked through for lost ones; the lowest bit: one was.
    loss: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    run_end: u64,
}

impl GuestMemory {
    /// A table of these regions. They do not overlap: the session has checked that.
    #[must_use]
    pub fn new(mut regions: Vec<Arc<Region>>) -> GuestMemory {
        regions.sort_by_key(|region| region.guest());
        let mut by_user: Box<[u16]> = (0..).take(regions.len()).collect();
        by_user.sort_by_key(|&place| regions[usize::from(place)].user());
        let largest = (0..regions.len()).max_by_key(|&place| regions[place].size()).unwrap_or(0);
        let mut spans: Box<[Span]> =
            regions.iter().map(|region| Span { start: region.guest(), run_end: end(region) }).collect();
        let mut next: Option<Span> = None;
        for span in spans.iter_mut().rev() {
            if let Some(next) = next
                && span.run_end == next.start
            {
                span.run_end = next.run_end;
            }
            next = Some(*span);
        }
        GuestMemory { regions, spans, by_user, largest, loss: AtomicU64::new(0) }
    }

    /// The regions, by guest physical address.
    #[must_use]
    pub fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// Whether a page of any region could not be had. The regions are looked through only after some mapping of this process was
    /// lost.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let (all, seen) = (losses(), self.loss.load(Ordering::Relaxed));
        if seen >> 1 == all { seen & 1 != 0 } else { self.look_for_loss(all) }
    }

    #[cold]
    #[inline(never)]
    fn look_for_loss(&self, all: u64) -> bool {
        count_work(self.regions.len());
        let lost = self.regions.iter().any(|region| region.is_lost());
        self.loss.store(all << 1 | u64::from(lost), Ordering::Relaxed);
        lost
    }

    /// Ways to get at it for the length of a batch.
    #[inline]
    #[must_use]
    pub fn space(&self) -> Space<'_> {
        let (guest, view) = match self.regions.get(self.largest) {
            Some(region) => (region.guest(), region.whole()),
            // An address that nothing is at, not even nothing.
            None => (u64::MAX, View::private(&mut [])),
        };
        Space { memory: self, guest, view }
    }

    /// The last region that begins at or before a guest physical address.
    fn place(&self, address: u64) -> Option<usize> {
        let begins = |span: &Span| {
            count_work(1);
            span.start <= address
        };
        self.spans.partition_point(begins).checked_sub(1)
    }

    fn find(&self, address: u64, len: usize) -> Option<(&Region, View<'_>)> {
        let region = self.regions.get(self.place(address)?)?;
        Some((region, inside(region, region.guest(), address, len)?))
    }

    /// `len` bytes at the guest physical address; `None` unless they are all in one region.
    #[must_use]
    pub fn view(&self, address: u64, len: usize) -> Option<View<'_>> {
        self.find(address, len).map(|(_, view)| view)
    }

    /// What `find` makes of `len` bytes at the guest physical address, kept as long as it is needed; `None` unless they are all
    /// in one region.
    pub fn keep<T: ?Sized + 'static>(
        &self,
        address: u64,
        len: usize,
        find: impl for<'m> Fn(View<'m>) -> Option<&'m T>,
    ) -> Option<Kept<T>> {
        self.regions.get(self.place(address)?)?.keep(address, len, find)
    }

    /// `len` bytes at the guest physical address, which may lie in several adjacent regions: a view of each part, in order. `None`
    /// unless all of them are in memory, which is found out without a look at each region.
    #[must_use]
    pub fn pieces(&self, address: u64, len: u32) -> Option<Pieces<'_>> {
        let place = if len == 0 { 0 } else { self.place(address)? };
        let has_all = |span: &Span| address.checked_add(len.into()).is_some_and(|end| end <= span.run_end);
        if len > 0 && !self.spans.get(place).is_some_and(has_all) {
            return None;
        }
        Some(Pieces { memory: self, place, address, left: len as usize })
    }

    /// Fills `bytes` from the guest physical address on; false unless there are so many.
    #[must_use]
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let Some(pieces) = u32::try_from(bytes.len()).ok().and_then(|len| self.pieces(address, len)) else {
            return false;
        };
        let mut rest = bytes;
        for piece in pieces {
            let Some((part, behind)) = std::mem::take(&mut rest).split_at_mut_checked(piece.len()) else {
                return false;
            };
            if !piece.read(part) {
                return false;
            }
            rest = behind;
        }
        rest.is_empty()
    }

    /// The guest physical address of `len` bytes at an address of the front end's; `None` unless they are all in one
    /// region.
    #[must_use]
    pub fn guest_address(&self, user: u64, len: usize) -> Option<u64> {
        let at = |place: &u16| self.regions.get(usize::from(*place));
        let behind = self.by_user.partition_point(|place| at(place).is_some_and(|region| region.user() <= user));
        let region = at(self.by_user.get(behind.checked_sub(1)?)?)?;
        inside(region, region.user(), user, len)?;
        // Inside, so that neither difference nor sum wraps: `Region::map` saw to it.
        region.guest().checked_add(user.checked_sub(region.user())?)
    }
}

/// Where a region ends: no region wraps (`Region::map`).
fn end(region: &Region) -> u64 {
    region.guest().saturating_add(region.size())
}

#[inline]
fn inside(region: &Region, start: u64, address: u64, len: usize) -> Option<View<'_>> {
    region.whole().sub(usize::try_from(address.checked_sub(start)?).ok()?, len)
}

/// The parts of a range, region by region: see [`GuestMemory::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces<'m> {
    memory: &'m GuestMemory,
    /// The region that the next part is in.
    place: usize,
    address: u64,
    left: usize,
}

impl<'m> Iterator for Pieces<'m> {
    type Item = View<'m>;

    fn next(&mut self) -> Option<View<'m>> {
        if self.left == 0 {
            return None;
        }
        count_work(1);
        let region = self.memory.regions.get(self.place)?;
        let offset = usize::try_from(self.address.checked_sub(region.guest())?).ok()?;
        let part = region.whole().behind(offset)?;
        let part = part.sub(0, part.len().min(self.left))?;
        self.left = self.left.saturating_sub(part.len());
        self.place = self.place.saturating_add(1);
        self.address = self.address.saturating_add(part.len() as u64);
        Some(part)
    }
}

/// A guest's memory, with the region that was needed last at hand.
#[derive(Clone, Copy, Debug)]
pub struct Space<'m> {
    memory: &'m GuestMemory,
    guest: u64,
    view: View<'m>,
}

impl<'m> Space<'m> {
    /// `len` bytes at the guest physical address; `None` unless they are all in one region.
    #[inline(always)]
    pub fn view(&mut self, address: u64, len: u32) -> Option<View<'m>> {
        match self.near(address, len) {
            Some(view) => Some(view),
            None => {
                // By value, so that the common case stays in registers.
                let (found, view) = self.search(address, len)?;
                *self = found;
                Some(view)
            }
        }
    }

    /// As [`Space::view`], but only in the region that was used last.
    #[inline(always)]
    #[must_use]
    pub fn near(&self, address: u64, len: u32) -> Option<View<'m>> {
        // An address below the region becomes one far beyond its end.
        self.view.sub(address.wrapping_sub(self.guest) as usize, len as usize)
    }

    #[cold]
    #[inline(never)]
    fn search(self, address: u64, len: u32) -> Option<(Space<'m>, View<'m>)> {
        let memory = self.memory;
        let (region, view) = memory.find(address, len as usize)?;
        Some((Space { memory, guest: region.guest(), view: region.whole() }, view))
    }

    /// As [`GuestMemory::pieces`].
    #[must_use]
    pub fn pieces(&self, address: u64, len: u32) -> Option<Pieces<'m>> {
        self.memory.pieces(address, len)
    }

    /// As [`GuestMemory::read`].
    #[must_use]
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.memory.read(address, bytes)
    }

    /// Where the byte at the guest physical address would be if it were in the region used last: for prefetching.
    #[inline]
    #[must_use]
    pub fn address(&self, address: u64) -> *mut u8 {
        self.view.as_ptr().wrapping_add(address.wrapping_sub(self.guest) as usize)
    }
}
