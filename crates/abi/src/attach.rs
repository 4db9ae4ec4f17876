//! The attach dialogue on `attach.sock`: one request, one reply, then silence until one side ends the connection.
//!
//! A client that brings memory for its buffers says so in its request. The switch answers [`Reply::SendMemory`], the client
//! sends [`MEMORY`] with the descriptor of the memory, and then the reply follows. Before [`Reply::SendMemory`], the kernel may
//! refuse descriptors that a client sends (`EPERM`).
//!
//! The socket is `SOCK_SEQPACKET`, so a message is complete or refused. All numbers are little-endian. The reply to a granted
//! request carries three descriptors: the client's memory (a memfd sealed against shrinking and growing), the
//! eventfd that the client writes to wake the switch (kick), and the eventfd that wakes the client (call). When the switch
//! ends a port, the switch sends one more reply with the reason and closes the connection.

use crate::layout::{External, Layout, LayoutError, Shape};

/// Bytes of a request.
pub const REQUEST_BYTES: usize = 128;
/// Bytes of a reply.
pub const REPLY_BYTES: usize = 256;
/// Number of descriptors with a granting reply: memory, kick, call.
pub const REPLY_FDS: usize = 3;
/// The message that the descriptor of a client's memory comes with.
pub const MEMORY: [u8; 8] = *b"RWmemory";
/// Longest `SWITCH:PORT` in bytes.
pub const NAME_BYTES: usize = 66;
/// Longest name of a switch or a port in bytes.
pub const NAME_PART_BYTES: usize = 32;
const TEXT_BYTES: usize = 184;
const REQUEST_MAGIC: u32 = 0x7177_7772;
const REPLY_MAGIC: u32 = 0x7277_7772;
const VERSION: u16 = 1;

/// A request for a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Name of the switch.
    pub switch: String,
    /// Name of the port.
    pub port: String,
    /// Rings and buffers.
    pub shape: Shape,
    /// The memory that the client brings for its buffers, if it brings any.
    pub external: Option<External>,
}

/// Why a message is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The message has a wrong number of bytes.
    Length(usize),
    /// The message belongs to another protocol.
    Magic(u32),
    /// The message has another version of the protocol.
    Version(u16),
    /// A reserved byte is not 0.
    Reserved,
    /// The name is not `SWITCH:PORT`, or has characters that are not allowed.
    Name(String),
    /// The rings or buffers are out of range.
    Shape(LayoutError),
    /// The reply's text is not UTF-8.
    Text,
    /// There is no message of this kind.
    Kind(u16),
}

impl std::fmt::Display for MessageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(got) => {
                write!(f, "message of {got} bytes: a request has {REQUEST_BYTES}, a reply {REPLY_BYTES}")
            }
            Self::Magic(got) => write!(f, "message begins with {got:#010x}: not the attach protocol"),
            Self::Version(got) => write!(f, "attach protocol version {got}: this side speaks {VERSION}"),
            Self::Reserved => write!(f, "reserved bytes of the request are not zero"),
            Self::Name(name) => write!(
                f,
                "port name {name:?}: give SWITCH:PORT, each 1 to {NAME_PART_BYTES} of letters, digits, '_', '-' and '.'"
            ),
            Self::Shape(error) => error.fmt(f),
            Self::Text => write!(f, "reply text is not UTF-8"),
            Self::Kind(kind) => write!(f, "message of kind {kind}: there is none"),
        }
    }
}

impl std::error::Error for MessageError {}

/// Returns true if a switch or a port may have this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    (1..=NAME_PART_BYTES).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

