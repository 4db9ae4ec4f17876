//! Sending without waiting, such that a successor of the switch goes on at the exact byte.
//!
//! One `sendmmsg` names the pieces of many frames: of each frame its length, its private head and the rest in the sender's memory. The frames are in messages of up to 35 KiB. The kernel
//! takes such a message as a whole or not at all, wherever the switch dies: it makes one buffer of it (net/unix, `unix_stream_sendmsg`). Frames that the socket
//! does not take stay with the caller.
//!
//! A longer frame is written into a pipe, and from there into the socket (`lasting.rs`), as much as there is room for. The port's thread sends the rest as soon as the socket has room,
//! whatever else comes. The frame counts as delivered when its last byte is sent, and as lost if the connection ends before ([`Late`]). A frame that the pipe has no room for
//! as a whole is dropped: the limit of all pipes of a user keeps a pipe from being as large as the longest frame (pipe(7)).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use ringway_port::front_end::Connection;
use ringway_switch::{Frame, Frames, MAX_FRAME};
use rustix::io::Errno;
use rustix::net::sockopt::socket_send_buffer_size;
use rustix::pipe::{SpliceFlags, splice};

use super::ended::Ended;
use super::framing::{PREFIX_BYTES, prefix};
use super::lasting::Lasting;

/// Most bytes in one message. A buffer of the kernel has room for them: it is one piece of 32 KiB, and a page less its end of at most 768 bytes. Fewer than 32 KiB and a few
/// hundred would be several pieces, which take the kernel longer.
const MOST_BYTES: usize = 35 << 10;
/// Most messages in one call.
const MOST_MESSAGES: usize = 32;
/// Most pieces in one call (`UIO_MAXIOV`).
const MOST_PIECES: usize = 1024;
/// Most frames in one call: each has at least two pieces, its length and its head.
const MOST_FRAMES: usize = MOST_PIECES / 2;

/// The sending side of a connection.
#[derive(Debug)]
pub struct Sending {
    socket: Option<Arc<Connection>>,
    /// Most bytes that the kernel takes as a whole.
    most: usize,
    lasting: Arc<Lasting>,
    /// Bytes of the frame in the pipe, with its length field, and those that are not sent. 0: no frame is there.
    long: usize,
    left: usize,
    /// True while the port's thread waits until the socket has room for the rest.
    awaited: bool,
    late: Late,
    /// Frames that the pipe has no room for, and that no counter of the port has yet.
    pub too_long: u64,
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

/// Frames that were sent by the pipe, and that no counter of the port has yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// Those that were sent to their end.
    pub sent: Tally,
    /// Those whose connection ended before.
    pub lost: u64,
}

/// The result of a system call.
enum Called {
    /// The kernel took this many messages.
    Sent(usize),
    /// A page with some of the bytes was lost.
    NoMemory,
    /// The peer has disconnected.
    Gone,
}

impl Sending {
    pub fn new(lasting: Arc<Lasting>) -> Sending {
        let late = Late::default();
        Sending { socket: None, most: MOST_BYTES, lasting, long: 0, left: 0, awaited: false, late, too_long: 0 }
    }

    /// Starts sending on a connection. `goes_on`: a predecessor of the switch has sent on it.
    pub fn begin(&mut self, socket: Arc<Connection>, goes_on: bool) -> io::Result<()> {
        self.end();
        // The kernel keeps room for two buffers (net/unix).
        self.most = MOST_BYTES.min((socket_send_buffer_size(&*socket)? / 2).saturating_sub(64));
        let long = if goes_on { self.lasting.long() } else { 0 };
        let mut left = 0;
        if long == 0 {
            self.empty_pipe();
        } else {
            left = usize::try_from(rustix::io::ioctl_fionread(&self.lasting.pipe.read)?).unwrap_or(usize::MAX);
            if left > long || !(PREFIX_BYTES + 1..=PREFIX_BYTES + MAX_FRAME).contains(&long) {
                return Err(io::Error::other("what is in the pipe is no frame"));
            }
        }
        (self.long, self.left) = (long, left);
        self.socket = Some(socket);
        Ok(())
    }

    /// Ends sending: drops the connection and the rest of a frame.
    pub fn end(&mut self) {
        self.socket = None;
        self.late.lost += u64::from(self.long > 0);
        (self.long, self.left, self.awaited) = (0, 0, false);
    }

