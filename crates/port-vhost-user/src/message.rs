//! The front end's messages, decoded from bytes and descriptors (docs/interop/vhost-user.rst of QEMU: "Message
//! Specification", "Front-end message types"). Pure: nothing is read, mapped or remembered here.
//!
//! ```text
//!   request u32 | flags u32 | size u32 | body (size bytes)      machine byte order; descriptors beside the first byte
//! ```

use ringway_port::front_end::{Attached, ClientFd, Fields, Framing};
pub use ringway_port::guest::Area;

/// Length of a message's header in bytes.
pub const HEADER_BYTES: usize = 12;
/// Most memory regions of a front end: the answer to GET_MAX_MEM_SLOTS, and the limit of a memory table.
pub const MOST_REGIONS: usize = 64;
/// Length of the longest body in bytes: that of a memory table.
pub const MOST_BODY_BYTES: usize = TABLE_START + MOST_REGIONS * REGION_BYTES;
/// Most descriptors with one message.
pub const MOST_FDS: usize = MOST_REGIONS;

const VERSION_MASK: u32 = 3;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

const TABLE_START: usize = 8;
const REGION_BYTES: usize = 32;
const QUEUE_MASK: u64 = 0xff;
const NO_FD: u64 = 1 << 8;

/// A malformed message. The text is for users.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Another protocol, or a stream that is out of step.
    #[error("a message of version {0}: this is version 1 of vhost-user")]
    Version(u32),
    /// A request with the reply flag, which belongs to answers.
    #[error("message {0} has the reply flag, which only answers have")]
    Reply(u32),
    /// A body longer than that of any message.
    #[error("message {request} says it has {size} bytes: no message has more than {MOST_BODY_BYTES}")]
    TooLong {
        /// Number of the message.
        request: u32,
        /// Length of the body, as the header states it.
        size: u32,
    },
    /// A body of the wrong length.
    #[error("{name} has {size} bytes where {right} are right")]
    Size {
        /// Name of the message.
        name: &'static str,
        /// Length of the body in bytes.
        size: usize,
        /// The correct length in bytes.
        right: usize,
    },
    /// A wrong number of descriptors.
    #[error("{name} comes with {given} file descriptors where {right} is right")]
    Descriptors {
        /// Name of the message.
        name: &'static str,
        /// Number of descriptors.
        given: usize,
        /// The correct number.
        right: usize,
    },
    /// Undefined bits next to a queue's number.
    #[error("{name} with {word:#x}: bits 0 to 7 name the queue, bit 8 says that there is no descriptor, others are 0")]
    VringFile {
        /// Name of the message.
        name: &'static str,
        /// The whole word.
        word: u64,
    },
    /// More regions than the back end offers.
    #[error("SET_MEM_TABLE has {0} regions: no more than {MOST_REGIONS} are offered")]
    Regions(u32),
}

/// The header of a message, decoded and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the message.
    pub request: u32,
    /// Length of the body in bytes, at most [`MOST_BODY_BYTES`].
    pub size: usize,
    /// True if the front end waits for an answer (with REPLY_ACK).
    pub need_reply: bool,
}

impl Header {
    /// Decodes and checks a header, before the body is received.
    ///
    /// # Errors
    /// The header is not that of a request that the back end could follow.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, MessageError> {
        let mut fields = Fields(bytes);
        let (request, flags, size) = (fields.u32(), fields.u32(), fields.u32());
        if flags & VERSION_MASK != VERSION {
            return Err(MessageError::Version(flags & VERSION_MASK));
        }
        if flags & REPLY != 0 {
            return Err(MessageError::Reply(request));
        }
        match usize::try_from(size) {
            Ok(bytes) if bytes <= MOST_BODY_BYTES => {
                Ok(Header { request, size: bytes, need_reply: flags & NEED_REPLY != 0 })
            }
            _ => Err(MessageError::TooLong { request, size }),
        }
    }

    /// Returns the header of a request with a body of `size` bytes, as a front end sends it.
    pub(super) fn of_request(request: u32, size: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = Self::of_reply(request, size);
        bytes[4..8].copy_from_slice(&VERSION.to_ne_bytes());
        bytes
    }

    /// Returns the header of an answer to `request` with a body of `size` bytes.
    pub(super) fn of_reply(request: u32, size: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&request.to_ne_bytes());
        bytes[4..8].copy_from_slice(&(VERSION | REPLY).to_ne_bytes());
        bytes[8..].copy_from_slice(&(size as u32).to_ne_bytes());
        bytes
    }
}