/// Splits `SWITCH:PORT`.
///
/// # Errors
/// [`MessageError::Name`].
pub fn split_name(name: &str) -> Result<(&str, &str), MessageError> {
    match name.split_once(':') {
        Some((switch, port)) if is_name(switch) && is_name(port) => Ok((switch, port)),
        _ => Err(MessageError::Name(name.chars().take(NAME_BYTES).collect())),
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Returns the text of a NUL-padded field, or `None` when the field is not UTF-8 or has other bytes after the first
/// NUL.
pub(crate) fn text_in(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    if field[end..].iter().any(|&b| b != 0) {
        return None;
    }
    std::str::from_utf8(&field[..end]).ok()
}

// Layout of a request: 0 magic, 4 version, 6 flags, 8 tx_rings, 10 rx_rings, 12 tx_slots, 16 rx_slots, 20 buffer_size,
// 24 extra_buffers, 28 name[66], 94 zero, 96 external: bytes u64, 104 unit, 108 first, 112 zero up to 128.
const NAME_AT: usize = 28;
const EXTERNAL_AT: usize = 96;
const EXTERNAL_BYTES: usize = 16;
/// Flag for [`Shape::offload`].
const OFFLOAD: u16 = 1;
/// Flag for [`Request::external`]. Other flags must be 0.
const EXTERNAL: u16 = 2;

impl Request {
    /// Encodes the request.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.shape.offload, OFFLOAD) | flag(self.external.is_some(), EXTERNAL);
        bytes[6..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.shape.tx_rings.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.shape.rx_rings.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.shape.tx_slots.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.shape.rx_slots.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.shape.buffer_size.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.shape.extra_buffers.to_le_bytes());
        let name = format!("{}:{}", self.switch, self.port);
        let len = name.len().min(NAME_BYTES);
        bytes[NAME_AT..NAME_AT + len].copy_from_slice(&name.as_bytes()[..len]);
        if let Some(External { bytes: size, unit, first }) = self.external {
            bytes[EXTERNAL_AT..EXTERNAL_AT + 8].copy_from_slice(&size.to_le_bytes());
            bytes[EXTERNAL_AT + 8..EXTERNAL_AT + 12].copy_from_slice(&unit.to_le_bytes());
            bytes[EXTERNAL_AT + 12..EXTERNAL_AT + 16].copy_from_slice(&first.to_le_bytes());
        }
        bytes
    }

    /// Decodes and checks a request. The sender need not be trusted.
    ///
    /// # Errors
    /// What is wrong with the request. The caller sends it as the answer and closes the connection.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() != REQUEST_BYTES {
            return Err(MessageError::Length(bytes.len()));
        }
        if u32_at(bytes, 0) != REQUEST_MAGIC {
            return Err(MessageError::Magic(u32_at(bytes, 0)));
        }
        if u16_at(bytes, 4) != VERSION {
            return Err(MessageError::Version(u16_at(bytes, 4)));
        }
        let flags = u16_at(bytes, 6);
        let used = if flags & EXTERNAL != 0 { EXTERNAL_AT..EXTERNAL_AT + EXTERNAL_BYTES } else { 0..0 };
        let is_reserved = |at: &usize| !used.contains(at);
        if flags & !(OFFLOAD | EXTERNAL) != 0
            || (NAME_AT + NAME_BYTES..REQUEST_BYTES).filter(is_reserved).any(|at| bytes[at] != 0)
        {
            return Err(MessageError::Reserved);
        }
        let field = &bytes[NAME_AT..NAME_AT + NAME_BYTES];
        let name = text_in(field).ok_or_else(|| MessageError::Name(String::from_utf8_lossy(field).into_owned()))?;
        let (switch, port) = split_name(name)?;
        let shape = Shape {
            tx_rings: u16_at(bytes, 8),
            rx_rings: u16_at(bytes, 10),
            tx_slots: u32_at(bytes, 12),
            rx_slots: u32_at(bytes, 16),
            buffer_size: u32_at(bytes, 20),
            extra_buffers: u32_at(bytes, 24),
            offload: flags & OFFLOAD != 0,
        };
        let external = (flags & EXTERNAL != 0).then(|| External {
            bytes: u64_at(bytes, EXTERNAL_AT),
            unit: u32_at(bytes, EXTERNAL_AT + 8),
            first: u32_at(bytes, EXTERNAL_AT + 12),
        });
        let request = Self { switch: switch.to_owned(), port: port.to_owned(), shape, external };
        request.layout(0).map_err(MessageError::Shape)?;
        Ok(request)
    }

    /// Computes the layout that the request asks for.
    ///
    /// # Errors
    /// A number is out of range. Never for a request that [`Request::decode`] has returned.
    pub fn layout(&self, colour: u32) -> Result<Layout, LayoutError> {
        match self.external {
            Some(external) => Layout::with_external(self.shape, colour, external),
            None => Layout::new(self.shape, colour),
        }
    }
}

/// The answer of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The port is attached. Three descriptors come with this message.
    Granted {
        /// The colour to compute the [`Layout`] with.
        colour: u32,
        /// Size of the memory in bytes: equal to the layout's.
        bytes: u64,
        /// The MAC address that the switch has bound to the port, or zeroes if none.
        mac: [u8; 6],
    },
    /// Why the request was refused, or why the port has ended.
    Refused(String),
    /// The client may send the memory that its request speaks of.
    SendMemory,
}

/// Values of a reply's status.
const GRANTED: u16 = 0;
const REFUSED: u16 = 1;
const SEND_MEMORY: u16 = 2;

// Layout of a reply: 0 magic, 4 version, 6 status (0 granted, 1 refused, 2 send memory), 8 colour, 12 zero, 16 bytes u64, 24 mac[6],
// 30 zero, 72 text.
const TEXT_AT: usize = REPLY_BYTES - TEXT_BYTES;

