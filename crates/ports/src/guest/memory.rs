//! All of a guest's memory.

use std::sync::Arc;

use ringway_memory::{Kept, View};

use super::region::Region;

/// A guest's memory table: immutable, replaced as a whole.
#[derive(Debug, Default)]
pub struct GuestMemory {
    regions: Vec<Arc<Region>>,
}

impl GuestMemory {
    /// A table of these regions. They do not overlap: the session has checked that.
    #[must_use]
    pub fn new(regions: Vec<Arc<Region>>) -> GuestMemory {
        GuestMemory { regions }
    }

    /// The regions.
    #[must_use]
    pub fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// Whether a page of any region could not be had.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.is_lost())
    }

    /// Ways to get at it for the length of a batch.
    #[inline]
    #[must_use]
    pub fn space(&self) -> Space<'_> {
        let (guest, view) = match self.regions.first() {
            Some(region) => (region.guest(), region.whole()),
            // An address that nothing is at, not even nothing.
            None => (u64::MAX, View::private(&mut [])),
        };
        Space { memory: self, guest, view }
    }

    /// `len` bytes at the guest physical address; `None` unless they are all in one region.
    #[must_use]
    pub fn view(&self, address: u64, len: usize) -> Option<View<'_>> {
        self.regions.iter().find_map(|region| inside(region, region.guest(), address, len))
    }

    /// What `find` makes of `len` bytes at the guest physical address, kept as long as it is needed; `None` unless they are all
    /// in one region.
    pub fn keep<T: ?Sized + 'static>(
        &self,
        address: u64,
        len: usize,
        find: impl for<'m> Fn(View<'m>) -> Option<&'m T>,
    ) -> Option<Kept<T>> {
        self.regions.iter().find_map(|region| region.keep(address, len, &find))
    }

    /// `len` bytes at the guest physical address, which may lie in several regions: a view of each part, in order. False,
    /// perhaps after some of them, unless all are in memory.
    pub fn pieces<'m>(&'m self, mut address: u64, len: u32, mut each: impl FnMut(View<'m>)) -> bool {
        let mut left = len as usize;
        while left > 0 {
            let part = self.regions.iter().find_map(|region| {
                let offset = usize::try_from(address.checked_sub(region.guest())?).ok()?;
                region.whole().behind(offset)
            });
            let Some(part) = part.and_then(|part| part.sub(0, part.len().min(left))) else { return false };
            each(part);
            left -= part.len();
            address = match address.checked_add(part.len() as u64) {
                Some(next) => next,
                None => return left == 0,
            };
        }
        true
    }

    /// The guest physical address of `len` bytes at an address of the front end's; `None` unless they are all in one
    /// region.
    #[must_use]
    pub fn guest_address(&self, user: u64, len: usize) -> Option<u64> {
        let region = self.regions.iter().find(|region| inside(region, region.user(), user, len).is_some())?;
        Some(region.guest() + (user - region.user()))
    }
}

#[inline]
fn inside(region: &Region, start: u64, address: u64, len: usize) -> Option<View<'_>> {
    region.whole().sub(usize::try_from(address.checked_sub(start)?).ok()?, len)
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
        memory.regions().iter().find_map(|region| {
            let view = inside(region, region.guest(), address, len as usize)?;
            Some((Space { memory, guest: region.guest(), view: region.whole() }, view))
        })
    }

    /// Where the byte at the guest physical address would be if it were in the region used last: for prefetching.
    #[inline]
    #[must_use]
    pub fn address(&self, address: u64) -> *mut u8 {
        self.view.as_ptr().wrapping_add(address.wrapping_sub(self.guest) as usize)
    }
}
