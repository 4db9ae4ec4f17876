//! A guest's memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use ringway_memory::{Mapping, View};
use rustix::fs::MemfdFlags;

use crate::guest::{GuestMemory, Region};

/// Two regions with a gap between them, as in every machine with more than 3 GiB.
pub const LOW: u64 = 0x1_0000;
pub const LOW_BYTES: u64 = 16 << 20;
pub const HIGH: u64 = 0x1_0000_0000;
pub const HIGH_BYTES: u64 = 1 << 20;
/// Address of the memory in the front end.
const USER: u64 = 0x7fff_0000_0000;

pub struct Guest {
    pub memory: Arc<GuestMemory>,
    pub file: OwnedFd,
    own: Mapping,
    next: AtomicU64,
}

impl Guest {
    pub fn new() -> Guest {
        let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&file, LOW_BYTES + HIGH_BYTES).expect("memory");
        let low = Region::map(&file, LOW, LOW_BYTES, USER, 0).expect("a region");
        let high = Region::map(&file, HIGH, HIGH_BYTES, USER + 2 * LOW_BYTES, LOW_BYTES).expect("a region");
        let memory = Arc::new(GuestMemory::new(vec![Arc::new(low), Arc::new(high)]));
        let own = Mapping::shared(file.as_fd(), (LOW_BYTES + HIGH_BYTES) as usize).expect("memory");
        Guest { memory, file, own, next: AtomicU64::new(LOW) }
    }

    /// Allocates `len` bytes of the lower region. Returns their guest physical address.
    pub fn alloc(&self, len: usize, align: u64) -> u64 {
        let at = self.allocated().next_multiple_of(align);
        self.next.store(at + len as u64, Ordering::Relaxed);
        assert!(self.allocated() <= LOW + LOW_BYTES, "the guest has no memory left");
        at
    }

    /// Returns the end of the allocated bytes in the lower region.
    pub fn allocated(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Returns the driver's view. The address must be in a region.
    pub fn view(&self, address: u64, len: usize) -> View<'_> {
        let offset = if address >= HIGH { address - HIGH + LOW_BYTES } else { address - LOW };
        self.own.view(offset as usize, len).expect("an address of the guest")
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        assert!(self.view(address, bytes.len()).write(bytes));
    }

    pub fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.view(address, len).read(&mut bytes));
        bytes
    }

    /// Allocates memory that contains these bytes.
    pub fn place(&self, bytes: &[u8]) -> u64 {
        let at = self.alloc(bytes.len(), 1);
        self.write(at, bytes);
        at
    }

    pub fn word16(&self, address: u64) -> &AtomicU16 {
        &self.view(address, 2).words16().expect("aligned")[0]
    }

    pub fn word64(&self, address: u64) -> &AtomicU64 {
        &self.view(address, 8).words64().expect("aligned")[0]
    }
}