impl Reply {
    /// Encodes the reply. A text that is too long for its field is cut at a character boundary.
    #[must_use]
    pub fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut message = [0; REPLY_BYTES];
        message[0..4].copy_from_slice(&REPLY_MAGIC.to_le_bytes());
        message[4..6].copy_from_slice(&VERSION.to_le_bytes());
        match self {
            Self::Granted { colour, bytes, mac } => {
                message[8..12].copy_from_slice(&colour.to_le_bytes());
                message[16..24].copy_from_slice(&bytes.to_le_bytes());
                message[24..30].copy_from_slice(mac);
            }
            Self::Refused(text) => {
                message[6..8].copy_from_slice(&REFUSED.to_le_bytes());
                let end = text.floor_char_boundary(TEXT_BYTES);
                message[TEXT_AT..TEXT_AT + end].copy_from_slice(&text.as_bytes()[..end]);
            }
            Self::SendMemory => message[6..8].copy_from_slice(&SEND_MEMORY.to_le_bytes()),
        }
        message
    }

    /// Decodes a reply.
    ///
    /// # Errors
    /// The message is not a valid reply.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        if message.len() != REPLY_BYTES {
            return Err(MessageError::Length(message.len()));
        }
        if u32_at(message, 0) != REPLY_MAGIC {
            return Err(MessageError::Magic(u32_at(message, 0)));
        }
        if u16_at(message, 4) != VERSION {
            return Err(MessageError::Version(u16_at(message, 4)));
        }
        match u16_at(message, 6) {
            GRANTED => {
                let mut mac = [0; 6];
                mac.copy_from_slice(&message[24..30]);
                Ok(Self::Granted { colour: u32_at(message, 8), bytes: u64_at(message, 16), mac })
            }
            SEND_MEMORY => Ok(Self::SendMemory),
            _ => Ok(Self::Refused(text_in(&message[TEXT_AT..]).ok_or(MessageError::Text)?.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_whether_it_wants_offloads_and_no_flag_is_known_that_has_no_meaning() {
        for offload in [false, true] {
            let shape = Shape { offload, ..Shape::default() };
            let request = Request { switch: "lan0".to_owned(), port: "p".to_owned(), shape, external: None };
            let mut bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Ok(request));
            for flag in 2..16 {
                let flags = u16::from(offload) | 1 << flag;
                bytes[6..8].copy_from_slice(&flags.to_le_bytes());
                assert_eq!(Request::decode(&bytes), Err(MessageError::Reserved), "flags {flags:#x}");
            }
        }
    }

    #[test]
    fn a_request_with_memory_has_one_form_and_a_layout_inside_the_memory() {
        let shape = Shape { tx_rings: 2, extra_buffers: 3, ..Shape::default() };
        let slots = 2 * 512 + 512 + 3;
        for unit in [1, 2, 4, 8, 16, 32, 64] {
            let least = u64::from(slots * 2112 + 5 * unit);
            for (bytes, is_possible) in [(least - 1, false), (least, true), (least + 1000, true), (u64::MAX, false)] {
                let external = Some(External { bytes, unit, first: 5 });
                let request = Request { switch: "lan0".to_owned(), port: "p".to_owned(), shape, external };
                let decoded = Request::decode(&request.encode());
                if !is_possible {
                    assert!(matches!(decoded, Err(MessageError::Shape(error)) if error.what == "bytes"), "{bytes}");
                    continue;
                }
                assert_eq!(decoded, Ok(request.clone()));
                let layout = request.layout(3).expect("a layout");
                let end = layout.buffer(layout.buffer_count - 1) as u64 + 2112;
                assert!(end <= bytes && end + u64::from(unit) > bytes, "the last buffer is the last that fits");
                let own: Vec<u32> = (0..2)
                    .flat_map(|ring| (0..512).map(move |slot| layout.first_tx_buffer(ring, slot)))
                    .chain((0..512).map(|slot| layout.first_rx_buffer(0, slot)))
                    .chain(layout.extra_buffers())
                    .collect();
                assert_eq!((own[0], own.len()), (5, slots as usize));
                assert!(own.windows(2).all(|two| layout.buffer(two[1]) - layout.buffer(two[0]) == 2112));
                assert_eq!(layout.bytes, shape.own_bytes(), "the switch's memory has no buffers");
            }
        }
        for (unit, first, what) in
            [(0, 5, "unit"), (3, 5, "unit"), (128, 5, "unit"), (1, 1, "first"), (64, u32::MAX, "bytes")]
        {
            let external = Some(External { bytes: 8 << 20, unit, first });
            let request = Request { switch: "lan0".to_owned(), port: "p".to_owned(), shape, external };
            let refused = Request::decode(&request.encode());
            assert!(
                matches!(refused, Err(MessageError::Shape(error)) if error.what == what),
                "{unit} {first}: {refused:?}"
            );
        }
        assert_eq!(Reply::decode(&Reply::SendMemory.encode()), Ok(Reply::SendMemory));
    }
}
