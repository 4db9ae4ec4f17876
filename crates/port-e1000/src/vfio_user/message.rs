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

use ringway_port::front_end::{ClientFd, Fields, Framing};

use super::limits::MOST_FDS;
use super::version::{BadVersion, Version};

/// Length of a message's header in bytes.
pub const HEADER_BYTES: usize = 16;
/// Length of the longest body in bytes. The longest of QEMU's is a WRITE_MULTI of 200 writes, with 4,808 bytes.
pub const MOST_BODY_BYTES: usize = 8192;
/// Bytes of further messages that one receive may return: hundreds of posted writes. QEMU sends each message in a call
/// of its own.
const AHEAD_BYTES: usize = 16 << 10;
/// Bytes of one write in a WRITE_MULTI.
const ONE_WRITE: usize = 24;

const TYPE_MASK: u32 = 0xf;
const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// A malformed message. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// A message that is not a command: this side has asked nothing, so there are no replies.
    #[error("message {command} is of type {kind}: only commands (0) are right, as nothing was asked")]
    Type {
        /// Number of the message.
        command: u16,
        /// The type in its header.
        kind: u32,
    },
    /// A message shorter than its header or longer than any message.
    #[error("message {command} says it has {size} bytes: {HEADER_BYTES} to {most} are right", most = HEADER_BYTES + MOST_BODY_BYTES)]
    Length {
        /// Number of the message.
        command: u16,
        /// Length in bytes, as the header states it.
        size: u32,
    },
    /// A body of the wrong length.
    #[error("{name} has a body of {size} bytes where {right} are right")]
    Size {
        /// Name of the message.
        name: &'static str,
        /// Length of the body in bytes.
        size: usize,
        /// The correct length in bytes.
        right: usize,
    },
    /// A wrong number of descriptors.
    #[error("{name} comes with {given} file descriptors where {right} are right")]
    Descriptors {
        /// Name of the message.
        name: &'static str,
        /// Number of descriptors.
        given: usize,
        /// The correct number.
        right: &'static str,
    },
    /// An invalid VERSION.
    #[error(transparent)]
    Version(#[from] BadVersion),
}

/// The header of a message, decoded and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The front end's id of the message. The answer repeats it.
    pub id: u16,
    /// Number of the command.
    pub command: u16,
    /// Length of the body in bytes, at most [`MOST_BODY_BYTES`].
    pub size: usize,
    /// True if the front end expects no answer.
    pub no_reply: bool,
}

impl Header {
    /// Decodes and checks a header, before the body is received.
    ///
    /// # Errors
    /// The header is not that of a command that the device could follow.
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

    /// Returns true for a write to registers, which may change nothing but a ring's tail.
    pub(super) fn is_register_write(&self) -> bool {
        matches!(self.command, 10 | 15)
    }

    /// Returns the header of an answer with a body of `size` bytes, or of an answer that reports `error`.
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

/// The framing of vfio-user messages.
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

/// Memory that the device may use (VFIO_USER_DMA_MAP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapAt {
    /// Bit 0: readable. Bit 1: writable.
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// First DMA address.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Memory to be unmapped (VFIO_USER_DMA_UNMAP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmapAt {
    /// Size in bytes that the answer may have.
    pub argsz: u32,
    /// Bit 0: with a bitmap of dirty pages. Bit 1: all memory.
    pub flags: u32,
    /// First DMA address.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
}

/// A request for information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Size in bytes that the answer may have.
    pub argsz: u32,
    /// Index of the region, or of the kind of interrupt.
    pub index: u32,
}

/// A change of interrupts (VFIO_USER_DEVICE_SET_IRQS).
#[derive(Debug)]
pub struct SetIrqs<'a> {
    /// The kind of data and the action.
    pub flags: u32,
    /// Index of the kind of interrupt.
    pub index: u32,
    /// The first interrupt.
    pub start: u32,
    /// Number of interrupts.
    pub count: u32,
    /// One byte for each interrupt (DATA_BOOL), otherwise empty.
    pub bools: &'a [u8],
    /// One eventfd for each interrupt (DATA_EVENTFD), or none.
    pub fds: Vec<ClientFd>,
}

