//! Complete messages, each with the descriptors beside it.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};

use super::closer::ClientFd;
use super::connection::{Connection, MESSAGE_WITHIN};
use super::end::End;
use super::files::{peek_bytes, set_peek_offset};

/// How a protocol delimits messages: a header of fixed size gives the length of the body.
pub trait Framing {
    /// A decoded, checked header.
    type Header: Copy;
    /// Why a header is invalid. The text is for users.
    type Error: std::error::Error;
    /// Length of a header in bytes.
    const HEADER_BYTES: usize;
    /// Length of the longest body in bytes.
    const MOST_BODY_BYTES: usize;
    /// Most descriptors with one message.
    const MOST_FDS: usize;
    /// How many bytes of later messages may be received together with the current one. If this is not 0, descriptors
    /// belong to the last message that begins in the bytes that they arrive with. A sender of descriptors must then
    /// send no further message in the same call.
    const AHEAD_BYTES: usize = 0;

    /// Decodes a header. Returns it and the length of the body, at most [`Framing::MOST_BODY_BYTES`].
    ///
    /// # Errors
    /// The header is not that of a message that the receiver could follow.
    fn decode(header: &[u8]) -> Result<(Self::Header, usize), Self::Error>;

    /// Returns what is attached to this message. For receivers that leave messages in the socket.
    fn attached(header: Self::Header, body: &[u8]) -> Attached {
        let _ = (header, body);
        Attached::Files
    }
}

/// The files that belong to a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attached {
    /// None.
    #[default]
    Nothing,
    /// All that it comes with.
    Files,
    /// All that it comes with, and they are of no use.
    Ignored,
}

/// The result of [`Receiver::receive`].
#[derive(Debug, PartialEq, Eq)]
pub enum Received<H> {
    /// A message is complete; [`Receiver::take`] returns its body.
    Message(H),
    /// There is nothing more to receive now.
    Nothing,
    /// The front end has disconnected.
    Gone,
}

/// Why a connection is no longer usable.
#[derive(Debug, thiserror::Error)]
pub enum SocketError<E: std::error::Error> {
    /// An invalid message.
    #[error(transparent)]
    Message(E),
    /// Too many descriptors.
    #[error(
        "more than {0} file descriptors came with a message, they cannot be examined, or none are left for them here (ulimit -n)"
    )]
    Descriptors(usize),
    /// Files without a message that they belong to.
    #[error("file descriptors came with a message that has none, or not with the message that has them")]
    OtherFiles,
}

impl<E: std::error::Error> SocketError<E> {
    /// The name of the reason in status and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Message(_) => "bad_message",
            Self::OtherFiles => "bad_message",
            Self::Descriptors(_) => "too_many_descriptors",
        }
    }
}

impl<E: std::error::Error> From<SocketError<E>> for End {
    fn from(error: SocketError<E>) -> End {
        End::Fault(error.name(), error.to_string())
    }
}

/// Receives messages. It owns their descriptors from the moment they arrive.
pub struct Receiver<F: Framing> {
    bytes: Box<[u8]>,
    /// The range of `bytes` that was received and not taken. The first message begins at `start`.
    start: usize,
    end: usize,
    /// The decoded header of the first message, and the length of the whole message.
    header: Option<(F::Header, usize)>,
    /// Descriptors, each with the end (in `bytes`) of the bytes that it arrived with.
    fds: Vec<(usize, ClientFd)>,
    begun: Option<Instant>,
    /// Of a receiver that leaves messages in the socket: what it has seen of the first one.
    looked: Option<Looked>,
}

/// A message in a socket.
#[derive(Clone, Copy, Default)]
struct Looked {
    bytes: usize,
    /// How many are the message's, as its kind says; `None`: any number.
    files: Option<usize>,
    /// Files came with it, or with a message behind it.
    may_have_files: bool,
}

impl<F: Framing> Receiver<F> {
    const LONGEST: usize = F::HEADER_BYTES + F::MOST_BODY_BYTES;
    const ROOM: usize = Self::LONGEST + F::AHEAD_BYTES;

    /// A receiver for a new connection.
    #[allow(clippy::new_without_default, reason = "it allocates")]
    pub fn new() -> Self {
        let bytes = vec![0; Self::ROOM].into();
        Receiver { bytes, start: 0, end: 0, header: None, fds: Vec::new(), begun: None, looked: None }
    }

