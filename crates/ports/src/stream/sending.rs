//! Sending without waiting.
//!
//! One `sendmsg` names the pieces of up to 512 frames: of each its length, its private head and the rest in the sender's
//! memory. Frames that the socket does not take stay with the caller. Only the rest of a frame that the socket took in part
//! is kept here (one copy of one frame); the port's thread sends that rest as soon as the socket has room, whatever else
//! comes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use ringway_switch::{Frame, Frames, MAX_FRAME};

use super::framing::{PREFIX_BYTES, prefix};
use super::line::Ended;
use crate::front_end::Connection;

/// Pieces that the kernel takes with one call (UIO_MAXIOV).
const MOST_PIECES: usize = 1024;
/// Frames for one call: each has a length and a head.
const MOST_FRAMES: usize = MOST_PIECES / 2;

/// What frames are sent over.
#[derive(Debug)]
pub struct Sending {
    socket: Option<Arc<Connection>>,
    /// A frame with its length, of which the first `sent` bytes are sent; empty: none is half sent.
    rest: Vec<u8>,
    sent: usize,
    /// The port's thread waits for room for the rest.
    awaited: bool,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub frames: u64,
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, frame: &Frame<'_, '_>) {
        self.frames += 1;
        self.bytes += frame.len() as u64;
    }
}

/// What came of a call.
enum Called {
    /// So many bytes went.
    Sent(usize),
    /// A page with some of them cannot be had.
    NoMemory,
    /// The peer has gone.
    Gone,
}

impl Sending {
    pub fn new() -> Sending {
        Sending { socket: None, rest: Vec::with_capacity(PREFIX_BYTES + MAX_FRAME), sent: 0, awaited: false }
    }

    /// A connection has begun.
    pub fn begin(&mut self, socket: Arc<Connection>) {
        self.end();
        self.socket = Some(socket);
    }

    /// It has ended.
    pub fn end(&mut self) {
        self.socket = None;
        self.rest.clear();
        self.awaited = false;
    }

    /// Whether there is a peer.
    pub fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Sends frames from the first on, many with one call, and takes them out of `frames`. What is left then had no room.
    pub fn send(&mut self, frames: &mut Frames<'_, '_>, tally: &mut Tally) -> Result<(), Ended> {
        let Some(socket) = self.socket.clone() else { return Ok(()) };
        while frames.len() > 0 && self.send_rest(&socket)? {
            match send_row(&socket, frames.clone()) {
                Called::Sent(0) => return Ok(()),
                Called::Sent(sent) => self.note(sent, frames, tally),
                // Read from here, what cannot be had is zeroes, and its port's end.
                Called::NoMemory => {
                    if let Some(frame) = frames.next() {
                        tally.add(&frame);
                        self.keep(&frame, 0);
                    }
                }
                Called::Gone => return Err(Ended::Gone),
            }
        }
        Ok(())
    }

    /// Sends what is left of a frame. True when the thread is to call again as soon as there is room.
    pub fn send_on(&mut self) -> Result<bool, Ended> {
        let Some(socket) = self.socket.clone() else { return Ok(false) };
        self.awaited = !self.send_rest(&socket)?;
        Ok(self.awaited)
    }

    /// True, once for each time, when the thread has to be told that there is a rest.
    pub fn begins_to_wait(&mut self) -> bool {
        !self.rest.is_empty() && !std::mem::replace(&mut self.awaited, true)
    }

    /// True when nothing is left of it.
    fn send_rest(&mut self, socket: &OwnedFd) -> Result<bool, Ended> {
        if self.rest.is_empty() {
            return Ok(true);
        }
        let left = &self.rest[self.sent..];
        match send(socket, &[MaybeUninit::new(piece(left.as_ptr(), left.len()))]) {
            Called::Sent(sent) => self.sent += sent,
            Called::NoMemory | Called::Gone => return Err(Ended::Gone),
        }
        if self.sent == self.rest.len() {
            self.rest.clear();
        }
        Ok(self.rest.is_empty())
    }

    /// Takes out the frames that went with `sent` bytes, and the one of which a part went.
    fn note(&mut self, mut sent: usize, frames: &mut Frames<'_, '_>, tally: &mut Tally) {
        while sent > 0
            && let Some(frame) = frames.next()
        {
            tally.add(&frame);
            let whole = PREFIX_BYTES + frame.len();
            if sent < whole {
                self.keep(&frame, sent);
            }
            sent = sent.saturating_sub(whole);
        }
    }

    /// Keeps a frame of which the first `sent` bytes, its length among them, are sent.
    fn keep(&mut self, frame: &Frame<'_, '_>, sent: usize) {
        self.rest.clear();
        self.rest.extend(prefix(frame.len()));
        self.rest.extend(&frame.head().0[..frame.head_len()]);
        for piece in frame.rest() {
            let start = self.rest.len();
            self.rest.resize(start + piece.len(), 0);
            let _ = piece.read(&mut self.rest[start..]);
        }
        self.sent = sent;
    }
}

/// Sends as many of the frames as fit into one call.
fn send_row(socket: &OwnedFd, frames: Frames<'_, '_>) -> Called {
    let mut prefixes = [[0; PREFIX_BYTES]; MOST_FRAMES];
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; MOST_PIECES];
    let mut count = 0;
    for (frame, before) in frames.zip(&mut prefixes) {
        let end = count + 2 + frame.rest().len();
        let Some([first, second, others @ ..]) = pieces.get_mut(count..end) else { break };
        *before = prefix(frame.len());
        first.write(piece(before.as_ptr(), PREFIX_BYTES));
        second.write(piece(frame.head().0.as_ptr(), frame.head_len()));
        for (other, rest) in others.iter_mut().zip(frame.rest()) {
            other.write(piece(rest.as_ptr(), rest.len()));
        }
        count = end;
    }
    send(socket, &pieces[..count])
}

fn piece(start: *const u8, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bytes }
}

/// Each piece is written, and what it names is mapped while this runs.
fn send(socket: &OwnedFd, pieces: &[MaybeUninit<libc::iovec>]) -> Called {
    // SAFETY: all zeroes is a valid msghdr: no address, no control data, no pieces.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len() as _;
    loop {
        // SAFETY: the callers, all in this file, have written every piece; each is a slice or view that they borrow until this
        // returns, and is only read. Bytes that a client changes meanwhile are sent old or new.
        let sent =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        if let Ok(sent) = usize::try_from(sent) {
            return Called::Sent(sent);
        }
        return match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => continue,
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Called::Sent(0),
            Some(libc::EFAULT) => Called::NoMemory,
            _ => Called::Gone,
        };
    }
}
