//! Signals an eventfd by the kernel, without waiting.
//!
//! An asynchronous request (io_submit(2)) may name an eventfd that the kernel adds one to when the request is done
//! (IOCB_FLAG_RESFD). The kernel uses `eventfd_signal` there, which neither looks at O_NONBLOCK nor waits for room: a full
//! counter becomes its largest value, and the client's own poll(2) sees POLLERR. Descriptors other than eventfds are refused.
//! The request reads nothing from an empty memory file, so it is done before io_submit returns. It costs about 0.25 us more
//! than write(2) (`docs/decisions/calls.md`).

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};

/// Requests of a context that may be under way at once; this code makes one at a time. fs.aio-max-nr limits those of all contexts.
const REQUESTS: libc::c_long = 8;
/// IOCB_CMD_PREAD (linux/aio_abi.h).
const READ: u16 = 0;
/// IOCB_CMD_PWRITE.
const WRITE: u16 = 1;
/// IOCB_FLAG_RESFD: `aio_resfd` is valid.
const SIGNALS: u32 = 1;
/// `aio_ring.magic`.
const MAGIC: u32 = 0xa10a_10a1;

/// The beginning of the memory that the kernel writes completions to. Part of the kernel's interface: libaio reads it, too.
#[repr(C)]
struct Completions {
    id: u32,
    /// The number of completions that fit.
    room: u32,
    /// Index of the first completion that is not read.
    head: u32,
    /// Index of the next completion that the kernel writes.
    tail: u32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_bytes: u32,
}

/// A completion, as it lies behind [`Completions`] (`struct io_event`).
#[repr(C)]
struct Completion {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

/// A context for requests, which one thread has at a time.
#[derive(Debug)]
pub(super) struct AioSignaler {
    /// The context's number, which is also the address of its [`Completions`]. `None`: it is among the spare ones.
    context: Option<libc::c_ulong>,
}

/// The empty file that requests read.
static EMPTY: OnceLock<OwnedFd> = OnceLock::new();

/// Contexts of threads that have ended, to be used again: destroying a context takes some 30 ms.
static SPARE: Mutex<Vec<AioSignaler>> = Mutex::new(Vec::new());

impl AioSignaler {
    /// A context. `None`: the kernel has no io_submit(2), or not for this process, or no context left (fs.aio-max-nr).
    pub(super) fn new() -> Option<AioSignaler> {
        if let Some(spare) = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Some(spare);
        }
        if EMPTY.get().is_none() {
            let _ = EMPTY.set(memfd_create("ringway-calls", MemfdFlags::CLOEXEC).ok()?);
        }
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup writes the context's number to the variable, which outlives the call.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, REQUESTS, &raw mut context) };
        if made != 0 {
            return None;
        }
        let signaler = AioSignaler { context: Some(context) };
        if signaler.is_understood() {
            return Some(signaler);
        }
        // SAFETY: no request was made in the context.
        unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        None
    }

    /// Returns true if the layout of completions is the one that this code knows.
    fn is_understood(&self) -> bool {
        let word = |offset| self.word(offset).map(|word| word.load(Ordering::Relaxed));
        word(offset_of!(Completions, magic)) == Some(MAGIC)
            && word(offset_of!(Completions, incompatible)) == Some(0)
            && word(offset_of!(Completions, header_bytes)) == Some(size_of::<Completions>() as u32)
    }

    /// A word of [`Completions`].
    fn word(&self, offset: usize) -> Option<&AtomicU32> {
        let address = usize::try_from(self.context?).ok().filter(|address| *address != 0)?;
        // SAFETY: io_setup(2) returns the address of a mapping that begins with `Completions` as the context's number. The mapping
        // stays, readable and writable, until io_destroy, which is never called while `context` is `Some`. `offset` is that of
        // a word of that structure, or of one of the completions behind it, so that it is aligned. The kernel writes each word as a whole.
        Some(unsafe { AtomicU32::from_ptr((address + offset) as *mut u32) })
    }