    /// A receiver that leaves each message in the socket until [`Receiver::consume`]: a successor of the switch finds it there. The protocol must have no
    /// `AHEAD_BYTES`.
    #[must_use]
    pub fn peeking() -> Self {
        Receiver { looked: Some(Looked::default()), ..Self::new() }
    }

    /// Returns true if the socket is readable because of bytes that this receiver has seen: a message that is not complete. Look again after a while.
    pub fn waits(&self) -> bool {
        self.looked.is_some() && self.end > self.start
    }

    /// Takes the message that [`take`](Self::take) returned last out of the socket: as a whole or not at all, whenever the switch dies.
    ///
    /// # Errors
    /// The connection broke, the closer cannot receive, or the message came with other files than those that belong to it.
    pub fn consume(&mut self, socket: &Connection) -> Result<(), End> {
        let Some(looked) = self.looked.as_mut().map(std::mem::take) else { return Ok(()) };
        if looked.may_have_files {
            // If the message has others, they are closed there.
            let is_right = socket.discard(looked.bytes, looked.files);
            return if is_right { Ok(()) } else { Err(SocketError::<F::Error>::OtherFiles.into()) };
        }
        let mut into = vec![0; looked.bytes];
        let mut left = &mut into[..];
        while !left.is_empty() {
            // No bytes with files are among these, so that this is one step.
            match recv(&**socket, &mut *left, RecvFlags::DONTWAIT) {
                Ok((_, count @ 1..)) => left = left.split_at_mut(count.min(left.len())).1,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return Err(End::Disconnected),
            }
        }
        Ok(())
    }

