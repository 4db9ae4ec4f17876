//! Memory that a device reads and writes: huge pages, which the kernel neither swaps nor, in the usual run of things, moves.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ringway_memory::{Buffer, Mapping, View};
use rustix::fs::MemfdFlags;

use super::error::PciError;

/// Bytes of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;

/// Memory for one device. Its owner ends the device's access before it drops the memory: a dropped [`super::PciDevice`] does.
#[derive(Debug)]
pub struct Dma {
    mapping: Arc<Mapping>,
    start: usize,
    /// The bus address of each huge page.
    pages: Box<[u64]>,
    used: usize,
    buffers: u32,
    /// The file of the pages, which keeps them as long as the process has it.
    _file: Option<OwnedFd>,
}

/// A piece of such memory, for a ring.
#[derive(Clone, Debug)]
pub struct Piece {
    mapping: Arc<Mapping>,
    at: usize,
    bytes: usize,
    bus: u64,
}

impl Piece {
    /// Returns the memory that the piece is part of.
    #[must_use]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns the offset of its first byte in the memory.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns its bytes.
    #[must_use]
    pub fn view(&self) -> Option<View<'_>> {
        self.mapping.view(self.at, self.bytes)
    }

    /// Returns the address of its first byte as the device sees it.
    #[must_use]
    pub fn bus(&self) -> u64 {
        self.bus
    }
}

impl Dma {
    /// Makes zeroed memory of at least `bytes` bytes, whose pages `translate` finds the bus addresses of.
    pub(crate) fn new(
        bytes: usize,
        translate: impl FnOnce(&Mapping) -> Result<Box<[u64]>, PciError>,
    ) -> Result<Dma, PciError> {
        let count = bytes.div_ceil(HUGE_PAGE).max(1);
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(libc::ENOMEM | libc::ENOSYS) => PciError::HugePages(count),
            _ => PciError::of("memory for the device")(error),
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let file = rustix::fs::memfd_create("ringway-dma", flags).map_err(|error| failed(error.into()))?;
        rustix::fs::ftruncate(&file, (count * HUGE_PAGE) as u64).map_err(|error| failed(error.into()))?;
        let mapping = Mapping::shared(file.as_fd(), count * HUGE_PAGE).map_err(failed)?;
        // A page gets its place when it is touched.
        (0..count).for_each(|page| mapping.whole().put(page * HUGE_PAGE, &[0; 8]));
        if mapping.is_lost() {
            return Err(PciError::HugePages(count));
        }
        let pages = translate(&mapping)?;
        Ok(Dma::of(mapping, pages, Some(file)))
    }

    fn of(mapping: Mapping, pages: Box<[u64]>, file: Option<OwnedFd>) -> Dma {
        let start = mapping.whole().as_ptr().addr();
        Dma { mapping: Arc::new(mapping), start, pages, used: 0, buffers: 0, _file: file }
    }

    /// Makes memory for a device within this process, for tests: bus addresses are this process's, or those of `pages`.
    ///
    /// # Errors
    /// The kernel gives no memory.
    pub fn local(bytes: usize, pages: Option<Box<[u64]>>) -> io::Result<Dma> {
        let mapping = Mapping::private(bytes.next_multiple_of(HUGE_PAGE))?;
        let start = mapping.whole().as_ptr().addr() as u64;
        let pages = pages.unwrap_or_else(|| (start..).step_by(HUGE_PAGE).take(bytes.div_ceil(HUGE_PAGE)).collect());
        Ok(Dma::of(mapping, pages, None))
    }

    /// Returns `bytes` zeroed bytes that no other piece has, in one piece also for the device. `align` is a power of two up to
    /// [`HUGE_PAGE`].
    ///
    /// # Errors
    /// There are too few.
    pub fn allocate(&mut self, bytes: usize, align: usize) -> io::Result<Piece> {
        let at = self.take(bytes, align)?;
        let bus = self.bus_at(at).unwrap_or(0);
        Ok(Piece { mapping: Arc::clone(&self.mapping), at, bytes, bus })
    }

