//! How far the switch is in the rings of a device, as far as the kernel's memory does not say. It lies in memory that outlives the switch.
//!
//! A successor goes on behind the frames that were taken last, whether they were delivered or not: no frame is delivered twice.
//!
//! The switch stores a position with relaxed ordering, before it shows the frames to a client or to the kernel. It shows them by a later store with release
//! ordering, or by a system call: a reader that sees the frames sees the position, too.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

use ringway_memory::{Kept, SharedMemory};

use crate::kept::unreadable;

/// Bytes of the memory: a page for what is received, and one for the chunks of sent frames.
const BYTES: usize = 2 * 4096;
/// Offset of the words of the receive queues, and bytes of those of each.
const QUEUES_AT: usize = 64;
const QUEUE_BYTES: usize = 8;
/// Offset and number of the words of the chunks.
const CHUNKS_AT: usize = 4096;
pub(crate) const CHUNKS: usize = 1024;

/// The positions of a device.
#[derive(Debug)]
pub(crate) struct Positions(SharedMemory);

/// Those of a receive queue.
#[derive(Debug)]
pub(crate) struct QueuePosition {
    /// The index of the receive ring behind the entries that were taken last. Written before their frames can arrive anywhere.
    pub(crate) taken: Kept<AtomicU32>,
    /// The frames that the queue had lost when that was last asked, modulo 2^32.
    pub(crate) lost: Kept<AtomicU32>,
}

impl Positions {
    /// Positions of new rings: zeroes.
    ///
    /// # Errors
    /// The kernel has no memory or descriptors left.
    pub(crate) fn new() -> io::Result<Self> {
        SharedMemory::create_whole("ringway-positions", BYTES).map(Self)
    }

    /// The positions that a predecessor left.
    ///
    /// # Errors
    /// It is another file, or the kernel refuses.
    pub(crate) fn left(file: OwnedFd) -> io::Result<Self> {
        SharedMemory::open(file, BYTES).map(Self)
    }

    /// The memory, for the keeper.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    /// The word of a packet socket's ring.
    ///
    /// # Errors
    /// There is no such word.
    pub(crate) fn packets(&self) -> io::Result<Kept<AtomicU64>> {
        Kept::new(self.0.mapping(), |all| all.view(0, 8)?.words64()?.first()).ok_or_else(unreadable)
    }

    /// The words of the receive queue with this number.
    ///
    /// # Errors
    /// There is no such queue.
    pub(crate) fn queue(&self, queue: usize) -> io::Result<QueuePosition> {
        let at = queue.checked_mul(QUEUE_BYTES).and_then(|at| at.checked_add(QUEUES_AT));
        let at = at.filter(|at| at + QUEUE_BYTES <= CHUNKS_AT).ok_or_else(unreadable)?;
        let word = |number: usize| {
            Kept::new(self.0.mapping(), |all| all.view(at, QUEUE_BYTES)?.words32()?.get(number)).ok_or_else(unreadable)
        };
        Ok(QueuePosition { taken: word(0)?, lost: word(1)? })
    }

    /// A word for each chunk of sent frames.
    ///
    /// # Errors
    /// There are no such words.
    pub(crate) fn chunks(&self) -> io::Result<Kept<[AtomicU32]>> {
        Kept::new(self.0.mapping(), |all| all.view(CHUNKS_AT, 4 * CHUNKS)?.words32()).ok_or_else(unreadable)
    }
}
