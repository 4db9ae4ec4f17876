//! Requests and their answers on a connection that other processes may share.
//!
//! Each request has a tag, and its answer has the same. Every process looks at the message at the front of the socket and takes it if it is the
//! answer to its own request. A message for another is left there. If that one does not take it, it has ended or has given up, and the message is
//! dropped after a while, as are the answers that came too late for this process's own requests.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_abi::attach::{REPLY_BYTES, REPLY_FDS};
use ringway_abi::netmap::{Reply, Request, tag_of, tagged};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};
use rustix::thread::nanosleep;

use crate::clock::Deadline;
use crate::lock;

/// Time that another process has for taking its answer, in seconds. One that waits takes it at once.
const TAKE_WITHIN: i64 = 2;
/// Time between two looks while another process's answer is at the front.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Bits of a tag that count requests. Those above are random: they tell the files of processes that share a connection apart.
const COUNT_BITS: u32 = 24;

/// The descriptors of an answer.
pub(crate) type Descriptors = [Option<OwnedFd>; REPLY_FDS];

/// A message, without memory from the program's allocator: signal handlers ask, too.
struct Message {
    space: [u8; REPLY_BYTES],
    length: usize,
    descriptors: Descriptors,
}

impl Message {
    const fn new() -> Self {
        Self { space: [0; REPLY_BYTES], length: 0, descriptors: [const { None }; REPLY_FDS] }
    }

    fn bytes(&self) -> &[u8] {
        &self.space[..self.length.min(REPLY_BYTES)]
    }

    fn answer(self) -> Result<(Reply, Descriptors), c_int> {
        match Reply::decode(self.bytes()) {
            Ok(Reply::Refused { errno, .. }) => Err(c_int::from(errno)),
            Ok(reply) => Ok((reply, self.descriptors)),
            Err(_) => Err(libc::ENXIO),
        }
    }
}

/// The tags of a file's requests: the last one, or 0.
pub(crate) struct Tags(AtomicU64);

impl Tags {
    pub(crate) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Forgets the tags: the file is a new one, or the process is the child of a fork.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns the tag of the next request.
    fn next(&self) -> u64 {
        if self.0.load(Ordering::Relaxed) == 0 {
            let mut bytes = [0; 8];
            let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
            self.0.store((u64::from_ne_bytes(bytes) | 1 << 63) >> COUNT_BITS << COUNT_BITS, Ordering::Relaxed);
        }
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns true if an earlier or the last request of the file has this tag.
    fn has(&self, tag: u64) -> bool {
        tag >> COUNT_BITS == self.0.load(Ordering::Relaxed) >> COUNT_BITS
    }
}

/// Sends a request and returns the answer.
///
/// # Errors
/// The daemon's refusal; ENXIO if the daemon has gone, or does not answer in time. EINTR: a signal handler has forked, and this is the child:
/// the request is the parent's.
pub(crate) fn ask(
    socket: BorrowedFd<'_>,
    tags: &Tags,
    request: &Request,
    deadline: Deadline,
) -> Result<(Reply, Descriptors), c_int> {
    let (tag, process) = (tags.next(), lock::process());
    let message = tagged(request.encode(), tag);
    loop {
        match send(socket, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => break,
            Err(Errno::AGAIN) => wait(socket, PollFlags::OUT, deadline, process)?,
            Err(Errno::INTR) => {}
            Err(_) => return Err(libc::ENXIO),
        }
    }
    // Another process's answer at the front, and until when it may stay there.
    let mut front = None;
    loop {
        wait(socket, PollFlags::IN, deadline, process)?;
        let Some(message) = peek(socket)? else { continue };
        match tag_of(message.bytes()) {
            0 => return message.answer(),
            other if other != tag && !tags.has(other) => match front {
                Some((seen, until)) if seen == other => {
                    if Deadline::left(until).is_some() {
                        let _ = nanosleep(&LOOK_EVERY);
                        continue;
                    }
                }
                _ => {
                    front = Some((other, Deadline::after(TAKE_WITHIN)));
                    continue;
                }
            },
            _ => {}
        }
        let Some(message) = take(socket)? else { continue };
        if tag_of(message.bytes()) == tag {
            return message.answer();
        }
    }
}

/// Waits until the socket can be read or written. EINTR: this is no longer the process.
fn wait(socket: BorrowedFd<'_>, what: PollFlags, deadline: Deadline, process: u64) -> Result<(), c_int> {
    loop {
        let left = deadline.left().ok_or(libc::ENXIO)?;
        let polled = poll(&mut [PollFd::new(&socket, what)], Some(&left));
        if lock::process() != process {
            return Err(libc::EINTR);
        }
        match polled {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(_) => return Err(libc::ENXIO),
        }
    }
}

/// Returns the message at the front, and leaves it there. `None`: there is none any more.
fn peek(socket: BorrowedFd<'_>) -> Result<Option<Message>, c_int> {
    let mut message = Message::new();
    match recv(socket, &mut message.space[..], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
        Ok((_, 0)) => Err(libc::ENXIO),
        Ok((_, bytes)) => {
            message.length = bytes;
            Ok(Some(message))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err(libc::ENXIO),
    }
}

/// Takes the message at the front. `None`: there is none any more.
fn take(socket: BorrowedFd<'_>) -> Result<Option<Message>, c_int> {
    let mut message = Message::new();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REPLY_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [std::io::IoSliceMut::new(&mut message.space)];
    message.length = match recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT) {
        Ok(received) if received.bytes == 0 => return Err(libc::ENXIO),
        Ok(received) => received.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(_) => return Err(libc::ENXIO),
    };
    let mut places = message.descriptors.iter_mut();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            // The space is for no more than there are places.
            rights.zip(places.by_ref()).for_each(|(descriptor, place)| *place = Some(descriptor));
        }
    }
    Ok(Some(message))
}
