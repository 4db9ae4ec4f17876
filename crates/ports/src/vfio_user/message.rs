//! The front end's messages, decoded from bytes and descriptors (docs/interop/vfio-user.rst of QEMU). Pure: nothing is read,
//! mapped or remembered here.
//!
//! ```text
//!   id u16 | command u16 | size u32 (with header) | flags u32 | error u32 | body      machine byte order
//! ```
//!
//! Bytes that are no such message are an error, and the next message cannot be found either. The session decides whether a
//! request can be had.
//!
//! Posted register writes come in hundreds, so the thread receives up to 16 KiB at once. Descriptors belong to the last
//! message that begins in the bytes that they came with. That rule is right for every front end that sends each message by
//! itself.

use std::os::fd::OwnedFd;

use super::version::{BadVersion, Version};
use crate::front_end::{Fields, Framing};

/// Bytes of a message's header.
pub const HEADER_BYTES: usize = 16;
/// Most bytes of a region that one message reads or writes (`max_data_xfer_size`).
pub const MOST_DATA: usize = 4096;
/// Bytes of the longest body. QEMU's longest is a WRITE_MULTI of 200 writes, 4,808.
pub const MOST_BODY_BYTES: usize = 8192;
/// Most descriptors beside a message (`max_msg_fds`); QEMU refuses to hear of more.
pub const MOST_FDS: usize = 16;
/// What is received of further messages at once: hundreds of posted writes. QEMU sends each message in one go of its own.
const AHEAD_BYTES: usize = 16 << 10;
/// Bytes of one write in a WRITE_MULTI.
const ONE_WRITE: usize = 24;

const TYPE_MASK: u32 = 0xf;
const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// A message that is none. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// Replies are ours to make.
    #[error("message {command} is of type {kind}: only commands (0) are right, as nothing was asked")]
    Type {
        /// Its number.
        command: u16,
        /// What it says to be.
        kind: u32,
    },
    /// Shorter than its header, or longer than any message.
    #[error("message {command} says it has {size} bytes: {HEADER_BYTES} to {most} are right", most = HEADER_BYTES + MOST_BODY_BYTES)]
    Length {
        /// Its number.
        command: u16,
        /// What it says.
        size: u32,
    },
    /// Not the bytes this message has.
    #[error("{name} has a body of {size} bytes where {right} are right")]
    Size {
        /// The message.
        name: &'static str,
        /// Bytes it has.
        size: usize,
        /// Bytes it should have.
        right: usize,
    },
    /// Not the descriptors this message has.
    #[error("{name} comes with {given} file descriptors where {right} are right")]
    Descriptors {
        /// The message.
        name: &'static str,
        /// How many it has.
        given: usize,
        /// How many it may have.
        right: &'static str,
    },
    /// Not a proposal of a version.
    #[error(transparent)]
    Version(#[from] BadVersion),
}

/// The header of a message, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The front end's number for it, which the answer repeats.
    pub id: u16,
    /// The command.
    pub command: u16,
    /// Bytes of the body; no more than [`MOST_BODY_BYTES`].
    pub size: usize,
    /// Nobody waits for an answer.
    pub no_reply: bool,
}

impl Header {
    /// Looks at a header before anything of the body is read.
    ///
    /// # Errors
    /// It is not the header of a command that could be followed.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, MessageError> {
        let mut fields = Fields(bytes);
        let (id, command, size, flags) = (fields.u16(), fields.u16(), fields.u32(), fields.u32());
        if flags & TYPE_MASK != 0 {
            return Err(MessageError::Type { command, kind: flags & TYPE_MASK });
        }
        let body = usize::try_from(size).ok().and_then(|size| size.checked_sub(HEADER_BYTES));
        match body {
            Some(body) if body <= MOST_BODY_BYTES => {
                Ok(Header { id, command, size: body, no_reply: flags & NO_REPLY != 0 })
            }
            _ => Err(MessageError::Length { command, size }),
        }
    }

    /// The header of the answer, with `size` bytes to follow, or of the answer that says what went wrong.
    pub(super) fn answer(&self, size: usize, error: Option<u32>) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&self.id.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_ne_bytes());
        bytes[4..8].copy_from_slice(&(HEADER_BYTES.saturating_add(size) as u32).to_ne_bytes());
        let flags = if error.is_some() { REPLY | ERROR } else { REPLY };
        bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
        bytes[12..].copy_from_slice(&error.unwrap_or(0).to_ne_bytes());
        bytes
    }
}

/// How messages are told apart.
pub struct Messages;

impl Framing for Messages {
    type Header = Header;
    type Error = MessageError;
    const HEADER_BYTES: usize = HEADER_BYTES;
    const MOST_BODY_BYTES: usize = MOST_BODY_BYTES;
    const MOST_FDS: usize = MOST_FDS;
    const AHEAD_BYTES: usize = AHEAD_BYTES;