    /// Returns true if a peer is connected.
    pub fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Sends frames in order, many with one call, and removes them from `frames`. For frames that remain, the socket
    /// had no room.
    pub fn send(&mut self, frames: &mut Frames<'_, '_>, tally: &mut Tally) -> Result<(), Ended> {
        let Some(socket) = self.socket.clone() else { return Ok(()) };
        let mut space = Space::default();
        while self.send_rest(&socket)?
            && let Some(frame) = frames.clone().next()
        {
            if PREFIX_BYTES + frame.len() > self.most {
                if !self.begin_long(&frame, &mut space) {
                    return Ok(());
                }
                frames.next();
                continue;
            }
            let row = space.fill(frames.clone(), self.most);
            match send(&socket, row.messages) {
                Called::Sent(0) => return Ok(()),
                Called::Sent(count) => {
                    let sent = row.messages.iter().zip(row.sizes).take(count);
                    let (mut whole, mut is_cut) = (0, false);
                    for (message, size) in sent {
                        // SAFETY: see `Row`.
                        is_cut |= unsafe { message.assume_init_ref() }.msg_len as usize != size.bytes;
                        whole += size.frames;
                    }
                    frames.by_ref().take(whole).for_each(|frame| tally.add(frame.len()));
                    // A kernel that cuts what it should not: a successor would not know where.
                    if is_cut {
                        return Err(Ended::Gone);
                    }
                }
                Called::NoMemory if !self.begin_long(&frame, &mut space) => return Ok(()),
                Called::NoMemory => _ = frames.next(),
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
        self.long > 0 && !std::mem::replace(&mut self.awaited, true)
    }

    /// Returns true if [`Sending::take_late`] has something.
    pub fn has_late(&self) -> bool {
        self.late != Late::default()
    }

    /// Returns the frames that the port has to count now, and forgets them.
    pub fn take_late(&mut self) -> Late {
        std::mem::take(&mut self.late)
    }

    /// Sends the rest of the frame in the pipe. Returns true when nothing is left of it.
    #[inline]
    fn send_rest(&mut self, socket: &OwnedFd) -> Result<bool, Ended> {
        if self.long > 0 { self.splice(socket) } else { Ok(true) }
    }

    fn splice(&mut self, socket: &OwnedFd) -> Result<bool, Ended> {
        while self.left > 0 {
            match splice(&self.lasting.pipe.read, None, socket, None, self.left, SpliceFlags::NONBLOCK) {
                Ok(sent @ 1..) => self.left = self.left.saturating_sub(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Ok(false),
                Ok(0) | Err(_) => return Err(Ended::Gone),
            }
        }
        self.lasting.note_long(0);
        self.late.sent.add(std::mem::take(&mut self.long) - PREFIX_BYTES);
        Ok(true)
    }

    /// Writes a frame into the pipe, which is empty, or counts it if the pipe has no room for it. Returns false if the kernel has no memory.
    fn begin_long(&mut self, frame: &Frame<'_, '_>, space: &mut Space) -> bool {
        if frame.len() > self.lasting.longest {
            self.too_long += 1;
            return true;
        }
        let whole = PREFIX_BYTES + frame.len();
        let row = space.fill(std::iter::once(*frame), whole);
        let is_written = write(&self.lasting.pipe.write, &row) == Some(whole) || {
            // A page with some of the bytes was lost. They are read as zeroes, and the loss ends the sender's port.
            self.empty_pipe();
            rustix::io::write(&self.lasting.pipe.write, &copy(frame)) == Ok(whole)
        };
        if !is_written {
            self.empty_pipe();
            return false;
        }
        self.lasting.note_long(whole);
        (self.long, self.left) = (whole, whole);
        true
    }

    #[cold]
    fn empty_pipe(&self) {
        let mut bytes = [0; 4096];
        while matches!(rustix::io::read(&self.lasting.pipe.read, &mut bytes), Ok(1..) | Err(Errno::INTR)) {}
    }
}

/// The bytes of a frame with its length field.
#[cold]
fn copy(frame: &Frame<'_, '_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + frame.len());
    bytes.extend(prefix(frame.len()));
    bytes.extend(&frame.head().0[..frame.head_len()]);
    for piece in frame.rest() {
        let start = bytes.len();
        bytes.resize(start + piece.len(), 0);
        let _ = piece.read(&mut bytes[start..]);
    }
    bytes
}

/// Room for a row.
struct Space {
    prefixes: [[u8; PREFIX_BYTES]; MOST_FRAMES],
    pieces: [MaybeUninit<libc::iovec>; MOST_PIECES],
    messages: [MaybeUninit<libc::mmsghdr>; MOST_MESSAGES],
    sizes: [Size; MOST_MESSAGES],
}

/// What is in a message.
#[derive(Clone, Copy, Default)]
struct Size {
    frames: usize,
    bytes: usize,
}

impl Default for Space {
    fn default() -> Space {
        Space {
            prefixes: [[0; PREFIX_BYTES]; MOST_FRAMES],
            pieces: [const { MaybeUninit::uninit() }; MOST_PIECES],
            messages: [const { MaybeUninit::uninit() }; MOST_MESSAGES],
            sizes: [Size::default(); MOST_MESSAGES],
        }
    }
}

/// Messages with the pieces of frames, one after the other. Each was written. They name these pieces, which name memory that stays mapped for `'a`.
struct Row<'a> {
    pieces: &'a [MaybeUninit<libc::iovec>],
    messages: &'a mut [MaybeUninit<libc::mmsghdr>],
    sizes: &'a [Size],
}

impl Space {
    /// Takes as many frames as one call may have, in messages of up to `most` bytes with their length fields, up to the first frame that has more.
    #[inline]
    fn fill<'a, 'f: 'a, 'm: 'f>(&'a mut self, frames: impl Iterator<Item = Frame<'f, 'm>>, most: usize) -> Row<'a> {
        let Space { prefixes, pieces, messages, sizes } = self;
        let (mut count, mut last) = (0, 0);
        sizes[0] = Size::default();
        // Where the pieces of each message begin and end.
        let mut ends = [0; MOST_MESSAGES + 1];
        for (frame, before) in frames.zip(prefixes) {
            let (end, bytes) = (count + 2 + frame.rest().len(), PREFIX_BYTES + frame.len());
            let is_full = sizes[last].bytes + bytes > most;
            if bytes > most || is_full && last + 1 == MOST_MESSAGES {
                break;
            }
            let Some([first, second, others @ ..]) = pieces.get_mut(count..end) else { break };
            *before = prefix(frame.len());
            first.write(piece(before.as_ptr(), PREFIX_BYTES));
            second.write(piece(frame.head().0.as_ptr(), frame.head_len()));
            for (other, rest) in others.iter_mut().zip(frame.rest()) {
                other.write(piece(rest.as_ptr(), rest.len()));
            }
            if is_full {
                last += 1;
                sizes[last] = Size::default();
            }
            sizes[last] = Size { frames: sizes[last].frames + 1, bytes: sizes[last].bytes + bytes };
            (count, ends[last + 1]) = (end, end);
        }
        for (message, range) in messages.iter_mut().zip(ends.windows(2)).take(last + 1) {
            // SAFETY: all zeroes is a valid mmsghdr: no address, no control data, no buffers.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = pieces[range[0]..].as_ptr().cast_mut().cast();
            header.msg_hdr.msg_iovlen = (range[1] - range[0]) as _;
            message.write(header);
        }
        Row { pieces: &pieces[..count], messages: &mut messages[..=last], sizes }
    }
}

fn piece(start: *const u8, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bytes }
}

/// Sends the messages of a row. The kernel notes the sent bytes in those that it took.
fn send(socket: &OwnedFd, messages: &mut [MaybeUninit<libc::mmsghdr>]) -> Called {
    let (first, count) = (messages.as_mut_ptr().cast(), messages.len() as libc::c_uint);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: the messages and their pieces were written, and each piece is a slice or view that the row borrows, and is only read. Bytes that
        // a client changes meanwhile are sent in the old or the new state.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), first, count, flags as _) };
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

/// Writes a row into a pipe that has room for it. Returns the number of bytes that were written, if there were any.
fn write(pipe: &OwnedFd, row: &Row<'_>) -> Option<usize> {
    let (pieces, count) = (row.pieces.as_ptr().cast(), row.pieces.len() as libc::c_int);
    // SAFETY: as of `send`.
    usize::try_from(unsafe { libc::writev(pipe.as_raw_fd(), pieces, count) }).ok()
}