/// The framing of vhost-user messages.
pub struct Messages;

impl Framing for Messages {
    type Header = Header;
    type Error = MessageError;
    const HEADER_BYTES: usize = HEADER_BYTES;
    const MOST_BODY_BYTES: usize = MOST_BODY_BYTES;
    const MOST_FDS: usize = MOST_FDS;

    fn decode(header: &[u8]) -> Result<(Header, usize), MessageError> {
        let bytes = header.first_chunk().ok_or(MessageError::Version(0))?;
        Header::decode(bytes).map(|header| (header, header.size))
    }

    fn attached(header: Header, body: &[u8]) -> Attached {
        match header.request {
            // SET_MEM_TABLE, SET_LOG_BASE, SET_LOG_FD, SET_INFLIGHT_FD, ADD_MEM_REG
            5..=7 | 32 | 37 => Attached::Files,
            // SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR
            12..=14 if Fields(body).u64() & NO_FD == 0 => Attached::Files,
            // REM_MEM_REG: see `Request::decode`.
            38 => Attached::Ignored,
            _ => Attached::Nothing,
        }
    }
}

/// A memory region, as the front end describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAt {
    /// First guest physical address.
    pub guest: u64,
    /// Size in bytes.
    pub size: u64,
    /// First address in the front end's address space.
    pub user: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// A queue and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VringState {
    /// The queue.
    pub queue: u32,
    /// The size, the base, or whether the queue is enabled, depending on the message.
    pub number: u32,
}

/// The addresses of a queue's parts, in the front end's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VringAddress {
    /// The queue.
    pub queue: u32,
    /// Bit 0: writes to the used ring are marked in the dirty log.
    pub flags: u32,
    /// Descriptor table (split) or descriptor ring (packed).
    pub descriptors: u64,
    /// Used ring (split) or device event suppression (packed).
    pub used: u64,
    /// Available ring (split) or driver event suppression (packed).
    pub available: u64,
    /// Guest physical address of the used ring, for the dirty log.
    pub log: u64,
}

/// An eventfd for a queue. Without one the queue is polled.
#[derive(Debug)]
pub struct VringFile {
    /// The queue.
    pub queue: u32,
    /// The eventfd.
    pub file: Option<ClientFd>,
}

/// Memory in which a back end notes the chains in flight, for its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightAt {
    /// The area of the file.
    pub area: Area,
    /// Number of queues.
    pub queues: u16,
    /// Descriptors of each queue.
    pub queue_size: u16,
    /// True if the front end's structure ends with four bytes of padding, as a C compiler adds them.
    pub padded: bool,
}

/// A range of the device's configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigRange {
    /// Its first byte.
    pub offset: u32,
    /// Its length in bytes.
    pub size: u32,
    /// 0: a driver's access, 1: a device that migrates.
    pub flags: u32,
}

/// A message of the front end.
#[derive(Debug)]
#[allow(missing_docs)] // The names are those of the specification.
pub enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<(RegionAt, ClientFd)>),
    SetLogBase(Option<(Area, ClientFd)>),
    SetLogFd(ClientFd),
    SetVringNum(VringState),
    SetVringAddr(VringAddress),
    SetVringBase(VringState),
    GetVringBase(VringState),
    SetVringKick(VringFile),
    SetVringCall(VringFile),
    SetVringErr(VringFile),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable(VringState),
    SendRarp([u8; 6]),
    NetSetMtu(u64),
    GetConfig(ConfigRange),
    SetConfig(ConfigRange),
    GetInflightFd(InflightAt),
    SetInflightFd(InflightAt, ClientFd),
    ResetDevice,
    GetMaxMemSlots,
    AddMemReg(RegionAt, ClientFd),
    RemMemReg(RegionAt),
    SetStatus(u64),
    GetStatus,
    /// A message that belongs to no offered feature.
    Unknown(u32),
}

