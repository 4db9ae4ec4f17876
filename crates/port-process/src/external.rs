//! External memory: memory that a client brings for the buffers of its ports (VPE §3.1: buffers for direct access are
//! registered before they are used).
//!
//! The memory is a memfd that is sealed against shrinking: access never finds less than was checked. It can still have holes,
//! which the mapping fills within the limits of its quota, or kills the ports that use it (`memory_holes`, `memory_lost`).
//!
//! Ports of one process may share a memory, and then share its mapping. Ports of two processes may not: each could change the
//! frames of the other.

use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use ringway_abi::attach::MEMORY;
use ringway_memory::{Limits, MapError, Mapping, OverQuota, Quota};
use ringway_switch::PortFault;
use rustix::fs::{SealFlags, Stat, fcntl_add_seals, fcntl_get_seals, fstat};

use ringway_port::front_end::{ClientFd, return_in_background};

/// Why a client's memory is refused. The text is for the client.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExternalError {
    /// The message is another, or has another number of descriptors.
    #[error("one descriptor, of the memory, and the message for it must come: a message with {0} descriptors came")]
    Message(usize),
    /// Its kind of file cannot be sealed. Pages of a disk would stop a poller.
    #[error("the memory is not a memfd: make it by memfd_create(2) with MFD_ALLOW_SEALING")]
    NoMemfd,
    /// The file can shrink.
    #[error("the memory is not sealed against shrinking: set F_SEAL_SHRINK by fcntl(2), after ftruncate(2)")]
    Unsealed,
    /// The file is shorter than the request says.
    #[error("the memory has {has} bytes, and the request says {asked}")]
    Size {
        /// The size that the request says.
        asked: u64,
        /// The size of the file.
        has: u64,
    },
    /// A port of another process has it.
    #[error("a port of another client uses this memory: bring memory of your own")]
    Foreign,
    /// The limit of all mapped memory is reached.
    #[error("{0}")]
    Limit(OverQuota),
    /// The kernel refuses.
    #[error("the memory cannot be mapped: {0} (is it sealed against writing?)")]
    Kernel(#[source] std::io::Error),
}

impl From<MapError> for ExternalError {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Limit(over) => Self::Limit(over),
            MapError::Kernel(error) => Self::Kernel(error),
        }
    }
}

/// The mapped memory of a client.
#[derive(Debug)]
pub struct ExternalMemory {
    mapping: Arc<Mapping>,
    quota: Arc<Quota>,
    /// Device and inode of the file. The mapping keeps the inode.
    file: (u64, u64),
    /// The process that brought it.
    owner: Option<NonZeroU32>,
}

impl ExternalMemory {
    /// Checks that a file can be the memory of a client, and maps its first `bytes` bytes.
    fn map(file: impl AsFd, about: &Stat, bytes: u64, owner: Option<NonZeroU32>) -> Result<Self, ExternalError> {
        let has = u64::try_from(about.st_size).unwrap_or(0);
        if bytes > has {
            return Err(ExternalError::Size { asked: bytes, has });
        }
        let len = usize::try_from(bytes).map_err(|_| ExternalError::Size { asked: bytes, has })?;
        let quota = Quota::of_port(Limits { bytes: u64::MAX, mappings: 1, ..Limits::PORT });
        let mapping = Arc::new(Mapping::given(file.as_fd(), 0, len, &quota)?);
        Ok(Self { mapping, quota, file: (about.st_dev, about.st_ino), owner })
    }

    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns the fault of a port whose memory is lost.
    #[cold]
    pub(super) fn fault(&self) -> PortFault {
        match self.quota.take_holes_exceeded() {
            Some(_) => PortFault::MemoryHoles,
            None => PortFault::MemoryLost,
        }
    }
}

/// A file that can be the memory of a client and is not mapped yet.
pub(super) struct Unmapped {
    file: ClientFd,
    about: Stat,
    bytes: u64,
    owner: Option<NonZeroU32>,
}

impl Unmapped {
    /// Maps the file. The client decides how long that lasts: for a thread that serves its process alone.
    ///
    /// # Errors
    /// The file is too short, or a limit or the kernel refuses.
    pub(super) fn map(self) -> Result<Arc<ExternalMemory>, ExternalError> {
        // To seal a file waits for the hole that is being punched into it, also to add no seal. To map it waits, too, but with a lock that every mmap(2)
        // of this process needs.
        let _ = fcntl_add_seals(&self.file, SealFlags::empty());
        ExternalMemory::map(&self.file, &self.about, self.bytes, self.owner).map(Arc::new)
    }
}

/// What a client has sent.
pub(super) enum Found {
    /// A port of the same process has it already.
    Mapped(Arc<ExternalMemory>),
    Unmapped(Unmapped),
}

/// The memories that ports use.
#[derive(Debug, Default)]
pub(super) struct ExternalFiles(Vec<Weak<ExternalMemory>>);

impl ExternalFiles {
    /// Checks the file that a process has sent with `message`, for a memory of `bytes` bytes. Takes it out of `files` if it is to be mapped. Never
    /// waits for the client: the first check refuses files of all file systems but those in memory, and asks only the kernel.
    ///
    /// # Errors
    /// The message is another, or the file cannot be the memory of this client.
    pub(super) fn find(
        &mut self,
        message: &[u8],
        files: &mut Vec<ClientFd>,
        bytes: u64,
        owner: Option<NonZeroU32>,
    ) -> Result<Found, ExternalError> {
        let [file] = files.as_slice() else { return Err(ExternalError::Message(files.len())) };
        if message != MEMORY {
            return Err(ExternalError::Message(files.len()));
        }
        if !fcntl_get_seals(file).map_err(|_| ExternalError::NoMemfd)?.contains(SealFlags::SHRINK) {
            return Err(ExternalError::Unsealed);
        }
        let about = fstat(file).map_err(|error| ExternalError::Kernel(error.into()))?;
        if let Some(memory) = self.of((about.st_dev, about.st_ino), bytes, owner)? {
            return Ok(Found::Mapped(memory));
        }
        let file = files.pop().ok_or(ExternalError::Message(0))?;
        Ok(Found::Unmapped(Unmapped { file, about, bytes, owner }))
    }

    /// Adds a memory that has been mapped. Returns the one to use: another port of the process may have mapped the file meanwhile.
    ///
    /// # Errors
    /// A port of another process has it.
    pub(super) fn add(&mut self, memory: Arc<ExternalMemory>) -> Result<Arc<ExternalMemory>, ExternalError> {
        let other = self.of(memory.file, memory.mapping.bytes() as u64, memory.owner);
        if let Ok(None) = other {
            self.0.push(Arc::downgrade(&memory));
            return Ok(memory);
        }
        // To unmap it can last as long as to map it.
        return_in_background([memory.owner; 2], move || drop(memory));
        other.and_then(|other| other.ok_or(ExternalError::Foreign))
    }

    /// Returns the memory of this file and size, if a port of the process has it.
    fn of(
        &mut self,
        file: (u64, u64),
        bytes: u64,
        owner: Option<NonZeroU32>,
    ) -> Result<Option<Arc<ExternalMemory>>, ExternalError> {
        self.0.retain(|memory| memory.strong_count() > 0);
        for memory in self.0.iter().filter_map(Weak::upgrade).filter(|memory| memory.file == file) {
            if memory.owner.is_none() || memory.owner != owner {
                return Err(ExternalError::Foreign);
            }
            if memory.mapping.bytes() as u64 == bytes && !memory.mapping.is_lost() {
                return Ok(Some(memory));
            }
        }
        Ok(None)
    }
}
