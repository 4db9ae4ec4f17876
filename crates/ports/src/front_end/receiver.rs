//! Complete messages, each with the descriptors beside it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Time for a message from its first byte to its last.
pub(crate) const MESSAGE_WITHIN: Duration = Duration::from_secs(5);

/// How a protocol's messages are told apart: a header of fixed size that says how long the body is.
pub(crate) trait Framing {
    /// A header, checked.
    type Header: Copy;
    /// Why bytes are no header. The text is for users.
    type Error: std::error::Error;
    /// Bytes of a header.
    const HEADER_BYTES: usize;
    /// Bytes of the longest body.
    const MOST_BODY_BYTES: usize;
    /// Most descriptors beside a message.
    const MOST_FDS: usize;
    /// Bytes of messages behind the one that is wanted that are received with it. Descriptors belong then to the last message
    /// that begins in the bytes they come with: whoever sends some must not send another message in one go with theirs.
    const AHEAD_BYTES: usize = 0;

    /// Looks at a header: what it says, and how long the body is (no more than the longest).
    ///
    /// # Errors
    /// It is not one of a message that could be followed.
    fn decode(header: &[u8]) -> Result<(Self::Header, usize), Self::Error>;
}

/// What came of trying to receive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<H> {
    /// A message is whole ([`Receiver::take`]).
    Message(H),
    /// There is no more for now.
    Nothing,
    /// The front end has gone.
    Gone,
}

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError<E: std::error::Error> {
    /// Not a message.
    #[error(transparent)]
    Message(E),
    /// Descriptors that do not fit.
    #[error("more than {0} file descriptors came with a message, or none are left for it here (ulimit -n)")]
    Descriptors(usize),
}

impl<E: std::error::Error> SocketError<E> {
    /// The reason's name in status and metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Message(_) => "bad_message",
            Self::Descriptors(_) => "too_many_descriptors",
        }
    }
}

/// Messages on their way in. Their descriptors are owned from the moment they arrive.
pub(crate) struct Receiver<F: Framing> {
    bytes: Box<[u8]>,
    /// Where the first message begins that was not taken, and where what was received ends.
    start: usize,
    end: usize,
    /// What the first message's header says, and its bytes.
    header: Option<(F::Header, usize)>,
    /// Room for descriptors.
    space: Box<[MaybeUninit<u8>]>,
    /// Descriptors, and where the bytes end that they came with.
    fds: Vec<(usize, OwnedFd)>,
    begun: Option<Instant>,
}

impl<F: Framing> Receiver<F> {
    const LONGEST: usize = F::HEADER_BYTES + F::MOST_BODY_BYTES;
    const ROOM: usize = Self::LONGEST + F::AHEAD_BYTES;

    /// For the beginning of a connection.
    pub(crate) fn new() -> Self {
        let bytes = vec![0; Self::ROOM].into();
        let space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(F::MOST_FDS))].into();
        Receiver { bytes, start: 0, end: 0, header: None, space, fds: Vec::new(), begun: None }
    }

    /// When the message that has begun must be whole.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.begun.map(|begun| begun.checked_add(MESSAGE_WITHIN).unwrap_or(begun))
    }

    /// Receives until a message is whole, or as far as there is something to receive.
    ///
    /// # Errors
    /// What comes cannot be a message.
    pub(crate) fn receive(&mut self, socket: &OwnedFd) -> Result<Received<F::Header>, SocketError<F::Error>> {
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
            let mut beside = RecvAncillaryBuffer::new(&mut self.space);
            let mut into = [IoSliceMut::new(&mut self.bytes[self.end..most])];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let result = recvmsg(socket, &mut into, &mut beside, flags);
            if have > 0 || result.is_ok() {
                self.begun.get_or_insert_with(Instant::now);
            }
            let (count, truncated) = match result {
                Ok(received) => (received.bytes, received.flags.contains(ReturnFlags::CTRUNC)),
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::INTR) => continue,
                Err(_) => return Ok(Received::Gone),
            };
            self.end = self.end.saturating_add(count);
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = message {
                    self.fds.extend(files.map(|file| (self.end, file)));
                }
            }
            // All are of messages that are not whole, or just became so: of one, as bytes with descriptors end a receipt.
            if truncated || self.fds.len() > F::MOST_FDS {
                return Err(SocketError::Descriptors(F::MOST_FDS));
            }
            if count == 0 {
                return Ok(Received::Gone);
            }
        }
    }

    /// The body and the descriptors of the message that is whole; the next may begin.
    pub(crate) fn take(&mut self) -> (&[u8], Vec<OwnedFd>) {
        let whole = self.header.take().map_or(F::HEADER_BYTES, |(_, whole)| whole);
        let body = self.start.saturating_add(F::HEADER_BYTES)..self.start.saturating_add(whole);
        (self.start, self.begun) = (body.end, None);
        let own = self.fds.partition_point(|(end, _)| *end <= self.start);
        let fds = self.fds.drain(..own).map(|(_, file)| file).collect();
        (&self.bytes[body], fds)
    }

    /// Moves what is there to the beginning, if the longest message would not fit otherwise.
    fn make_room(&mut self) {
        if self.start.saturating_add(Self::LONGEST) <= self.bytes.len() {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.fds.iter_mut().for_each(|(end, _)| *end = end.saturating_sub(self.start));
        (self.start, self.end) = (0, self.end.saturating_sub(self.start));
    }
}

/// What came of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is on its way.
    Done,
    /// There is no room for it now.
    Full,
    /// The front end has gone.
    Gone,
}

/// Sends an answer, and at most one descriptor beside it.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Sent {
    let files = file.map(|file| [file]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if let Some(files) = &files {
        beside.push(SendAncillaryMessage::ScmRights(files));
    }
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // So few bytes (some pages at most) are sent as a whole or not at all.
        Ok(_) => Sent::Done,
        Err(Errno::AGAIN | Errno::INTR) => Sent::Full,
        Err(_) => Sent::Gone,
    }
}