impl Request {
    /// Decodes the message with this header. Closes the descriptors of a malformed message.
    ///
    /// # Errors
    /// The body or the number of descriptors is wrong for this message.
    pub fn decode(header: Header, body: &[u8], fds: Vec<ClientFd>) -> Result<Request, MessageError> {
        let mut parts = Parts { name: name(header.request), body, fds };
        Ok(match header.request {
            1 => parts.empty(Request::GetFeatures)?,
            2 => Request::SetFeatures(parts.number()?),
            3 => parts.empty(Request::SetOwner)?,
            4 => parts.empty(Request::ResetOwner)?,
            5 => Request::SetMemTable(parts.table()?),
            6 => Request::SetLogBase(parts.log()?),
            7 => Request::SetLogFd(parts.file_alone()?),
            8 => Request::SetVringNum(parts.state()?),
            9 => Request::SetVringAddr(parts.address()?),
            10 => Request::SetVringBase(parts.state()?),
            11 => Request::GetVringBase(parts.state()?),
            12 => Request::SetVringKick(parts.file()?),
            13 => Request::SetVringCall(parts.file()?),
            14 => Request::SetVringErr(parts.file()?),
            15 => parts.empty(Request::GetProtocolFeatures)?,
            16 => Request::SetProtocolFeatures(parts.number()?),
            17 => parts.empty(Request::GetQueueNum)?,
            18 => Request::SetVringEnable(parts.state()?),
            19 => {
                let [a, b, c, d, e, f, ..] = parts.number()?.to_ne_bytes();
                Request::SendRarp([a, b, c, d, e, f])
            }
            20 => Request::NetSetMtu(parts.number()?),
            24 => Request::GetConfig(parts.config()?),
            25 => Request::SetConfig(parts.config()?),
            31 => {
                parts.descriptors(0)?;
                Request::GetInflightFd(parts.inflight()?)
            }
            32 => {
                let at = parts.inflight()?;
                Request::SetInflightFd(at, parts.one_descriptor()?)
            }
            34 => parts.empty(Request::ResetDevice)?,
            36 => parts.empty(Request::GetMaxMemSlots)?,
            37 => {
                let region = parts.region()?;
                Request::AddMemReg(region, parts.one_descriptor()?)
            }
            // Some front ends send a descriptor, which must be closed unused (vhost-user, VHOST_USER_REM_MEM_REG).
            38 => match parts.fds.len() {
                0 | 1 => Request::RemMemReg(parts.region()?),
                _ => return Err(parts.wrong_descriptors(0)),
            },
            39 => Request::SetStatus(parts.number()?),
            40 => parts.empty(Request::GetStatus)?,
            other => Request::Unknown(other),
        })
    }
}

/// Returns a message's name in the specification, for texts.
pub fn name(request: u32) -> &'static str {
    const NAMES: [&str; 41] = [
        "NONE",
        "GET_FEATURES",
        "SET_FEATURES",
        "SET_OWNER",
        "RESET_OWNER",
        "SET_MEM_TABLE",
        "SET_LOG_BASE",
        "SET_LOG_FD",
        "SET_VRING_NUM",
        "SET_VRING_ADDR",
        "SET_VRING_BASE",
        "GET_VRING_BASE",
        "SET_VRING_KICK",
        "SET_VRING_CALL",
        "SET_VRING_ERR",
        "GET_PROTOCOL_FEATURES",
        "SET_PROTOCOL_FEATURES",
        "GET_QUEUE_NUM",
        "SET_VRING_ENABLE",
        "SEND_RARP",
        "NET_SET_MTU",
        "SET_BACKEND_REQ_FD",
        "IOTLB_MSG",
        "SET_VRING_ENDIAN",
        "GET_CONFIG",
        "SET_CONFIG",
        "CREATE_CRYPTO_SESSION",
        "CLOSE_CRYPTO_SESSION",
        "POSTCOPY_ADVISE",
        "POSTCOPY_LISTEN",
        "POSTCOPY_END",
        "GET_INFLIGHT_FD",
        "SET_INFLIGHT_FD",
        "GPU_SET_SOCKET",
        "RESET_DEVICE",
        "VRING_KICK",
        "GET_MAX_MEM_SLOTS",
        "ADD_MEM_REG",
        "REM_MEM_REG",
        "SET_STATUS",
        "GET_STATUS",
    ];
    usize::try_from(request).ok().and_then(|at| NAMES.get(at)).copied().unwrap_or("a message of unknown number")
}

/// A body that is being decoded, and its descriptors.
struct Parts<'a> {
    name: &'static str,
    body: &'a [u8],
    fds: Vec<ClientFd>,
}

