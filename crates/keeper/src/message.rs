//! What the switch and the keeper say to each other.
//!
//! Whatever the switch sends may be forged: a client may have taken the switch over. The keeper checks every length, and what it cannot read ends
//! the switch.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Most bytes of a name: it may have the path of a socket in it. A message has room for 255.
pub const NAME_MOST: usize = 200;
/// Most bytes of a note.
pub const NOTE_MOST: usize = 32 << 10;
/// Most files under one name. An XDP port with 64 queues has 136.
pub const FILES_MOST: usize = 160;
/// Most files in one message (`SCM_MAX_FD`): the kernel closes what there is no room for, and a close can wait.
pub(crate) const FILES_IN_MESSAGE: usize = 253;
/// The kind of a message about several names.
const SEVERAL: u8 = 11;
/// Most bytes of a message.
pub(crate) const BYTES_MOST: usize = 16 + Entry::HEAD + NAME_MOST + NOTE_MOST;

/// A state of the switch, for the service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Ports accept clients.
    Ready = 1,
    /// All pollers and the control thread make progress.
    Alive = 2,
    /// It is about to end, as it was told to.
    Stopping = 3,
    /// Of a process that was started to say so: it could go on with what is kept.
    Fits = 4,
    /// Of one that was started ahead: it has done what it can before it is the switch.
    Prepared = 5,
}

/// What a predecessor left under one of several names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) note: Vec<u8>,
    /// The number of its files.
    pub(crate) files: u8,
}

impl Entry {
    /// Bytes before the name: lengths of name and note, and number of files.
    const HEAD: usize = 4;

    /// Bytes in a message.
    pub(crate) fn bytes(&self) -> usize {
        Self::HEAD + self.name.len() + self.note.len()
    }

    fn encode(&self, into: &mut Vec<u8>) {
        let [low, high] = u16::try_from(self.note.len()).unwrap_or(u16::MAX).to_le_bytes();
        into.extend([u8::try_from(self.name.len()).unwrap_or(u8::MAX), self.files, low, high]);
        into.extend(self.name.as_bytes());
        into.extend(&self.note);
    }

    /// The first of these, and what is behind it.
    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[name, files, low, high], rest) = bytes.split_first_chunk::<{ Self::HEAD }>()?;
        let (name, rest) = rest.split_at_checked(usize::from(name))?;
        let (note, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([low, high])))?;
        if name.len() > NAME_MOST || note.len() > NOTE_MOST {
            return None;
        }
        let name = std::str::from_utf8(name).ok()?.to_owned();
        Some((Self { name, note: note.to_owned(), files }, rest))
    }
}

/// A message. Files are beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// To the keeper: hold the files beside this message, under this name, instead of those that it has under it.
    Keep { name: String, note: Vec<u8> },
    /// To the keeper: close what is under this name, and answer with [`Message::Released`] then.
    Release { token: u64, name: String },
    /// To the keeper: the switch is in this state.
    Is(State),
    /// To the keeper: signals are handled from now on.
    Hears,
    /// To the switch: what predecessors left follows, up to [`Message::All`]. `starts`: how many there were; `failed`: how many of them, in a row,
    /// never served; `end`: the end of the last one, for users. The [page](crate::page) is beside it.
    Begin { starts: u32, failed: u32, end: String },
    /// To the switch: what a predecessor left under this name.
    Left { name: String, note: Vec<u8> },
    /// To the switch: what a predecessor left under several names. The files of all are beside it, in the same order.
    Several(Vec<Entry>),
    /// To the switch: nothing else is left.
    All,
    /// To the switch: what was under the name is closed.
    Released { token: u64 },
    /// To the switch: end at the boundary of a batch, and leave everything to a successor.
    HandOver,
    /// To the switch: the opener's socket is beside this. It is asked from now on.
    Opener,
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let named = |kind: u8, number: u64, name: &str, note: &[u8]| {
            let mut bytes = vec![kind, u8::try_from(name.len()).unwrap_or(u8::MAX), 0, 0, 0, 0, 0, 0];
            bytes.extend(number.to_ne_bytes());
            bytes.extend(name.as_bytes());
            bytes.extend(note);
            bytes
        };
        match self {
            Self::Keep { name, note } => named(1, 0, name, note),
            Self::Release { token, name } => named(2, *token, name, &[]),
            Self::Is(state) => named(3, *state as u64, "", &[]),
            Self::Begin { starts, failed, end } => {
                named(4, u64::from(*failed) << 32 | u64::from(*starts), "", end.as_bytes())
            }
            Self::Left { name, note } => named(5, 0, name, note),
            Self::Several(all) => {
                let mut bytes = named(SEVERAL, 0, "", &[]);
                all.iter().for_each(|entry| entry.encode(&mut bytes));
                bytes
            }
            Self::All => named(6, 0, "", &[]),
            Self::Released { token } => named(7, *token, "", &[]),
            Self::HandOver => named(8, 0, "", &[]),
            Self::Hears => named(9, 0, "", &[]),
            Self::Opener => named(10, 0, "", &[]),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let number = u64::from_ne_bytes(*number);
        if head[0] == SEVERAL {
            return Self::decode_several(rest);
        }
        let (name, note) = rest.split_at_checked(usize::from(head[1]))?;
        if name.len() > NAME_MOST || note.len() > NOTE_MOST {
            return None;
        }
        let name = || std::str::from_utf8(name).ok().map(str::to_owned);
        Some(match head[0] {
            1 => Self::Keep { name: name().filter(|name| !name.is_empty())?, note: note.to_owned() },
            2 => Self::Release { token: number, name: name()? },
            3 => Self::Is(match number {
                1 => State::Ready,
                2 => State::Alive,
                3 => State::Stopping,
                4 => State::Fits,
                5 => State::Prepared,
                _ => return None,
            }),
            4 => {
                let end = std::str::from_utf8(note).ok()?.to_owned();
                Self::Begin { starts: number as u32, failed: (number >> 32) as u32, end }
            }
            5 => Self::Left { name: name()?, note: note.to_owned() },
            6 => Self::All,
            7 => Self::Released { token: number },
            8 => Self::HandOver,
            9 => Self::Hears,
            10 => Self::Opener,
            _ => return None,
        })
    }
}