    fn decode(header: &[u8]) -> Result<(Header, usize), MessageError> {
        let bytes = header.first_chunk().ok_or(MessageError::Length { command: 0, size: 0 })?;
        Header::decode(bytes).map(|header| (header, header.size))
    }
}

/// Memory for the device (VFIO_USER_DMA_MAP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapAt {
    /// Bit 0: to be read, bit 1: to be written.
    pub flags: u32,
    /// Where it begins in its file.
    pub offset: u64,
    /// Where the device has it.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// Memory that is to go (VFIO_USER_DMA_UNMAP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmapAt {
    /// The size of the answer that is expected.
    pub argsz: u32,
    /// Bit 0: with a bitmap of what was written, bit 1: all there is.
    pub flags: u32,
    /// Where the device has it.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// What information is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The size of the answer that is expected.
    pub argsz: u32,
    /// The region, or the kind of interrupt.
    pub index: u32,
}

/// What is to become of interrupts (VFIO_USER_DEVICE_SET_IRQS).
#[derive(Debug)]
pub struct SetIrqs<'a> {
    /// What the data is, and what is to be done.
    pub flags: u32,
    /// The kind of interrupt.
    pub index: u32,
    /// The first.
    pub start: u32,
    /// How many.
    pub count: u32,
    /// One byte each (DATA_BOOL), or nothing.
    pub bools: &'a [u8],
    /// One each (DATA_EVENTFD), or none at all.
    pub fds: Vec<OwnedFd>,
}

impl SetIrqs<'_> {
    /// No data.
    pub const NONE: u32 = 1 << 0;
    /// Which of them.
    pub const BOOL: u32 = 1 << 1;
    /// Descriptors.
    pub const EVENTFD: u32 = 1 << 2;
    /// Keep back.
    pub const MASK: u32 = 1 << 3;
    /// Let through.
    pub const UNMASK: u32 = 1 << 4;
    /// Trigger, or what to trigger.
    pub const TRIGGER: u32 = 1 << 5;
}

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// From the region's first byte.
    pub offset: u64,
    /// The region.
    pub region: u32,
    /// Bytes.
    pub count: u32,
}

/// Writes that came in one message.
#[derive(Clone, Copy, Debug)]
pub struct Writes<'a>(&'a [u8]);

impl<'a> Writes<'a> {
    /// The writes; of one that says it has more than 8 bytes, no data.
    pub fn iter(self) -> impl Iterator<Item = (Access, &'a [u8])> {
        self.0.chunks_exact(ONE_WRITE).map(|one| {
            let mut fields = Fields(one);
            let access = fields.access();
            let data = usize::try_from(access.count).ok().and_then(|count| fields.0.get(..count));
            (access, data.unwrap_or_default())
        })
    }
}

