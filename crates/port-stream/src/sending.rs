//! Sending without waiting.
//!
//! One `sendmsg` names the pieces of up to 512 frames: of each its length, its private head and the rest in the sender's
//! memory. Frames that the socket does not take stay with the caller. Only the rest of a frame that the socket took in part
//! is kept here (one copy of one frame); the port's thread sends that rest as soon as the socket has room, whatever else
//! comes. The frame counts as delivered when its last byte is sent, and as lost if the connection ends before ([`Late`]).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use ringway_port::front_end::Connection;
use ringway_switch::{Frame, Frames, MAX_FRAME};

use super::ended::Ended;
use super::framing::{PREFIX_BYTES, prefix};

/// Most pieces in one call (`UIO_MAXIOV`).
const MOST_PIECES: usize = 1024;
/// Most frames in one call: each has at least two pieces, its length and its head.
const MOST_FRAMES: usize = MOST_PIECES / 2;

/// The sending side of a connection.
#[derive(Debug)]
pub struct Sending {
    socket: Option<Arc<Connection>>,
    /// A partly sent frame with its length field. The first `sent` bytes are sent. Empty if no frame is partly sent.
    rest: Vec<u8>,
    sent: usize,
    /// True while the port's thread waits until the socket has room for the rest.
    awaited: bool,
    late: Late,
}

/// Counts the sent frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub frames: u64,
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, len: usize) {
        self.frames += 1;
        self.bytes += len as u64;
    }
}

/// Frames that were kept as a rest, and that no counter of the port has yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// Those that were sent to their end.
    pub sent: Tally,
    /// Those whose connection ended before.
    pub lost: u64,
}

/// The result of a system call.
enum Called {
    /// The kernel took this many bytes.
    Sent(usize),
    /// A page with some of the bytes was lost.
    NoMemory,
    /// The peer has disconnected.
    Gone,
}

impl Sending {
    pub fn new() -> Sending {
        Sending {
            socket: None,
            rest: Vec::with_capacity(PREFIX_BYTES + MAX_FRAME),
            sent: 0,
            awaited: false,
            late: Late::default(),
        }
    }

    /// Starts sending on a new connection.
    pub fn begin(&mut self, socket: Arc<Connection>) {
        self.end();
        self.socket = Some(socket);
    }

    /// Ends sending: drops the connection and the rest of a frame.
    pub fn end(&mut self) {
        self.socket = None;
        self.late.lost += u64::from(!self.rest.is_empty());
        self.rest.clear();
        self.awaited = false;
    }

    /// Returns true if a peer is connected.
    pub fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Sends frames in order, many with one call, and removes them from `frames`. For frames that remain, the socket
    /// had no room.
    pub fn send(&mut self, frames: &mut Frames<'_, '_>, tally: &mut Tally) -> Result<(), Ended> {
        let Some(socket) = self.socket.clone() else { return Ok(()) };
        while frames.len() > 0 && self.send_rest(&socket)? {
            match send_row(&socket, frames.clone()) {
                Called::Sent(0) => return Ok(()),
                Called::Sent(sent) => self.note(sent, frames, tally),
                // The read in `keep` finds zeroes in place of lost pages, and the loss ends the sender's port.
                Called::NoMemory => {
                    if let Some(frame) = frames.next() {
                        self.keep(&frame, 0);
                    }
                }
                Called::Gone => return Err(Ended::Gone),
            }
        }
        Ok(())
    }

    /// Sends the rest of a frame. Returns true if the thread has to call again when the socket has room.
    pub fn send_on(&mut self) -> Result<bool, Ended> {
        let Some(socket) = self.socket.clone() else { return Ok(false) };
        self.awaited = !self.send_rest(&socket)?;
        Ok(self.awaited)
    }

    /// Returns true if the thread has to be told that it must wait for room. True only once for each wait.
    pub fn begins_waiting(&mut self) -> bool {
        !self.rest.is_empty() && !std::mem::replace(&mut self.awaited, true)
    }

    /// Returns true if [`Sending::take_late`] has something.
    pub fn has_late(&self) -> bool {
        self.late != Late::default()
    }

    /// Returns the frames that the port has to count now, and forgets them.
    pub fn take_late(&mut self) -> Late {
        std::mem::take(&mut self.late)
    }

    /// Sends the rest of a frame. Returns true when nothing is left of it.
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
            self.late.sent.add(self.rest.len() - PREFIX_BYTES);
            self.rest.clear();
        }
        Ok(self.rest.is_empty())
    }

    /// Removes the frames that were sent with `sent` bytes. Keeps the last one if only a part of it was sent.
    fn note(&mut self, mut sent: usize, frames: &mut Frames<'_, '_>, tally: &mut Tally) {
        while sent > 0
            && let Some(frame) = frames.next()
        {
            let whole = PREFIX_BYTES + frame.len();
            if sent < whole {
                self.keep(&frame, sent);
            } else {
                tally.add(frame.len());
            }
            sent = sent.saturating_sub(whole);
        }
    }

    /// Keeps a frame whose first `sent` bytes are sent, counted from its length field.
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

/// Sends as many frames as fit into one call.
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

/// Sends the pieces. The caller has written each piece, and the memory that it names stays mapped during the call.
fn send(socket: &OwnedFd, pieces: &[MaybeUninit<libc::iovec>]) -> Called {
    // SAFETY: all zeroes is a valid msghdr: no address, no control data, no buffers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len() as _;
    loop {
        // SAFETY: the callers, all in this file, have written every piece. Each piece is a slice or view that the
        // caller borrows until this returns, and is only read. Bytes that a client changes meanwhile are sent in the
        // old or the new state.
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
