//! All regions of a guest's memory, sorted by address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_memory::{Kept, View, losses};

use super::region::Region;
use super::work::count_work;

/// The memory table of a guest: immutable, replaced as a whole. Every lookup is a binary search, so that the cost of a
/// visit to a client grows only with the logarithm of the number of its regions.
#[derive(Debug, Default)]
pub struct GuestMemory {
    /// The regions, sorted by guest physical address.
    regions: Vec<Arc<Region>>,
    /// For each region, its first address and the end of the run of adjacent regions that it belongs to.
    spans: Box<[Span]>,
    /// Indices into `regions`, sorted by address in the front end.
    by_user: Box<[u16]>,
    /// Index of the largest region. The first lookup of a batch tries this region.
    largest: usize,
    /// The number of mappings that this process had lost when [`GuestMemory::is_lost`] last searched the regions,
    /// shifted left by one. The lowest bit is set if a region of this table was lost.
    loss: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    run_end: u64,
}

impl GuestMemory {
    /// Makes a table of these regions. The regions do not overlap: the session has checked that.
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

    /// The regions, sorted by guest physical address.
    #[must_use]
    pub fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// Returns true if a page of any region was lost. Searches the regions only after this process has lost some
    /// mapping.
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

    /// Returns a handle for lookups, for the length of one batch.
    #[inline]
    #[must_use]
    pub fn space(&self) -> Space<'_> {
        let (guest, view) = match self.regions.get(self.largest) {
            Some(region) => (region.guest(), region.whole()),
            // An empty view at an address that no lookup can match.
            None => (u64::MAX, View::private(&mut [])),
        };
        Space { memory: self, guest, view }
    }

    /// Returns the index of the last region that begins at or before a guest physical address.
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

    /// Returns the `len` bytes at the guest physical address, or `None` unless all of them are in one region.
    #[must_use]
    pub fn view(&self, address: u64, len: usize) -> Option<View<'_>> {
        self.find(address, len).map(|(_, view)| view)
    }

    /// Returns what `find` returns for the `len` bytes at the guest physical address, and keeps the mapping alive with
    /// it. Returns `None` unless all the bytes are in one region.
    pub fn keep<T: ?Sized + 'static>(
        &self,
        address: u64,
        len: usize,
        find: impl for<'m> Fn(View<'m>) -> Option<&'m T>,
    ) -> Option<Kept<T>> {
        self.regions.get(self.place(address)?)?.keep(address, len, find)
    }

    /// Returns a view of each part of the `len` bytes at the guest physical address, in order: the bytes may span
    /// several adjacent regions. Returns `None` unless all of them are in guest memory. That check takes one search,
    /// not a look at each region.
    #[must_use]
    pub fn pieces(&self, address: u64, len: u32) -> Option<Pieces<'_>> {
        let place = if len == 0 { 0 } else { self.place(address)? };
        let has_all = |span: &Span| address.checked_add(len.into()).is_some_and(|end| end <= span.run_end);
        if len > 0 && !self.spans.get(place).is_some_and(has_all) {
            return None;
        }
        Some(Pieces { memory: self, place, address, left: len as usize })
    }

    /// Copies the bytes at the guest physical address to `bytes`. Returns false unless all of them are in guest memory.
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

    /// Translates an address of the front end to a guest physical address. Returns `None` unless all `len` bytes are in
    /// one region.
    #[must_use]
    pub fn guest_address(&self, user: u64, len: usize) -> Option<u64> {
        let at = |place: &u16| self.regions.get(usize::from(*place));
        let behind = self.by_user.partition_point(|place| at(place).is_some_and(|region| region.user() <= user));
        let region = at(self.by_user.get(behind.checked_sub(1)?)?)?;
        inside(region, region.user(), user, len)?;
        // The bytes are inside the region, so neither the difference nor the sum wraps (`Region::map` has checked the
        // ranges).
        region.guest().checked_add(user.checked_sub(region.user())?)
    }
}

/// Returns the end of a region. The sum never wraps: `Region::map` has checked it.
fn end(region: &Region) -> u64 {
    region.guest().saturating_add(region.size())
}

#[inline]
fn inside(region: &Region, start: u64, address: u64, len: usize) -> Option<View<'_>> {
    region.whole().sub(usize::try_from(address.checked_sub(start)?).ok()?, len)
}

/// Iterates over the parts of a range, region by region. See [`GuestMemory::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces<'m> {
    memory: &'m GuestMemory,
    /// Index of the region that the next part is in.
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

/// A handle for lookups in a guest's memory that caches the region of the last lookup.
#[derive(Clone, Copy, Debug)]
pub struct Space<'m> {
    memory: &'m GuestMemory,
    guest: u64,
    view: View<'m>,
}

impl<'m> Space<'m> {
    /// Returns the `len` bytes at the guest physical address, or `None` unless all of them are in one region.
    #[inline(always)]
    pub fn view(&mut self, address: u64, len: u32) -> Option<View<'m>> {
        match self.near(address, len) {
            Some(view) => Some(view),
            None => {
                // Passed by value, so that in the common case the handle stays in registers.
                let (found, view) = self.search(address, len)?;
                *self = found;
                Some(view)
            }
        }
    }

    /// Returns the `len` bytes at the guest physical address, or `None` unless all of them are in the region of the
    /// last lookup.
    #[inline(always)]
    #[must_use]
    pub fn near(&self, address: u64, len: u32) -> Option<View<'m>> {
        // For an address below the region, the subtraction wraps to an offset far beyond the region's end.
        self.view.sub(address.wrapping_sub(self.guest) as usize, len as usize)
    }

    #[cold]
    #[inline(never)]
    fn search(self, address: u64, len: u32) -> Option<(Space<'m>, View<'m>)> {
        let memory = self.memory;
        let (region, view) = memory.find(address, len as usize)?;
        Some((Space { memory, guest: region.guest(), view: region.whole() }, view))
    }

    /// Returns a view of each part of the bytes at the guest physical address: [`GuestMemory::pieces`].
    #[must_use]
    pub fn pieces(&self, address: u64, len: u32) -> Option<Pieces<'m>> {
        self.memory.pieces(address, len)
    }

    /// Copies the bytes at the guest physical address to `bytes`: [`GuestMemory::read`].
    #[must_use]
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.memory.read(address, bytes)
    }

    /// Returns the address of the byte at the guest physical address, if that is in the region of the last lookup.
    /// Otherwise the pointer is meaningless. Only for prefetching.
    #[inline]
    #[must_use]
    pub fn address(&self, address: u64) -> *mut u8 {
        self.view.as_ptr().wrapping_add(address.wrapping_sub(self.guest) as usize)
    }
}
