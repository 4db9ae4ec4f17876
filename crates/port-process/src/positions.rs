//! How far the switch is in a port's rings, as far as the client's memory does not say. It lies in memory that outlives the switch and that no client
//! has.
//!
//! A successor goes on behind the frames that were taken last, whether they were delivered or not: no frame is delivered twice.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_abi::layout::MAX_RINGS;
use ringway_memory::{Kept, SharedMemory};

/// Bytes of the memory: a page.
const BYTES: usize = 4096;
/// Words in use: each transmit ring has two.
const WORDS: usize = 2 * MAX_RINGS as usize;

/// The positions of a port.
#[derive(Debug)]
pub struct Positions(SharedMemory);

/// The positions of a transmit ring.
#[derive(Debug)]
pub(super) struct RingPositions {
    /// The slot after those that were taken last. Written before their frames can arrive anywhere.
    taken: Kept<AtomicU32>,
    /// The number of the last wake-up request but one, or of the last.
    wish: Kept<AtomicU32>,
}

impl Positions {
    /// Positions of new rings.
    ///
    /// # Errors
    /// The kernel has no memory or descriptors left.
    pub fn new() -> io::Result<Self> {
        SharedMemory::create_whole("ringway-positions", BYTES).map(Self)
    }

    /// The positions that a predecessor left.
    ///
    /// # Errors
    /// It is another file, or the kernel refuses.
    pub fn left(file: OwnedFd) -> io::Result<Self> {
        SharedMemory::open(file, BYTES).map(Self)
    }

    /// The memory, for the keeper.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    /// The positions of the transmit ring with this number.
    ///
    /// # Errors
    /// There is no such ring.
    pub(super) fn ring(&self, ring: u16) -> io::Result<RingPositions> {
        let word = |at: usize| {
            Kept::new(self.0.mapping(), |mapping| mapping.view(0, WORDS * 4)?.words32()?.get(at))
                .ok_or_else(|| io::Error::other("a ring without positions"))
        };
        let ring = usize::from(ring);
        Ok(RingPositions { taken: word(2 * ring)?, wish: word(2 * ring + 1)? })
    }
}

impl RingPositions {
    /// Notes the slot after those that are taken. What is written with release ordering afterwards is written after this.
    #[inline]
    pub(super) fn note_taken(&self, taken: u32) {
        self.taken.store(taken, Ordering::Relaxed);
    }

    /// Notes the number of a wake-up request that was made.
    pub(super) fn note_wish(&self, number: u32) {
        self.wish.store(number, Ordering::Relaxed);
    }

    /// Returns the slot after those that were taken last.
    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns a number of a wake-up request such that no later one was made. The last one may not have been noted any more.
    pub(super) fn last_wish(&self) -> u32 {
        match self.wish.load(Ordering::Relaxed) {
            u32::MAX => 1,
            noted => noted + 1,
        }
    }
}
