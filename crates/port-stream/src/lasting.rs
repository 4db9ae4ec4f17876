//! What a port has of its connection, in descriptors that the keeper has, too: a successor of the switch goes on at the exact byte of both
//! directions, wherever the switch died.
//!
//! Bytes from the peer are received into a memory file. How many were received is not noted: the kernel counts it. Receiving bytes lowers
//! the socket's SO_PEEK_OFF by their number, in the same system call, and the switch raises it by multiples of [`CYCLE`] only. Which frames were taken is noted
//! before they are delivered: a successor delivers none of them again.
//!
//! Frames to the peer go out in messages that the kernel takes as a whole or not at all (`sending.rs`). A longer frame goes through a pipe. The pipe has the bytes that
//! were not sent: splice(2) takes bytes out of the pipe and puts them into the socket in one system call. A word says that the frame is whole in
//! the pipe, so that it was begun.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringway_keeper::opener::{Ask, of_process};
use ringway_keeper::{Guard, Inherited, Link};
use ringway_memory::{Kept, Mapping, SharedMemory, View};
use ringway_port::front_end::{peek_offset, set_peek_offset};
use ringway_runtime::warn_limited;
use ringway_switch::MAX_FRAME;
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

use super::framing::PREFIX_BYTES;

/// The number of this layout. Change it with the layout of the memory, and with each change of what a word says.
const LAYOUT: u64 = 0x5257_5354_0000_0001;
/// Bytes of the receive buffer: enough for more than a batch of usual frames, and for any single frame.
pub const INPUT_BYTES: usize = 512 << 10;
/// Where the receive buffer begins: behind a page of words.
const INPUT_AT: usize = 4096;
const BYTES: usize = INPUT_AT + INPUT_BYTES;
/// Room in the pipe for the longest frame, in whole pages. The kernel rounds it up.
const PIPE_BYTES: usize = (PREFIX_BYTES + MAX_FRAME).next_multiple_of(4096);
/// Longest wait for the opener.
pub(super) const WIDENED_WITHIN: Duration = Duration::from_secs(1);

/// The socket's SO_PEEK_OFF changes by multiples of this, and by the number of received bytes. More than the receive buffer has.
pub(super) const CYCLE: usize = 1 << 29;
/// SO_PEEK_OFF of a new connection.
const FIRST: usize = 2 * CYCLE;

/// The words at the beginning.
const LAYOUT_AT: usize = 0;
/// The number of the connection; 0: none yet.
const CONNECTION: usize = 1;
/// The number of the connection of `TAKEN` and `ORIGIN`.
const INPUT: usize = 2;
/// Bytes of the connection that were taken, and the one at the beginning of the receive buffer.
const TAKEN: usize = 3;
const ORIGIN: usize = 4;
/// Bytes of the frame that is in the pipe, with its length field; 0: what is there, if anything, is no whole frame.
const LONG: usize = 5;

/// The memory and the pipe of a port.
#[derive(Debug)]
pub struct Lasting {
    words: Kept<[AtomicU64; 8]>,
    mapping: Arc<Mapping>,
    pub(super) pipe: Pipe,
    /// Bytes of the longest frame that the pipe has room for.
    pub(super) longest: usize,
    /// `None`: it is no file.
    memory: Option<SharedMemory>,
    /// Dropped last.
    _guard: Option<Guard>,
}

/// Both ends of a pipe.
#[derive(Debug)]
pub struct Pipe {
    pub read: OwnedFd,
    pub write: OwnedFd,
}

/// A place in the receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The byte of the connection at the beginning of the buffer.
    pub origin: u64,
    /// The offsets of the bytes that were received and not taken.
    pub start: usize,
    pub end: usize,
    /// The socket's SO_PEEK_OFF.
    pub credit: usize,
}

impl Lasting {
    /// What a predecessor left under this name, or a new one, for the port `label`. Without a keeper it belongs to this process alone.
    ///
    /// # Errors
    /// The kernel has no memory or descriptors left, or the keeper cannot hold it.
    pub fn open(keeper: &Link, name: &str, label: &str) -> io::Result<Self> {
        if let Some(Inherited { name, files, .. }) = keeper.inherit(name) {
            let guard = Guard::of(keeper, name, None);
            if let Some(mut left) = <[OwnedFd; 3]>::try_from(files).ok().and_then(Self::left) {
                left._guard = Some(guard);
                return Ok(left);
            }
        }
        let mut lasting = Self::new(keeper.is_kept())?;
        if lasting.longest < MAX_FRAME {
            warn_limited(&format!(
                "port {label} sends no frames of more than {} bytes: the kernel lets its user have no larger pipes (fs.pipe-user-pages-soft)",
                lasting.longest
            ));
        }
        if let Some(memory) = &lasting.memory {
            let files = [memory.file(), lasting.pipe.read.as_fd(), lasting.pipe.write.as_fd()];
            lasting._guard = Some(Guard::new(keeper, name, &[], &files, None)?);
        }
        Ok(lasting)
    }