    /// Returns an error if the message that has begun is not complete in time.
    pub fn check_deadline(&self, now: Instant) -> Result<(), End> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        Err(End::Fault("message_too_slow", format!("a message was not whole within {MESSAGE_WITHIN:?}")))
    }

    /// When the message that has begun must be complete.
    pub fn deadline(&self) -> Option<Instant> {
        self.begun.map(|begun| begun.checked_add(MESSAGE_WITHIN).unwrap_or(begun))
    }

    /// Receives until a message is complete or nothing more can be received now.
    ///
    /// # Errors
    /// The bytes are not a valid message, or too many descriptors came with them.
    pub fn receive(&mut self, socket: &Connection) -> Result<Received<F::Header>, SocketError<F::Error>> {
        if self.looked.is_some() {
            return self.look(socket);
        }
        loop {
            let have = self.end.saturating_sub(self.start);
            let wanted = match self.header {
                Some((header, whole)) if have >= whole => return Ok(Received::Message(header)),
                Some((_, whole)) => whole,
                None if have >= F::HEADER_BYTES => {
                    let bytes = &self.bytes[self.start..][..F::HEADER_BYTES];
                    let (header, body) = F::decode(bytes).map_err(SocketError::Message)?;
                    self.header = Some((header, F::HEADER_BYTES.saturating_add(body.min(F::MOST_BODY_BYTES))));
                    continue;
                }
                None => F::HEADER_BYTES,
            };
            self.make_room();
            let most = if F::AHEAD_BYTES == 0 { self.start.saturating_add(wanted) } else { self.bytes.len() };
            // Files stay beside the bytes in the socket: the closer receives them.
            let result = peek_bytes(socket, &mut self.bytes[self.end..most]);
            if have > 0 || result.is_ok() {
                self.begun.get_or_insert_with(Instant::now);
            }
            let (count, has_files) = match result {
                Ok(seen) => seen,
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::INTR) => continue,
                Err(_) => return Ok(Received::Gone),
            };
            let seen = self.end..self.end.saturating_add(count);
            if has_files {
                let files = socket.take(count).ok_or(SocketError::Descriptors(F::MOST_FDS))?;
                self.fds.extend(files.into_iter().map(|file| (seen.end, file)));
            } else if count > 0 && recv(&**socket, &mut self.bytes[seen.clone()], RecvFlags::DONTWAIT).is_err() {
                return Ok(Received::Gone);
            }
            self.end = seen.end;
            // All these descriptors belong to one message, which has just become complete or is incomplete: the kernel
            // ends a receive after bytes that carry descriptors.
            if self.fds.len() > F::MOST_FDS {
                return Err(SocketError::Descriptors(F::MOST_FDS));
            }
            if count == 0 {
                return Ok(Received::Gone);
            }
        }
    }

    /// The same, and leaves everything in the socket.
    ///
    /// A look brings the files of the first bytes from there on that have some, also if these bytes are behind those that were asked for (Linux 6.18,
    /// `unix_stream_read_generic`). So the message's kind says whether it has files. Taking it out of the socket tells whether they were its own.
    fn look(&mut self, socket: &Connection) -> Result<Received<F::Header>, SocketError<F::Error>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let mut looked = self.looked.unwrap_or_default();
        loop {
            let have = self.end.saturating_sub(self.start);
            let wanted = match self.header {
                Some((header, whole)) if have >= whole => {
                    let body = self.start.saturating_add(F::HEADER_BYTES)..self.start.saturating_add(whole);
                    let attached = F::attached(header, &self.bytes[body]);
                    if looked.may_have_files && self.fds.is_empty() && attached == Attached::Files {
                        if set_peek_offset(&**socket, 0).is_err() {
                            return Ok(Received::Gone);
                        }
                        let files = socket.peek(whole).ok_or(SocketError::Descriptors(F::MOST_FDS))?;
                        self.fds.extend(files.into_iter().map(|file| (self.end, file)));
                    }
                    if self.fds.len() > F::MOST_FDS {
                        return Err(SocketError::Descriptors(F::MOST_FDS));
                    }
                    looked.bytes = whole;
                    looked.files = (attached != Attached::Ignored).then_some(self.fds.len());
                    self.looked = Some(looked);
                    return Ok(Received::Message(header));
                }
                Some((_, whole)) => whole,
                None if have >= F::HEADER_BYTES => {
                    let bytes = &self.bytes[self.start..][..F::HEADER_BYTES];
                    let (header, body) = F::decode(bytes).map_err(SocketError::Message)?;
                    self.header = Some((header, F::HEADER_BYTES.saturating_add(body.min(F::MOST_BODY_BYTES))));
                    continue;
                }
                None => F::HEADER_BYTES,
            };
            let most = self.start.saturating_add(wanted);
            if set_peek_offset(&**socket, have).is_err() {
                return Ok(Received::Gone);
            }
            let (count, may_have_files) = match peek_bytes(socket, &mut self.bytes[self.end..most]) {
                Ok((0, _)) => return Ok(Received::Gone),
                Ok(seen) => seen,
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::INTR) => continue,
                Err(_) => return Ok(Received::Gone),
            };
            self.begun.get_or_insert_with(Instant::now);
            self.end = self.end.saturating_add(count);
            looked.may_have_files |= may_have_files;
            self.looked = Some(looked);
        }
    }

    /// Takes the complete message: returns its body and its descriptors. The next message may then begin.
    pub fn take(&mut self) -> (&[u8], Vec<ClientFd>) {
        let whole = self.header.take().map_or(F::HEADER_BYTES, |(_, whole)| whole);
        let body = self.start.saturating_add(F::HEADER_BYTES)..self.start.saturating_add(whole);
        (self.start, self.begun) = (body.end, None);
        let own = self.fds.partition_point(|(end, _)| *end <= self.start);
        let fds = self.fds.drain(..own).map(|(_, file)| file).collect();
        (&self.bytes[body], fds)
    }

    /// Moves the received bytes to the beginning of the buffer if the longest message would not fit after `start`.
    fn make_room(&mut self) {
        if self.start.saturating_add(Self::LONGEST) <= self.bytes.len() {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.fds.iter_mut().for_each(|(end, _)| *end = end.saturating_sub(self.start));
        (self.start, self.end) = (0, self.end.saturating_sub(self.start));
    }
}

/// The result of [`send`].
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// The whole answer is in the socket's buffer.
    Done,
    /// The socket's buffer is full.
    Full,
    /// The front end has disconnected.
    Gone,
}

/// Sends an answer, with at most one descriptor.
pub fn send(socket: &OwnedFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Sent {
    let files = file.map(|file| [file]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if let Some(files) = &files {
        beside.push(SendAncillaryMessage::ScmRights(files));
    }
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // The kernel sends so few bytes (some pages at most) as a whole or not at all.
        Ok(_) => Sent::Done,
        Err(Errno::AGAIN | Errno::INTR) => Sent::Full,
        Err(_) => Sent::Gone,
    }
}