    /// Adds one to the eventfd's counter. Returns false if the kernel refused.
    #[inline]
    pub(super) fn signal(&self, eventfd: BorrowedFd<'_>) -> bool {
        let (Some(context), Some(empty)) = (self.context, EMPTY.get()) else { return false };
        // SAFETY: all zeroes is a valid iocb, which has numbers only.
        let mut request: libc::iocb = unsafe { std::mem::zeroed() };
        request.aio_lio_opcode = READ;
        request.aio_fildes = empty.as_raw_fd() as u32;
        request.aio_flags = SIGNALS;
        request.aio_resfd = eventfd.as_raw_fd() as u32;
        let requests = [&raw mut request, null_mut()];
        // SAFETY: the list has one request, which outlives the call and reads 0 bytes. The kernel copies the request and writes its
        // `aio_key`.
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, context, 1 as libc::c_long, requests.as_ptr()) };
        self.read_completions();
        submitted == 1
    }

    /// Writes bytes to a socket, and adds one to `witness` in the same system call: a process that is killed has done both or nothing. The
    /// counter is increased, too, if the socket refuses the bytes. `None`: the kernel made no request, and nothing has changed.
    pub(super) fn write(
        &self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        witness: BorrowedFd<'_>,
    ) -> Option<io::Result<()>> {
        let context = self.context?;
        // SAFETY: all zeroes is a valid iocb, which has numbers only.
        let mut request: libc::iocb = unsafe { std::mem::zeroed() };
        request.aio_lio_opcode = WRITE;
        request.aio_fildes = socket.as_raw_fd() as u32;
        (request.aio_buf, request.aio_nbytes) = (bytes.as_ptr().addr() as u64, bytes.len() as u64);
        request.aio_flags = SIGNALS;
        request.aio_resfd = witness.as_raw_fd() as u32;
        let requests = [&raw mut request, null_mut()];
        // SAFETY: the list has one request, which outlives the call. The request reads `bytes`, which outlive it, too: a write to a
        // socket that does not block is done when the call returns.
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, context, 1 as libc::c_long, requests.as_ptr()) };
        let result = self.result();
        self.read_completions();
        match (submitted, result) {
            (1, Some(count)) if count == bytes.len() as i64 => Some(Ok(())),
            (1, Some(error @ ..0)) => Some(Err(io::Error::from_raw_os_error(error.unsigned_abs() as i32))),
            (1, _) => Some(Err(io::ErrorKind::WriteZero.into())),
            _ => None,
        }
    }

    /// The result of the completion that the kernel has written last, if it is not read.
    fn result(&self) -> Option<i64> {
        let word = |offset| self.word(offset);
        let tail = word(offset_of!(Completions, tail))?.load(Ordering::Acquire);
        let (head, room) = (word(offset_of!(Completions, head))?, word(offset_of!(Completions, room))?);
        let (head, room) = (head.load(Ordering::Relaxed), room.load(Ordering::Relaxed));
        if head == tail || tail > room {
            return None;
        }
        let last = if tail == 0 { room.checked_sub(1)? } else { tail - 1 } as usize;
        let at = size_of::<Completions>() + last * size_of::<Completion>() + offset_of!(Completion, result);
        let [low, high] = [at, at + 4].map(|at| word(at).map(|word| word.load(Ordering::Relaxed)));
        let (low, high) = (low?.to_ne_bytes(), high?.to_ne_bytes());
        let mut both = [0; 8];
        both[..4].copy_from_slice(&low);
        both[4..].copy_from_slice(&high);
        Some(i64::from_ne_bytes(both))
    }

    /// Tells the kernel that its completions are read. They are ignored: a completion of a signal carries no information.
    #[inline]
    fn read_completions(&self) {
        if let Some(tail) = self.word(offset_of!(Completions, tail))
            && let Some(head) = self.word(offset_of!(Completions, head))
        {
            head.store(tail.load(Ordering::Acquire), Ordering::Release);
        }
    }
}

impl Drop for AioSignaler {
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(AioSignaler { context: Some(context) });
        }
    }
}
