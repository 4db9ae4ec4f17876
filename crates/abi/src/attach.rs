//! The attach dialogue on `attach.sock`: one request, one reply, then silence until one side ends the connection.
//!
//! The socket is `SOCK_SEQPACKET`, so a message is complete or refused. All numbers are little-endian. The reply to a granted
//! request carries three descriptors: the client's memory (a memfd sealed against shrinking, growing and further seals), the
//! eventfd that the client writes to wake the switch (kick), and the eventfd that wakes the client (call). When the switch
//! ends a port, the switch sends one more reply with the reason and closes the connection.

use crate::layout::{Layout, LayoutError, Shape};

/// Bytes of a request.
pub const REQUEST_BYTES: usize = 128;
/// Bytes of a reply.
pub const REPLY_BYTES: usize = 256;
/// Number of descriptors with a granting reply: memory, kick, call.
pub const REPLY_FDS: usize = 3;
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
// 24 extra_buffers, 28 name[66], 94 zero up to 128.
const NAME_AT: usize = 28;
/// Flag for [`Shape::offload`]. Other flags must be 0.
const OFFLOAD: u16 = 1;

impl Request {
    /// Encodes the request.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&if self.shape.offload { OFFLOAD } else { 0 }.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.shape.tx_rings.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.shape.rx_rings.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.shape.tx_slots.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.shape.rx_slots.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.shape.buffer_size.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.shape.extra_buffers.to_le_bytes());
        let name = format!("{}:{}", self.switch, self.port);
        let len = name.len().min(NAME_BYTES);
        bytes[NAME_AT..NAME_AT + len].copy_from_slice(&name.as_bytes()[..len]);
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
        if u16_at(bytes, 6) & !OFFLOAD != 0 || bytes[NAME_AT + NAME_BYTES..].iter().any(|&b| b != 0) {
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
            offload: u16_at(bytes, 6) & OFFLOAD != 0,
        };
        Layout::new(shape, 0).map_err(MessageError::Shape)?;
        Ok(Self { switch: switch.to_owned(), port: port.to_owned(), shape })
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
}

// Layout of a reply: 0 magic, 4 version, 6 status (0 granted, 1 refused), 8 colour, 12 zero, 16 bytes u64, 24 mac[6],
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
                message[6..8].copy_from_slice(&1u16.to_le_bytes());
                let end = text.floor_char_boundary(TEXT_BYTES);
                message[TEXT_AT..TEXT_AT + end].copy_from_slice(&text.as_bytes()[..end]);
            }
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
        if u16_at(message, 6) != 0 {
            return Ok(Self::Refused(text_in(&message[TEXT_AT..]).ok_or(MessageError::Text)?.to_owned()));
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&message[16..24]);
        let mut mac = [0; 6];
        mac.copy_from_slice(&message[24..30]);
        Ok(Self::Granted { colour: u32_at(message, 8), bytes: u64::from_le_bytes(bytes), mac })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_whether_it_wants_offloads_and_no_other_flag_is_known() {
        for offload in [false, true] {
            let shape = Shape { offload, ..Shape::default() };
            let request = Request { switch: "lan0".to_owned(), port: "p".to_owned(), shape };
            let mut bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Ok(request));
            for flag in 1..16 {
                let flags = u16::from(offload) | 1 << flag;
                bytes[6..8].copy_from_slice(&flags.to_le_bytes());
                assert_eq!(Request::decode(&bytes), Err(MessageError::Reserved), "flags {flags:#x}");
            }
        }
    }
}