impl SetIrqs<'_> {
    /// DATA_NONE: the action applies to all interrupts of the range.
    pub const NONE: u32 = 1 << 0;
    /// DATA_BOOL: a byte for each interrupt tells whether the action applies.
    pub const BOOL: u32 = 1 << 1;
    /// DATA_EVENTFD: an eventfd for each interrupt.
    pub const EVENTFD: u32 = 1 << 2;
    /// ACTION_MASK.
    pub const MASK: u32 = 1 << 3;
    /// ACTION_UNMASK.
    pub const UNMASK: u32 = 1 << 4;
    /// ACTION_TRIGGER: triggers the interrupts, or with DATA_EVENTFD sets the eventfds to trigger.
    pub const TRIGGER: u32 = 1 << 5;
}

/// An access to a part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Offset in the region.
    pub offset: u64,
    /// Index of the region.
    pub region: u32,
    /// Length in bytes.
    pub count: u32,
}

/// The writes of one REGION_WRITE_MULTI.
#[derive(Clone, Copy, Debug)]
pub struct Writes<'a>(&'a [u8]);

impl<'a> Writes<'a> {
    /// Iterates over the writes and their data. A write that states more than 8 bytes has no data.
    pub fn iter(self) -> impl Iterator<Item = (Access, &'a [u8])> {
        self.0.chunks_exact(ONE_WRITE).map(|one| {
            let mut fields = Fields(one);
            let access = access_of(&mut fields);
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
    DmaMap(MapAt, Option<ClientFd>),
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
    /// A message that is not supported.
    Unknown(u16),
}

impl<'a> Request<'a> {
    /// Decodes the message with this header. Closes the descriptors of a malformed message.
    ///
    /// # Errors
    /// The body or the number of descriptors is wrong for this message.
    pub fn decode(header: Header, body: &'a [u8], fds: Vec<ClientFd>) -> Result<Request<'a>, MessageError> {
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
                // If a bitmap is requested, its description follows.
                let mut fields = parts.at_least(24)?;
                let (argsz, flags) = (fields.u32(), fields.u32());
                Request::DmaUnmap(UnmapAt { argsz, flags, address: fields.u64(), size: fields.u64() })
            }
            4 => parts.at_least(16).map(|_| Request::GetInfo)?,
            5 => Request::GetRegionInfo(parts.query(32)?),
            6 => Request::GetRegionIoFds(parts.query(16)?),
            7 => Request::GetIrqInfo(parts.query(16)?),
            8 => Request::SetIrqs(parts.irqs()?),
            9 => Request::RegionRead(access_of(&mut parts.exactly(16)?)),
            10 => {
                let mut fields = parts.at_least(16)?;
                let access = access_of(&mut fields);
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

/// Returns a message's name in the specification, for texts.
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

/// A body that is being decoded, and its descriptors.
struct Parts<'a> {
    name: &'static str,
    body: &'a [u8],
    fds: Vec<ClientFd>,
}

impl<'a> Parts<'a> {
    fn wrong_size(&self, right: usize) -> MessageError {
        MessageError::Size { name: self.name, size: self.body.len(), right }
    }

    /// Returns the fields of a body, which must have exactly `right` bytes.
    fn exactly(&self, right: usize) -> Result<Fields<'a>, MessageError> {
        if self.body.len() == right { Ok(Fields(self.body)) } else { Err(self.wrong_size(right)) }
    }

    /// Returns the fields of a body, which must have at least `right` bytes. Further bytes are ignored.
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

fn access_of(fields: &mut Fields<'_>) -> Access {
    Access { offset: fields.u64(), region: fields.u32(), count: fields.u32() }
}