    /// Returns `count` buffers of `bytes` bytes each, a multiple of 64 up to 65,536. Their names count from 0 over all calls.
    ///
    /// # Errors
    /// There are too few bytes.
    pub fn buffers(&mut self, count: u32, bytes: u32) -> io::Result<Vec<Buffer>> {
        if bytes == 0 || bytes > 65_536 || !bytes.is_multiple_of(64) {
            let what = format!("buffers of {bytes} bytes: a multiple of 64 from 64 to 65536 is needed");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        (0..count)
            .map(|_| {
                let (at, index) = (self.take(bytes as usize, 64)?, self.buffers);
                self.buffers += 1;
                // SAFETY: nothing else has these bytes, as each is given once. A device writes to them only while a ring has the buffer.
                let buffer = unsafe { Buffer::new(&self.mapping, index, at, bytes) };
                buffer.ok_or_else(|| io::Error::other("a buffer has no place in the memory"))
            })
            .collect()
    }

    /// Returns the bytes that buffers of this size take at most, with what is left free at the ends of huge pages.
    #[must_use]
    pub fn bytes_of(count: usize, bytes: usize) -> usize {
        let per_page = (HUGE_PAGE / bytes.clamp(1, HUGE_PAGE)).max(1);
        count.div_ceil(per_page).saturating_mul(HUGE_PAGE)
    }

    /// Returns the memory.
    #[must_use]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns the address of a byte as the device sees it, or `None` for other memory.
    #[inline]
    #[must_use]
    pub fn bus(&self, place: *const u8) -> Option<u64> {
        self.bus_at(place.addr().wrapping_sub(self.start))
    }

    #[inline]
    fn bus_at(&self, at: usize) -> Option<u64> {
        self.pages.get(at / HUGE_PAGE).map(|page| page + (at % HUGE_PAGE) as u64)
    }

    fn take(&mut self, bytes: usize, align: usize) -> io::Result<usize> {
        let mut at = self.used.next_multiple_of(align.clamp(1, HUGE_PAGE));
        loop {
            let end = at.checked_add(bytes).filter(|&end| end <= self.mapping.bytes());
            let Some(end) = end else {
                return Err(io::Error::other(format!("{bytes} bytes for the device: its memory is used up")));
            };
            let pages = &self.pages[at / HUGE_PAGE..end.div_ceil(HUGE_PAGE).max(at / HUGE_PAGE)];
            if pages.windows(2).all(|two| two[0].checked_add(HUGE_PAGE as u64) == Some(two[1])) {
                self.used = end;
                return Ok(at);
            }
            at = (at + 1).next_multiple_of(HUGE_PAGE);
        }
    }
}

/// Returns the physical addresses of huge pages (Linux, Documentation/admin-guide/mm/pagemap.rst).
pub(crate) fn physical(memory: &Mapping, device: &str) -> Result<Box<[u64]>, PciError> {
    const PAGEMAP: &str = "/proc/self/pagemap";
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let page = rustix::param::page_size();
    let start = memory.whole().as_ptr().addr();
    let file = File::open(PAGEMAP).map_err(PciError::of(PAGEMAP))?;
    let one = |at: usize| {
        let mut entry = [0; 8];
        file.read_exact_at(&mut entry, ((start + at) / page * 8) as u64).map_err(PciError::of(PAGEMAP))?;
        let entry = u64::from_ne_bytes(entry);
        match entry & FRAME {
            frame if frame > 0 && entry & PRESENT != 0 => Ok(frame * page as u64),
            _ => Err(PciError::Addresses(device.to_owned())),
        }
    };
    (0..memory.bytes()).step_by(HUGE_PAGE).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_straddles_pages_that_are_not_neighbours() {
        let page = HUGE_PAGE as u64;
        // The second and the third page are neighbours.
        let mut dma = Dma::local(3 * HUGE_PAGE, Some([7 * page, 2 * page, 3 * page].into())).unwrap();
        let first = dma.allocate(HUGE_PAGE - 100, 1).unwrap();
        assert_eq!((first.at(), first.bus()), (0, 7 * page));
        let second = dma.allocate(HUGE_PAGE - 64, 4096).unwrap();
        assert_eq!((second.at(), second.bus()), (HUGE_PAGE, 2 * page));
        let third = dma.allocate(128, 64).unwrap();
        assert_eq!((third.at(), third.bus()), (2 * HUGE_PAGE - 64, 3 * page - 64));
        assert_eq!(third.view().unwrap().len(), 128);
        assert_eq!(dma.bus(third.view().unwrap().as_ptr().wrapping_add(100)), Some(3 * page + 36));
        assert_eq!(dma.bus([0_u8; 1].as_ptr()), None);
        let buffers = dma.buffers(31, 65_536).unwrap();
        assert!(buffers.iter().enumerate().all(|(index, buffer)| buffer.index() as usize == index));
        assert!(dma.buffers(1, 65_536).is_err() && dma.allocate(usize::MAX, 64).is_err());
        assert!(dma.buffers(1, 65_600).is_err() && dma.buffers(1, 100).is_err());
        assert_eq!(Dma::bytes_of(33, 65_536), 2 * HUGE_PAGE);
    }
}