impl Message {
    fn decode_several(mut bytes: &[u8]) -> Option<Self> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (entry, rest) = Entry::decode(bytes)?;
            all.push(entry);
            bytes = rest;
        }
        Some(Self::Several(all))
    }
}

/// Sends a message with files, at most [`FILES_IN_MESSAGE`].
///
/// # Errors
/// The kernel refuses.
pub(crate) fn send(
    socket: impl AsFd,
    message: &Message,
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    send_bytes(socket, &message.encode(), files, flags)
}

/// Sends bytes with files, at most [`FILES_IN_MESSAGE`].
///
/// # Errors
/// The kernel refuses.
pub(crate) fn send_bytes(
    socket: impl AsFd,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_IN_MESSAGE))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::INVAL);
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut beside, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            result => return result.map(|_| ()),
        }
    }
}

/// What was received.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message, with its files. `whole`: all files have arrived; otherwise no descriptor was left for some.
    Message { message: Message, files: Vec<OwnedFd>, whole: bool },
    /// Something that is no message, with these files.
    Nonsense(Vec<OwnedFd>),
    /// The other end is closed.
    End,
}

/// Receives the next message. `bytes`: room for [`BYTES_MOST`] bytes and one more.
///
/// # Errors
/// The kernel refuses; `AGAIN`: there is none.
pub(crate) fn receive(socket: impl AsFd, bytes: &mut [u8], flags: RecvFlags) -> Result<Received, Errno> {
    let (len, files, flags) = receive_all(socket, bytes, flags)?;
    if len == 0 && files.is_empty() {
        return Ok(Received::End);
    }
    let whole = !flags.contains(ReturnFlags::CTRUNC);
    let message = Message::decode(&bytes[..len]).filter(|_| !flags.contains(ReturnFlags::TRUNC));
    Ok(match message {
        Some(message) if files.len() <= FILES_MOST || matches!(message, Message::Several(_)) => {
            Received::Message { message, files, whole }
        }
        _ => Received::Nonsense(files),
    })
}

/// Receives bytes with files.
///
/// # Errors
/// The kernel refuses; `AGAIN`: there are none.
pub(crate) fn receive_files(
    socket: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    receive_all(socket, bytes, flags).map(|(len, files, _)| (len, files))
}

fn receive_all(
    socket: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>, ReturnFlags), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_IN_MESSAGE))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut beside, flags) {
            Err(Errno::INTR) => {}
            result => break result?,
        }
    };
    let mut files = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    Ok((received.bytes, files, received.flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_read_as_it_was_written() {
        let name = "port/lan0:vm1".to_owned();
        for message in [
            Message::Keep { name: name.clone(), note: vec![1, 2, 3] },
            Message::Keep { name: "n".repeat(NAME_MOST), note: vec![7; NOTE_MOST] },
            Message::Release { token: u64::MAX, name: name.clone() },
            Message::Is(State::Ready),
            Message::Is(State::Alive),
            Message::Is(State::Stopping),
            Message::Is(State::Fits),
            Message::Begin { starts: 3, failed: 2, end: "signal 9".to_owned() },
            Message::Left { name: name.clone(), note: Vec::new() },
            Message::Several(Vec::new()),
            Message::Several(vec![
                Entry { name, note: vec![9; 300], files: 253 },
                Entry { name: "n".repeat(NAME_MOST), note: vec![7; NOTE_MOST], files: 0 },
            ]),
            Message::All,
            Message::Released { token: 1 << 40 },
            Message::HandOver,
            Message::Hears,
            Message::Opener,
        ] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_no_message() {
        let whole = Message::Keep { name: "name".to_owned(), note: Vec::new() }.encode();
        for length in 0..whole.len() {
            assert_eq!(Message::decode(&whole[..length]), None, "{length} bytes");
        }
        let entry = |name: usize, note: usize| Entry { name: "n".repeat(name), note: vec![0; note], files: 1 };
        let whole = Message::Several(vec![entry(4, 3), entry(1, 0)]).encode();
        for length in 17..whole.len() {
            let is_boundary = length == 16 + entry(4, 3).bytes();
            assert_eq!(Message::decode(&whole[..length]).is_some(), is_boundary, "{length} bytes");
        }
        assert_eq!(Message::decode(&Message::Several(vec![entry(NAME_MOST + 1, 0)]).encode()), None);
        assert_eq!(Message::decode(&Message::Several(vec![entry(1, NOTE_MOST + 1)]).encode()), None);
        let keep = |name: usize, note: usize| Message::Keep { name: "n".repeat(name), note: vec![0; note] }.encode();
        assert_eq!(Message::decode(&keep(NAME_MOST + 1, 0)), None);
        assert_eq!(Message::decode(&keep(1, NOTE_MOST + 1)), None);
        assert_eq!(Message::decode(&keep(0, 1)), None, "a name is needed");
        assert_eq!(Message::decode(&[12; 16]), None);
        assert_eq!(Message::decode(&[3; 16]), None, "no such state");
    }
}