/// A message of the front end.
#[derive(Debug)]
#[allow(missing_docs)] // The names are those of the specification.
pub enum Request<'a> {
    Version(Version),
    DmaMap(MapAt, Option<OwnedFd>),
    DmaUnmap(UnmapAt),
    GetInfo,
    GetRegionInfo(Query),
    GetRegionIoFds(Query),
    GetIrqInfo(Query),
    SetIrqs(SetIrqs<'a>),
    RegionRead(Access),
    RegionWrite(Access, &'a [u8]),
    Reset,
    RegionWriteMulti(Writes<'a>),
    DeviceFeature,
    /// A message that we never said we understand.
    Unknown(u16),
}

impl<'a> Request<'a> {
    /// The message that `header` begins. Descriptors that are not part of a right message are closed.
    ///
    /// # Errors
    /// The body or the descriptors are not those of this message.
    pub fn decode(header: Header, body: &'a [u8], fds: Vec<OwnedFd>) -> Result<Request<'a>, MessageError> {
        let mut parts = Parts { name: name(header.command), body, fds };
        if !matches!(header.command, 2 | 8) {
            parts.descriptors(0, "none")?;
        }
        Ok(match header.command {
            1 => {
                let mut fields = parts.at_least(4)?;
                Request::Version(Version::decode(fields.u16(), fields.u16(), fields.0)?)
            }
            2 => {
                let mut fields = parts.exactly(32)?;
                let _argsz = fields.u32();
                let flags = fields.u32();
                let at = MapAt { flags, offset: fields.u64(), address: fields.u64(), size: fields.u64() };
                parts.descriptors(1, "0 or 1")?;
                Request::DmaMap(at, parts.fds.pop())
            }
            3 => {
                // With a bitmap wanted, what it is to be like follows.
                let mut fields = parts.at_least(24)?;
                let (argsz, flags) = (fields.u32(), fields.u32());
                Request::DmaUnmap(UnmapAt { argsz, flags, address: fields.u64(), size: fields.u64() })
            }
            4 => parts.at_least(16).map(|_| Request::GetInfo)?,
            5 => Request::GetRegionInfo(parts.query(32)?),
            6 => Request::GetRegionIoFds(parts.query(16)?),
            7 => Request::GetIrqInfo(parts.query(16)?),
            8 => Request::SetIrqs(parts.irqs()?),
            9 => Request::RegionRead(parts.exactly(16)?.access()),
            10 => {
                let mut fields = parts.at_least(16)?;
                let access = fields.access();
                match usize::try_from(access.count) {
                    Ok(count) if count == fields.0.len() => Request::RegionWrite(access, fields.0),
                    Ok(count) => return Err(parts.wrong_size(count.saturating_add(16))),
                    Err(_) => return Err(parts.wrong_size(usize::MAX)),
                }
            }
            13 => parts.exactly(0).map(|_| Request::Reset)?,
            15 => {
                let mut fields = parts.at_least(8)?;
                let count = usize::try_from(fields.u64()).unwrap_or(usize::MAX);
                match count.checked_mul(ONE_WRITE) {
                    Some(size) if size == fields.0.len() => Request::RegionWriteMulti(Writes(fields.0)),
                    size => return Err(parts.wrong_size(size.unwrap_or(usize::MAX).saturating_add(8))),
                }
            }
            16 => Request::DeviceFeature,
            other => Request::Unknown(other),
        })
    }
}

/// A message's name in the specification, for texts.
pub fn name(command: u16) -> &'static str {
    const NAMES: [&str; 19] = [
        "NONE",
        "VERSION",
        "DMA_MAP",
        "DMA_UNMAP",
        "DEVICE_GET_INFO",
        "DEVICE_GET_REGION_INFO",
        "DEVICE_GET_REGION_IO_FDS",
        "DEVICE_GET_IRQ_INFO",
        "DEVICE_SET_IRQS",
        "REGION_READ",
        "REGION_WRITE",
        "DMA_READ",
        "DMA_WRITE",
        "DEVICE_RESET",
        "DIRTY_PAGES",
        "REGION_WRITE_MULTI",
        "DEVICE_FEATURE",
        "MIG_DATA_READ",
        "MIG_DATA_WRITE",
    ];
    NAMES.get(usize::from(command)).copied().unwrap_or("a message of unknown number")
}

/// A body that is being taken apart, and its descriptors.
struct Parts<'a> {
    name: &'static str,
    body: &'a [u8],
    fds: Vec<OwnedFd>,
}

impl<'a> Parts<'a> {
    fn wrong_size(&self, right: usize) -> MessageError {
        MessageError::Size { name: self.name, size: self.body.len(), right }
    }

    /// The fields of a body of exactly `right` bytes.
    fn exactly(&self, right: usize) -> Result<Fields<'a>, MessageError> {
        if self.body.len() == right { Ok(Fields(self.body)) } else { Err(self.wrong_size(right)) }
    }

    /// The fields of a body of `right` bytes, or of more that mean nothing to us.
    fn at_least(&self, right: usize) -> Result<Fields<'a>, MessageError> {
        if self.body.len() >= right { Ok(Fields(self.body)) } else { Err(self.wrong_size(right)) }
    }

    fn descriptors(&self, most: usize, right: &'static str) -> Result<(), MessageError> {
        match self.fds.len() {
            given if given <= most => Ok(()),
            given => Err(MessageError::Descriptors { name: self.name, given, right }),
        }
    }

    fn query(&self, right: usize) -> Result<Query, MessageError> {
        let mut fields = self.at_least(right)?;
        let (argsz, _flags) = (fields.u32(), fields.u32());
        Ok(Query { argsz, index: fields.u32() })
    }

    fn irqs(&mut self) -> Result<SetIrqs<'a>, MessageError> {
        let mut fields = self.at_least(20)?;
        let (_argsz, flags, index) = (fields.u32(), fields.u32(), fields.u32());
        let (start, count, bools) = (fields.u32(), fields.u32(), fields.0);
        let wanted = if flags & SetIrqs::BOOL == 0 { 0 } else { usize::try_from(count).unwrap_or(usize::MAX) };
        if bools.len() != wanted {
            return Err(self.wrong_size(wanted.saturating_add(20)));
        }
        let given = self.fds.len();
        let each = flags & SetIrqs::EVENTFD != 0 && u32::try_from(given) == Ok(count);
        if given != 0 && !each {
            return Err(MessageError::Descriptors { name: self.name, given, right: "none, or with EVENTFD one each," });
        }
        Ok(SetIrqs { flags, index, start, count, bools, fds: std::mem::take(&mut self.fds) })
    }
}

impl Fields<'_> {
    fn access(&mut self) -> Access {
        Access { offset: self.u64(), region: self.u32(), count: self.u32() }
    }
}
