//! The pages of the ring registers (0x2000 to 0x4000): a memfd that a front end may map into the guest, whose driver then
//! writes the registers without a message. Nothing in the pages is trusted: positions are read once, and rings check them.
//!
//! Each connection has pages of its own: a front end that has gone may still have its file, and would otherwise set the rings of
//! the next guest. The registers and the two sides each have a reference, and all three change together (`access`).
//!
//! All pages of the file are there from the start. A front end that takes one out has lost them all when a poller next touches it: the
//! rings stop with `memory_lost` until it connects again. Otherwise it could go on, and each time cost the poller a page fault.
//!
//! A tail write then wakes nobody. A sleeping poller therefore looks at such ports by the clock while their ring is on,
//! however many ports there are: after 100 us at first, every millisecond later, and every 4 ms after a second without work.
//!
//! Plain memory has no masks: with mapped registers the register test of `ethtool -t` fails. With `registers=trapped` and on
//! the 82540EM every test passes (Linux 6.1 and 6.12). With INTx, QEMU takes the mapping away.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_memory::{Mapping, SharedMemory};

use super::offsets::{RING_PAGES, RING_PAGES_END};

/// A reference to the pages of the ring registers: see the description of the module.
#[derive(Clone, Debug)]
pub(super) struct RingPage {
    /// The mapping of `memory`, one step nearer for pollers.
    mapping: Arc<Mapping>,
    memory: Arc<SharedMemory>,
}

impl RingPage {
    /// Makes zeroed memory that begins at offset 0 of the registers. The part before the ring pages is never touched.
    pub(super) fn new() -> io::Result<RingPage> {
        let memory = SharedMemory::create_whole("ringway-e1000", RING_PAGES_END as usize)?;
        Ok(RingPage { mapping: Arc::clone(memory.mapping()), memory: Arc::new(memory) })
    }

    /// Maps the pages of a predecessor of this process.
    pub(super) fn open(file: OwnedFd) -> io::Result<RingPage> {
        let memory = SharedMemory::open_whole(file, RING_PAGES_END as usize)?;
        Ok(RingPage { mapping: Arc::clone(memory.mapping()), memory: Arc::new(memory) })
    }

    /// Returns the file, which front ends map.
    pub(super) fn file(&self) -> io::Result<OwnedFd> {
        self.memory.file().try_clone_to_owned()
    }

    /// Returns true if the front end has taken out a page. The registers are those of nobody from then on.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// Returns true if a register is in the ring pages.
    pub(super) fn has(offset: u32) -> bool {
        (RING_PAGES..RING_PAGES_END).contains(&offset)
    }

    fn word(&self, offset: u32) -> Option<&AtomicU32> {
        self.mapping.view(offset as usize, 4)?.words32()?.first()
    }

    /// Reads a register, with acquire ordering: what its writer wrote before is visible afterwards.
    #[inline]
    pub(super) fn get(&self, offset: u32) -> u32 {
        self.word(offset).map_or(0, |word| u32::from_le(word.load(Ordering::Acquire)))
    }

    /// Writes all registers of the ring pages.
    pub(super) fn set_all(&self, values: &[u32]) {
        let bytes = (RING_PAGES_END - RING_PAGES) as usize;
        let words = self.mapping.view(RING_PAGES as usize, bytes).and_then(|view| view.words32());
        for (word, value) in words.into_iter().flatten().zip(values) {
            word.store(value.to_le(), Ordering::Release);
        }
    }

    /// Writes a register, with release ordering.
    #[inline]
    pub(super) fn set(&self, offset: u32, value: u32) {
        if let Some(word) = self.word(offset) {
            word.store(value.to_le(), Ordering::Release);
        }
    }
}