impl<'a> Parts<'a> {
    /// Returns the fields of a body, which must have exactly `right` bytes.
    fn fields(&self, right: usize) -> Result<Fields<'a>, MessageError> {
        match self.body.len() {
            size if size == right => Ok(Fields(self.body)),
            size => Err(MessageError::Size { name: self.name, size, right }),
        }
    }

    fn wrong_descriptors(&self, right: usize) -> MessageError {
        MessageError::Descriptors { name: self.name, given: self.fds.len(), right }
    }

    fn descriptors(&self, right: usize) -> Result<(), MessageError> {
        if self.fds.len() == right { Ok(()) } else { Err(self.wrong_descriptors(right)) }
    }

    fn one_descriptor(&mut self) -> Result<ClientFd, MessageError> {
        self.descriptors(1)?;
        self.fds.pop().ok_or(MessageError::Descriptors { name: self.name, given: 0, right: 1 })
    }

    fn empty(&self, request: Request) -> Result<Request, MessageError> {
        self.descriptors(0)?;
        self.fields(0).map(|_| request)
    }

    fn number(&self) -> Result<u64, MessageError> {
        self.descriptors(0)?;
        Ok(self.fields(8)?.u64())
    }

    fn state(&self) -> Result<VringState, MessageError> {
        self.descriptors(0)?;
        let mut fields = self.fields(8)?;
        Ok(VringState { queue: fields.u32(), number: fields.u32() })
    }

    fn address(&self) -> Result<VringAddress, MessageError> {
        self.descriptors(0)?;
        let mut fields = self.fields(40)?;
        Ok(VringAddress {
            queue: fields.u32(),
            flags: fields.u32(),
            descriptors: fields.u64(),
            used: fields.u64(),
            available: fields.u64(),
            log: fields.u64(),
        })
    }

    fn file(&mut self) -> Result<VringFile, MessageError> {
        let word = self.fields(8)?.u64();
        if word & !(QUEUE_MASK | NO_FD) != 0 {
            return Err(MessageError::VringFile { name: self.name, word });
        }
        let file = if word & NO_FD == 0 {
            Some(self.one_descriptor()?)
        } else {
            self.descriptors(0)?;
            None
        };
        Ok(VringFile { queue: (word & QUEUE_MASK) as u32, file })
    }

    fn file_alone(&mut self) -> Result<ClientFd, MessageError> {
        self.fields(0)?;
        self.one_descriptor()
    }

    fn region(&self) -> Result<RegionAt, MessageError> {
        let mut fields = self.fields(8 + REGION_BYTES)?;
        fields.u64();
        Ok(region_of(&mut fields))
    }

    fn table(&mut self) -> Result<Vec<(RegionAt, ClientFd)>, MessageError> {
        let count = Fields(self.body).u32();
        let regions = usize::try_from(count).ok().filter(|&regions| regions <= MOST_REGIONS);
        let Some(regions) = regions else { return Err(MessageError::Regions(count)) };
        let mut fields = self.fields(regions.saturating_mul(REGION_BYTES).saturating_add(TABLE_START))?;
        self.descriptors(regions)?;
        fields.u64();
        Ok(std::mem::take(&mut self.fds).into_iter().map(|file| (region_of(&mut fields), file)).collect())
    }

    /// Decodes SET_LOG_BASE: an area and its file, or, without LOG_SHMFD, an address that this back end cannot use.
    fn log(&mut self) -> Result<Option<(Area, ClientFd)>, MessageError> {
        if self.fds.is_empty() {
            return match self.body.len() {
                8 => Ok(None),
                _ => self.fields(16).map(|_| None),
            };
        }
        let mut fields = self.fields(16)?;
        let area = Area { size: fields.u64(), offset: fields.u64() };
        Ok(Some((area, self.one_descriptor()?)))
    }

    /// Decodes a range of the configuration space, behind which there are as many bytes, also where they have no meaning.
    fn config(&self) -> Result<ConfigRange, MessageError> {
        const HEAD: usize = 12;
        self.descriptors(0)?;
        let mut fields = Fields(self.body);
        let range = ConfigRange { offset: fields.u32(), size: fields.u32(), flags: fields.u32() };
        self.fields(usize::try_from(range.size).unwrap_or(usize::MAX).saturating_add(HEAD))?;
        Ok(range)
    }

    fn inflight(&self) -> Result<InflightAt, MessageError> {
        const BYTES: usize = 20;
        const PADDED: usize = 24;
        let padded = self.body.len() != BYTES;
        let mut fields = self.fields(if padded { PADDED } else { BYTES })?;
        let area = Area { size: fields.u64(), offset: fields.u64() };
        let (queues, queue_size) = (fields.u16(), fields.u16());
        Ok(InflightAt { area, queues, queue_size, padded })
    }
}

fn region_of(fields: &mut Fields<'_>) -> RegionAt {
    RegionAt { guest: fields.u64(), size: fields.u64(), user: fields.u64(), offset: fields.u64() }
}