    /// A new one. `kept`: its memory is a file.
    pub fn new(kept: bool) -> io::Result<Self> {
        let memory = if kept { Some(SharedMemory::create("ringway-stream", BYTES)?) } else { None };
        let mapping = match &memory {
            Some(memory) => Arc::clone(memory.mapping()),
            None => Arc::new(Mapping::private(BYTES)?),
        };
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if fcntl_getpipe_size(&write)? < PIPE_BYTES && fcntl_setpipe_size(&write, PIPE_BYTES).is_err() {
            // All pipes of a user have as many pages as they may have. Without an opener that is let have more, longer frames are dropped.
            let ask = Ask::SendBuffer { bytes: PIPE_BYTES as u32 };
            let _ = of_process().ask_done(&ask, &[write.as_fd()], WIDENED_WITHIN);
        }
        let lasting = Self::over(mapping, memory, Pipe { read, write });
        let lasting = lasting.ok_or_else(|| io::Error::other("a mapping without words"))?;
        lasting.set(LAYOUT_AT, LAYOUT);
        Ok(lasting)
    }

    /// What a predecessor left. `None`: it is of another version, or cannot be mapped.
    fn left([memory, read, write]: [OwnedFd; 3]) -> Option<Self> {
        let memory = SharedMemory::open(memory, BYTES).ok()?;
        let left = Self::over(Arc::clone(memory.mapping()), Some(memory), Pipe { read, write })?;
        (left.get(LAYOUT_AT) == LAYOUT).then_some(left)
    }

    /// What a successor finds.
    #[cfg(test)]
    pub fn copy(&self) -> Self {
        let memory = self.memory.as_ref().expect("a file");
        let files = [memory.file(), self.pipe.read.as_fd(), self.pipe.write.as_fd()];
        let files = files.map(|file| rustix::io::fcntl_dupfd_cloexec(file, 3).expect("a descriptor"));
        Self::left(files).expect("it is whole")
    }

    fn over(mapping: Arc<Mapping>, memory: Option<SharedMemory>, pipe: Pipe) -> Option<Self> {
        let words = Kept::new(&mapping, |mapping| mapping.view(0, 64)?.words64()?.first_chunk())?;
        let longest = fcntl_getpipe_size(&pipe.write).ok()?.saturating_sub(PREFIX_BYTES).min(MAX_FRAME);
        Some(Self { words, mapping, pipe, longest, memory, _guard: None })
    }

    fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Acquire)
    }

    #[inline]
    fn set(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Release);
    }

    /// Begins with a connection, of this number. Returns true if a predecessor had begun with it: both directions go on.
    ///
    /// # Errors
    /// A predecessor had begun with it, and how far it was is not known; or the kernel refuses to count.
    pub fn begin(&self, number: u64, socket: impl AsFd) -> io::Result<bool> {
        // Without an offset the kernel has counted nothing yet.
        if peek_offset(&socket) > 0 {
            return if self.get(CONNECTION) == number {
                Ok(true)
            } else {
                Err(io::Error::other("how far it was is not known"))
            };
        }
        self.set(LONG, 0);
        self.set(CONNECTION, number);
        set_peek_offset(&socket, FIRST)?;
        Ok(false)
    }

    /// Returns where the input of a connection of this number is: at its beginning, if no input was there before. `None`: what was noted cannot
    /// be.
    pub fn place(&self, number: u64, socket: BorrowedFd<'_>) -> Option<Place> {
        if self.get(INPUT) != number {
            // Dead in between, the next one does the same.
            self.set(INPUT, 0);
            self.set(TAKEN, 0);
            self.set(ORIGIN, 0);
            self.set(INPUT, number);
        }
        let (taken, origin, credit) = (self.get(TAKEN), self.get(ORIGIN), peek_offset(socket));
        let received = 0_u64.wrapping_sub(credit as u64).wrapping_sub(taken) % CYCLE as u64;
        let start = usize::try_from(taken.checked_sub(origin)?).ok()?;
        let end = start.checked_add(usize::try_from(received).ok()?).filter(|end| *end <= INPUT_BYTES)?;
        Some(Place { origin, start, end, credit })
    }

    /// The receive buffer.
    #[inline]
    pub fn input(&self, start: usize, len: usize) -> Option<View<'_>> {
        self.mapping.view(INPUT_AT, INPUT_BYTES)?.sub(start, len)
    }

    /// Notes which byte of the connection is the next that was not taken.
    #[inline]
    pub fn note_taken(&self, taken: u64) {
        self.set(TAKEN, taken);
    }

    /// Notes which byte of the connection is at the beginning of the receive buffer. The bytes are there already, and where they were, too.
    #[inline]
    pub fn note_origin(&self, origin: u64) {
        self.set(ORIGIN, origin);
    }

    /// Notes that a frame with this many bytes, with its length field, is in the pipe as a whole; 0: there is none.
    pub fn note_long(&self, bytes: usize) {
        self.set(LONG, bytes as u64);
    }

    /// Returns what [`note_long`](Self::note_long) has noted.
    pub fn long(&self) -> usize {
        self.get(LONG) as usize
    }
}

impl Place {
    /// `count` bytes were received behind the end.
    #[inline]
    pub fn received(&mut self, count: usize, socket: BorrowedFd<'_>) {
        self.end = self.end.saturating_add(count);
        self.credit = self.credit.saturating_sub(count);
        if self.credit < CYCLE && set_peek_offset(socket, self.credit.saturating_add(CYCLE)).is_ok() {
            self.credit = self.credit.saturating_add(CYCLE);
        }
    }

    /// Returns the byte of the connection at `start`.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.origin.saturating_add(self.start as u64)
    }
}
