//! What was taken from the guest and not given back yet, noted in memory that the front end keeps for us
//! (vhost-user, "Inflight I/O tracking"; what is in the memory is the back end's own business).
//!
//! Frames are taken and given back in order, so one number per queue says it all: how far frames were taken. A
//! successor that begins behind it gives those buffers back unsent: they may have been delivered before the end, and
//! nothing is delivered twice. The front end can write there, so what is found is a hint: it counts only where it
//! agrees with the ring.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_memory::Mapping;
use rustix::fs::{MemfdFlags, SealFlags};

use super::message::Area;

/// One cache line for each queue's number, since each is written by its own poller.
const STRIDE: usize = 64;
const PAGE: u64 = 4096;
/// In the upper half of a word that holds a number.
const MARK: u64 = 0x5257_4e4f << 32;

/// Why the memory cannot be used. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum InflightError {
    /// Size and place do not fit the file or the queues.
    #[error("inflight memory of {size} bytes at offset {offset} of a file of {file} bytes for {queues} queues")]
    Place {
        /// Its bytes.
        size: u64,
        /// Where it begins.
        offset: u64,
        /// Bytes of the file.
        file: u64,
        /// Queues it is for.
        queues: u16,
    },
    /// The kernel refuses.
    #[error("inflight memory cannot be had: {0}")]
    Map(#[from] io::Error),
}

/// The memory, for all queues of a device.
#[derive(Debug)]
pub struct Inflight {
    mapping: Mapping,
}

impl Inflight {
    /// Makes memory for `queues` queues, for the front end to keep. It can neither shrink nor grow.
    ///
    /// # Errors
    /// The kernel has no memory or descriptors left.
    pub fn create(queues: u16) -> io::Result<(Area, OwnedFd)> {
        let size = bytes(queues);
        let file = rustix::fs::memfd_create("ringway-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, size)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Area { size, offset: 0 }, file))
    }

    /// Maps what the front end has kept.
    ///
    /// # Errors
    /// It is too small or not where it can be mapped, or the kernel refuses.
    pub fn map(file: &OwnedFd, area: Area, queues: u16) -> Result<Inflight, InflightError> {
        let Area { size, offset } = area;
        crate::guest::check_backing(file)?;
        let has = u64::try_from(rustix::fs::fstat(file).map_err(io::Error::from)?.st_size).unwrap_or(0);
        let inside = offset.checked_add(size).is_some_and(|end| end <= has);
        if !inside || !offset.is_multiple_of(PAGE) || size < bytes(queues) {
            return Err(InflightError::Place { size, offset, file: has, queues });
        }
        Ok(Inflight { mapping: Mapping::shared_at(file.as_fd(), offset, bytes(queues) as usize)? })
    }
}

/// Bytes for `queues` queues.
fn bytes(queues: u16) -> u64 {
    (u64::from(queues) * STRIDE as u64).next_multiple_of(PAGE).max(PAGE)
}

/// The number of one queue.
#[derive(Clone, Debug)]
pub struct Taken {
    memory: Arc<Inflight>,
    offset: usize,
}

impl Taken {
    /// That of `queue`; `None` when the memory is for fewer queues.
    pub fn of(memory: &Arc<Inflight>, queue: u16) -> Option<Taken> {
        let offset = usize::from(queue) * STRIDE;
        memory.mapping.view(offset, STRIDE)?;
        Some(Taken { memory: Arc::clone(memory), offset })
    }

    #[inline]
    fn word(&self) -> Option<&AtomicU64> {
        self.memory.mapping.view(self.offset, 8)?.words64()?.first()
    }

    /// Notes that everything before `base`, as GET_VRING_BASE states it, was taken. Before any of it is delivered.
    #[inline]
    pub fn note(&self, base: u32) {
        if let Some(word) = self.word() {
            word.store(MARK | u64::from(base), Ordering::Release);
        }
    }

    /// What was noted last, if anything was.
    pub fn noted(&self) -> Option<u32> {
        let word = self.word()?.load(Ordering::Acquire);
        (word & !u64::from(u32::MAX) == MARK).then_some(word as u32)
    }

    /// Nothing is in flight.
    pub fn clear(&self) {
        if let Some(word) = self.word() {
            word.store(0, Ordering::Release);
        }
    }
}
