//! What the switch and the closer say to each other, by a socket pair that keeps messages apart (SOCK_SEQPACKET).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// The argument of a closer that ends with who has started it.
pub(in crate::front_end) const ENDS_WITH_PARENT: &str = "ends-with-parent";

/// Most files in one message (`SCM_MAX_FD`).
pub(super) const MOST_FILES: usize = 253;
const BYTES: usize = 32;

/// A message. Files are beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// To the closer: the first file beside this message becomes readable when the switch has ended, the second one when the parent of the switch
    /// has (pidfds).
    Switch,
    /// To the closer: keep the files beside this message, so many, under this number and the ones behind it. `outlives`: as if
    /// [`Message::Outlives`] followed at once.
    Hold { id: u64, files: u32, owner: Option<NonZeroU32>, outlives: bool },
    /// To the closer: receive so many bytes from the connection with this number, and do this with the files that come with them. `first`: the
    /// number of the first of them.
    Take { connection: u64, first: u64, bytes: u64, how: Taking },
    /// To the closer: another process has a copy of this file, too, and goes on with it when the switch has ended.
    Outlives { id: u64 },
    /// To the closer: the switch has closed this file.
    Close { id: u64 },
    /// To the switch: so many files came. Copies of them are beside this message.
    Taken { first: u64, files: u64 },
    /// To the switch: nothing could be received, or no descriptors are left for the files.
    NotTaken { first: u64 },
    /// To the switch: so many files are kept, under this number and the ones behind it.
    Held { id: u64, files: u64 },
    /// To the switch: no descriptor was left for this file.
    NotHeld { id: u64 },
    /// To the switch: the close of this file begins.
    Closing { id: u64 },
    /// To the switch: this file is closed, or was not there.
    Closed { id: u64 },
}

/// The number of files of [`Taking::Discard`] that any number is right for.
pub(in crate::front_end) const ANY_FILES: u32 = u32::MAX;

/// How a message of a client is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::front_end) enum Taking {
    /// Bytes and files leave the socket. The files are kept.
    Receive,
    /// Bytes and files stay in the socket. Copies of the files are kept.
    Peek,
    /// Bytes and files leave the socket. The files are closed. An answer says whether they were so many.
    Discard { files: u32 },
}

impl Message {
    fn encode(self) -> [u8; BYTES] {
        let words = match self {
            Self::Switch => [1, 0, 0, 0],
            Self::Hold { id, files, owner, outlives } => {
                [2, id, owner.map_or(0, |owner| owner.get().into()), u64::from(outlives) << 32 | u64::from(files)]
            }
            Self::Take { connection, first, bytes, how } => {
                let (kind, files) = match how {
                    Taking::Receive => (3, 0),
                    Taking::Peek => (11, 0),
                    Taking::Discard { files } => (12, files),
                };
                // No message is longer than 4 GiB.
                [kind, connection, first, bytes & u64::from(u32::MAX) | u64::from(files) << 32]
            }
            Self::Outlives { id } => [13, id, 0, 0],
            Self::Close { id } => [4, id, 0, 0],
            Self::Taken { first, files } => [5, first, files, 0],
            Self::NotTaken { first } => [6, first, 0, 0],
            Self::Closed { id } => [7, id, 0, 0],
            Self::Closing { id } => [8, id, 0, 0],
            Self::NotHeld { id } => [9, id, 0, 0],
            Self::Held { id, files } => [10, id, files, 0],
        };
        let mut bytes = [0; BYTES];
        for (into, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *into = word.to_ne_bytes();
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let words = words.iter().map(|word| u64::from_ne_bytes(*word)).collect::<Vec<_>>();
        let [kind, one, two, three] = words[..] else { return None };
        Some(match kind {
            1 => Self::Switch,
            2 => {
                let (owner, outlives) = (u32::try_from(two).ok().and_then(NonZeroU32::new), three >> 32 != 0);
                Self::Hold { id: one, files: files_from(one, three & u64::from(u32::MAX))?, owner, outlives }
            }
            3 => Self::Take { connection: one, first: two, bytes: three, how: Taking::Receive },
            11 => Self::Take { connection: one, first: two, bytes: three, how: Taking::Peek },
            12 => {
                let (bytes, files) = (three & u64::from(u32::MAX), (three >> 32) as u32);
                Self::Take { connection: one, first: two, bytes, how: Taking::Discard { files } }
            }
            13 => Self::Outlives { id: one },
            4 => Self::Close { id: one },
            5 => Self::Taken { first: one, files: two },
            6 => Self::NotTaken { first: one },
            7 => Self::Closed { id: one },
            8 => Self::Closing { id: one },
            9 => Self::NotHeld { id: one },
            10 => Self::Held { id: one, files: files_from(one, two)?.into() },
            _ => return None,
        })
    }
}

/// A number of files in one message, whose numbers begin with this one.
fn files_from(first: u64, files: u64) -> Option<u32> {
    first.checked_add(files)?;
    u32::try_from(files).ok().filter(|files| *files as usize <= MOST_FILES)
}

/// Sends a message with files, at most [`MOST_FILES`].
///
/// # Errors
/// The kernel refuses.
pub(super) fn send(
    socket: &OwnedFd,
    message: Message,
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::INVAL);
    }
    let bytes = message.encode();
    loop {
        match sendmsg(socket, &[IoSlice::new(&bytes)], &mut beside, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            result => return result.map(|_| ()),
        }
    }
}

/// Waits for the next message, and returns it with its files. `None`: no message will come any more.
pub(super) fn receive(socket: &OwnedFd) -> Option<(Message, Vec<OwnedFd>)> {
    let mut bytes = [0; BYTES];
    let (len, files) = receive_files(socket, &mut bytes, RecvFlags::empty()).ok()?;
    Some((Message::decode(&bytes[..len])?, files))
}

/// Receives bytes and the files that came with them.
///
/// # Errors
/// The kernel refuses.
pub(super) fn receive_files(
    socket: &OwnedFd,
    into: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    loop {
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let received = match recvmsg(socket, &mut [IoSliceMut::new(into)], &mut beside, flags | RecvFlags::CMSG_CLOEXEC)
        {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        let mut files = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        return Ok((received.bytes, files));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let (id, first) = (u64::MAX - 1, 7);
        for message in [
            Message::Switch,
            Message::Hold { id, files: 1, owner: None, outlives: false },
            Message::Hold { id: first, files: 253, owner: NonZeroU32::new(u32::MAX), outlives: true },
            Message::Take { connection: id, first, bytes: 9, how: Taking::Receive },
            Message::Take { connection: id, first, bytes: 9, how: Taking::Peek },
            Message::Take { connection: id, first, bytes: 9, how: Taking::Discard { files: 253 } },
            Message::Outlives { id },
            Message::Close { id },
            Message::Taken { first, files: 253 },
            Message::NotTaken { first },
            Message::Closed { id },
            Message::Closing { id },
            Message::NotHeld { id },
            Message::Held { id: first, files: 253 },
        ] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
        assert_eq!(Message::decode(&[0; BYTES]), None);
        for (id, files) in [(first, 254), (u64::MAX, 1)] {
            assert_eq!(Message::decode(&Message::Hold { id, files, owner: None, outlives: false }.encode()), None);
            assert_eq!(Message::decode(&Message::Held { id, files: files.into() }.encode()), None);
        }
        assert_eq!(Message::decode(&Message::Switch.encode()[..24]), None);
    }
}
