//! The netmap dialogue on `attach.sock`: a connection stands for one open `/dev/netmap`.
//!
//! The first message is [`Request::Open`]. After it the client asks and the switch answers, one answer for each request, and
//! the connection may be silent for any time. A connection registers at most one port, or some of its rings. The
//! registration ends with the connection. The switch ends it by [`Reply::Refused`] and the end of the connection.
//!
//! Processes that share a connection ask at the same time. The client writes a *tag* into each request, and the switch writes the same tag into
//! the answer ([`tagged`], [`tag_of`]). Each process takes the answers with its own tags. A message with the tag 0 answers no request: it says why
//! the connection ends.
//!
//! A *family* is a set of processes that trust each other, by a random number: a program and its children. Ports of one
//! family lie in one memory (a region), and its processes can share a port. The reply to a granted registration carries three
//! descriptors: the region's memory, the eventfd that wakes the switch (kick), and the registration's own eventfd that wakes
//! the client (call).
//!
//! Registrations of one ring share its doorbell, so the number of a wish ([`crate::doorbell`]) must differ from all earlier
//! ones of the ring, whichever process made them, and no waiter may withdraw the wish of another: see
//! [`crate::doorbell::SharedWakeRequest`]. A ring keeps its positions when one registration ends and another begins: the client continues at the
//! positions in the doorbell.
//!
//! An end of a pipe (`SWITCH:PORT{ID`, `SWITCH:PORT}ID`) is registered like a port, by any family that has the name first. Its
//! client also wakes the switch when it returns slots of a receive ring, if the switch asks for that in `rx.wish`. A transmit
//! ring's `tail` moves when the other end returns the slots. An end that is opened while the other is in use begins at the
//! positions in its doorbell.
//!
//! The socket is `SOCK_SEQPACKET`. All numbers are little-endian. Other requests on the socket have another magic: see
//! [`crate::attach`].

mod name;

use std::ops::Range;

use crate::attach::{MessageError, NAME_BYTES, REPLY_BYTES, REQUEST_BYTES, is_name, text_in, u16_at, u32_at, u64_at};
use crate::layout::{Layout, LayoutError, Place, Shape};

pub use name::{PipeEnd, PipeRole, PortName};

const REQUEST_MAGIC: u32 = 0x716d_6e72;
const REPLY_MAGIC: u32 = 0x726d_6e72;
const VERSION: u16 = 2;
const TEXT_BYTES: usize = 176;
/// Bytes of a tag, at the end of each message.
const TAG_BYTES: usize = 8;
/// Bytes of a family's number.
pub const FAMILY_BYTES: usize = 16;
/// Default number of slots of a ring.
pub const DEFAULT_SLOTS: u32 = 1024;
/// Default size of a buffer in bytes.
pub const DEFAULT_BUFFER_SIZE: u32 = 2112;

/// A family of processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Family(pub [u8; FAMILY_BYTES]);

impl std::fmt::Debug for Family {
    /// Does not show the number: a process that knows it belongs to the family.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Family")
    }
}

/// Rings of one direction that a registration asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rings {
    /// None.
    None,
    /// All that the port has.
    All,
    /// The rings from the first number to before the second. The port must have them all.
    Some(u16, u16),
}

impl Rings {
    /// The second number of [`Rings::All`]. No port has so many rings.
    const OPEN_END: u16 = u16::MAX;

    fn numbers(self) -> (u16, u16) {
        match self {
            Self::None => (0, 0),
            Self::All => (0, Self::OPEN_END),
            Self::Some(first, end) => (first, end),
        }
    }

    fn from_numbers(numbers: (u16, u16)) -> Result<Self, MessageError> {
        match numbers {
            (0, 0) => Ok(Self::None),
            (0, Self::OPEN_END) => Ok(Self::All),
            (first, end) if first < end && end < Self::OPEN_END => Ok(Self::Some(first, end)),
            (first, _) => {
                let allowed = "less than the end of the range";
                Err(MessageError::Shape(LayoutError { what: "first ring", asked: first.into(), allowed }))
            }
        }
    }

    /// Returns the numbers of the rings, or `None` if the port, which has `count` rings, does not have them all.
    #[must_use]
    pub fn of(self, count: u16) -> Option<Range<u16>> {
        match self {
            Self::None => Some(0..0),
            Self::All => Some(0..count),
            Self::Some(first, end) => (first < end && end <= count).then_some(first..end),
        }
    }
}

/// The numbers that a registration wants for a new port. 0 stands for the default. A port that exists keeps its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Transmit rings: 1 by default.
    pub tx_rings: u16,
    /// Receive rings: 1 by default.
    pub rx_rings: u16,
    /// Slots of each transmit ring: [`DEFAULT_SLOTS`] by default.
    pub tx_slots: u32,
    /// Slots of each receive ring: [`DEFAULT_SLOTS`] by default.
    pub rx_slots: u32,
    /// Bytes of a buffer: the region's by default, [`DEFAULT_BUFFER_SIZE`] for a new region.
    pub buffer_size: u32,
    /// Bytes of the offload header before each frame: 0, 10 or 12.
    pub header: u8,
}

impl Wish {
    /// Returns the shape of a new port in a region with buffers of `buffer_size` bytes.
    #[must_use]
    pub fn shape(&self, buffer_size: u32) -> Shape {
        let or = |number: u32, default| if number == 0 { default } else { number };
        Shape {
            tx_rings: self.tx_rings.max(1),
            rx_rings: self.rx_rings.max(1),
            tx_slots: or(self.tx_slots, DEFAULT_SLOTS),
            rx_slots: or(self.rx_slots, DEFAULT_SLOTS),
            buffer_size,
            extra_buffers: 0,
            offload: self.header != 0,
        }
    }
}

/// A request for a port, or for some of its rings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// The port.
    pub name: PortName,
    /// The transmit rings to bind.
    pub tx: Rings,
    /// The receive rings to bind.
    pub rx: Rings,
    /// No other registration may have one of these rings.
    pub exclusive: bool,
    /// The numbers for a new port.
    pub wish: Wish,
    /// Extra buffers for this registration. Fewer may be granted.
    pub extra_buffers: u32,
    /// The region that the port has to lie in, or 0: the family's own.
    pub region: u16,
    /// If not empty: the name is that of a port to monitor, and the registration is of a new port that hears its frames.
    pub monitor: Monitor,
    /// For the processes of the client: the switch keeps it with the registration.
    pub polling: Polling,
}

/// What a client's `poll` synchronises beyond the events that it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polling {
    /// Not the transmit rings (`NR_NO_TX_POLL`).
    pub no_tx: bool,
    /// The receive rings (`NR_DO_RX_POLL`).
    pub do_rx: bool,
}

impl Polling {
    const fn bits(self) -> u8 {
        self.no_tx as u8 | (self.do_rx as u8) << 1
    }

    const fn from_bits(bits: u8) -> Self {
        Self { no_tx: bits & 1 != 0, do_rx: bits & 2 != 0 }
    }
}

/// The frames of another port that a monitor hears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Monitor {
    /// Those that the port's client sends (`NR_MONITOR_TX`).
    pub sent: bool,
    /// Those that the port's client receives (`NR_MONITOR_RX`).
    pub received: bool,
}

impl Monitor {
    /// Returns true if it hears nothing: the registration is of the port itself.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    const fn bits(self) -> u8 {
        self.sent as u8 | (self.received as u8) << 1
    }

    const fn from_bits(bits: u8) -> Self {
        Self { sent: bits & 1 != 0, received: bits & 2 != 0 }
    }
}

/// A message to the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first message of a connection. Answered by [`Reply::Done`].
    Open(Family),
    /// Binds a port. Answered by [`Reply::Granted`].
    Register(Register),
    /// Asks for what the connection's registration was granted, with its descriptors. Answered by [`Reply::Granted`].
    Recall,
    /// Asks for the numbers that a port has or would get. Answered by [`Reply::Info`].
    Info(PortName, Wish),
    /// Asks for the port of this number, counted over all switches. Answered by [`Reply::Listed`].
    List(u32),
    /// Attaches a persistent port to a switch. Answered by [`Reply::Done`].
    Attach(PortName),
    /// Detaches a persistent port from its switch. Answered by [`Reply::Done`].
    Detach(PortName),
    /// Makes a persistent port of this name. Answered by [`Reply::Done`].
    New(String),
    /// Deletes the persistent port of this name. Answered by [`Reply::Done`].
    Delete(String),
}

const OPEN: u16 = 1;
const REGISTER: u16 = 2;
const RECALL: u16 = 3;
const INFO: u16 = 4;
const LIST: u16 = 5;
const ATTACH: u16 = 6;
const DETACH: u16 = 7;
const NEW: u16 = 8;
const DELETE: u16 = 9;

// Layout of a request: 0 magic, 4 version, 6 kind, then
// Open: 8 family[16].
// Register, Info: 8 tx_rings, 10 rx_rings, 12 tx_slots, 16 rx_slots, 20 buffer_size, 24 extra_buffers, 28 region, 30 header u8,
// 31 u8: bit 0 exclusive, 1 monitor sent, 2 monitor received, 3 polling no_tx, 4 polling do_rx, 32 tx first, 34 tx end, 36 rx first, 38 rx end, 40 name[66].
// List: 8 number. Attach, Detach, New, Delete: 40 name[66].
// The rest, up to the tag at 120, is zero.
const NAME_AT: usize = 40;

/// Copies `text` to the beginning of `field`, cut at a character boundary.
fn put_text(field: &mut [u8], text: &str) {
    let end = text.floor_char_boundary(field.len());
    field[..end].copy_from_slice(&text.as_bytes()[..end]);
}

fn put<const N: usize>(message: &mut [u8], at: usize, number: [u8; N]) {
    message[at..at + N].copy_from_slice(&number);
}

fn put_wish(message: &mut [u8], wish: &Wish) {
    put(message, 8, wish.tx_rings.to_le_bytes());
    put(message, 10, wish.rx_rings.to_le_bytes());
    put(message, 12, wish.tx_slots.to_le_bytes());
    put(message, 16, wish.rx_slots.to_le_bytes());
    put(message, 20, wish.buffer_size.to_le_bytes());
    message[30] = wish.header;
}

fn wish_in(message: &[u8]) -> Result<Wish, MessageError> {
    let wish = Wish {
        tx_rings: u16_at(message, 8),
        rx_rings: u16_at(message, 10),
        tx_slots: u32_at(message, 12),
        rx_slots: u32_at(message, 16),
        buffer_size: u32_at(message, 20),
        header: message[30],
    };
    if !matches!(wish.header, 0 | 10 | 12) {
        let error = LayoutError { what: "header", asked: wish.header.into(), allowed: "0, 10 or 12" };
        return Err(MessageError::Shape(error));
    }
    let buffer_size = if wish.buffer_size == 0 { DEFAULT_BUFFER_SIZE } else { wish.buffer_size };
    Layout::new(wish.shape(buffer_size), 0).map_err(MessageError::Shape)?;
    Ok(wish)
}

/// Returns the text in a field of a message.
fn name_in(field: &[u8]) -> Result<&str, MessageError> {
    text_in(field).ok_or_else(|| MessageError::Name(String::from_utf8_lossy(field).into_owned()))
}

/// Returns a name without a switch.
fn port_name(name: &str) -> Result<String, MessageError> {
    if is_name(name) { Ok(name.to_owned()) } else { Err(MessageError::Name(name.to_owned())) }
}

/// Returns true if a message belongs to this dialogue, and not to that of [`crate::attach`].
#[must_use]
pub fn is_netmap(message: &[u8]) -> bool {
    message.starts_with(&REQUEST_MAGIC.to_le_bytes())
}

/// Returns a message with this tag.
#[must_use]
pub fn tagged<const N: usize>(mut message: [u8; N], tag: u64) -> [u8; N] {
    message[N - TAG_BYTES..].copy_from_slice(&tag.to_le_bytes());
    message
}

/// Returns the tag of a request or a reply. A message that is neither has the tag 0.
#[must_use]
pub fn tag_of(message: &[u8]) -> u64 {
    match message.len() {
        bytes @ (REQUEST_BYTES | REPLY_BYTES) => u64_at(message, bytes - TAG_BYTES),
        _ => 0,
    }
}

fn check_start(message: &[u8], bytes: usize, magic: u32) -> Result<(), MessageError> {
    if message.len() != bytes {
        return Err(MessageError::Length(message.len()));
    }
    if u32_at(message, 0) != magic {
        return Err(MessageError::Magic(u32_at(message, 0)));
    }
    if u16_at(message, 4) != VERSION {
        return Err(MessageError::Version(u16_at(message, 4)));
    }
    Ok(())
}

impl Request {
    /// Encodes the request, with the tag 0.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut message = [0; REQUEST_BYTES];
        put(&mut message, 0, REQUEST_MAGIC.to_le_bytes());
        put(&mut message, 4, VERSION.to_le_bytes());
        put(&mut message, 6, self.kind().to_le_bytes());
        let name = match self {
            Self::Open(Family(family)) => {
                put(&mut message, 8, *family);
                String::new()
            }
            Self::Register(register) => {
                put_wish(&mut message, &register.wish);
                put(&mut message, 24, register.extra_buffers.to_le_bytes());
                put(&mut message, 28, register.region.to_le_bytes());
                message[31] =
                    u8::from(register.exclusive) | register.monitor.bits() << 1 | register.polling.bits() << 3;
                for (at, rings) in [(32, register.tx), (36, register.rx)] {
                    let (first, end) = rings.numbers();
                    put(&mut message, at, first.to_le_bytes());
                    put(&mut message, at + 2, end.to_le_bytes());
                }
                register.name.to_string()
            }
            Self::Recall => String::new(),
            Self::Info(name, wish) => {
                put_wish(&mut message, wish);
                name.to_string()
            }
            Self::List(number) => {
                put(&mut message, 8, number.to_le_bytes());
                String::new()
            }
            Self::Attach(name) | Self::Detach(name) => name.to_string(),
            Self::New(name) | Self::Delete(name) => name.clone(),
        };
        put_text(&mut message[NAME_AT..NAME_AT + NAME_BYTES], &name);
        message
    }

    fn kind(&self) -> u16 {
        match self {
            Self::Open(_) => OPEN,
            Self::Register(_) => REGISTER,
            Self::Recall => RECALL,
            Self::Info(..) => INFO,
            Self::List(_) => LIST,
            Self::Attach(_) => ATTACH,
            Self::Detach(_) => DETACH,
            Self::New(_) => NEW,
            Self::Delete(_) => DELETE,
        }
    }

    /// Decodes and checks a request. The sender need not be trusted.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        check_start(message, REQUEST_BYTES, REQUEST_MAGIC)?;
        let name = || name_in(&message[NAME_AT..NAME_AT + NAME_BYTES]);
        let request = match u16_at(message, 6) {
            OPEN => {
                let mut family = [0; FAMILY_BYTES];
                family.copy_from_slice(&message[8..8 + FAMILY_BYTES]);
                Self::Open(Family(family))
            }
            REGISTER => Self::Register(Register {
                name: name()?.parse()?,
                tx: Rings::from_numbers((u16_at(message, 32), u16_at(message, 34)))?,
                rx: Rings::from_numbers((u16_at(message, 36), u16_at(message, 38)))?,
                exclusive: message[31] & 1 != 0,
                wish: wish_in(message)?,
                extra_buffers: u32_at(message, 24),
                region: u16_at(message, 28),
                monitor: Monitor::from_bits(message[31] >> 1),
                polling: Polling::from_bits(message[31] >> 3),
            }),
            RECALL => Self::Recall,
            INFO => Self::Info(name()?.parse()?, wish_in(message)?),
            LIST => Self::List(u32_at(message, 8)),
            ATTACH => Self::Attach(PortName::of_port(name()?)?),
            DETACH => Self::Detach(PortName::of_port(name()?)?),
            NEW => Self::New(port_name(name()?)?),
            DELETE => Self::Delete(port_name(name()?)?),
            kind => return Err(MessageError::Kind(kind)),
        };
        // A request has one form: all bytes that it does not use are zero.
        if tagged(request.encode(), tag_of(message)) == *message { Ok(request) } else { Err(MessageError::Reserved) }
    }
}

/// The numbers of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The port.
    pub name: PortName,
    /// The region's number, or 0 if there is none yet.
    pub region: u16,
    /// Size of the region in bytes.
    pub region_bytes: u64,
    /// Rings, slots and size of the buffers. It has no extra buffers: they belong to the registrations.
    pub shape: Shape,
    /// Bytes of the offload header before each frame: 0, 10 or 12.
    pub header: u8,
    /// The MAC address that the switch has bound to the port, or zeroes if none.
    pub mac: [u8; 6],
}

/// A granted registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The port.
    pub numbers: Numbers,
    /// The colour to compute the [`Layout`] with.
    pub colour: u32,
    /// Offset of the port's own part of the region.
    pub base: u64,
    /// Offset of the registration's own `netmap_if`.
    pub interface: u64,
    /// Offset of buffer 0 of the region.
    pub buffers: u64,
    /// Number of buffers of the region's pool, including the two reserved ones.
    pub buffer_count: u32,
    /// Number of extra buffers of this registration.
    pub extra_buffers: u32,
    /// The first extra buffer, or 0 if there are none. `ni_bufs_head` names it, too.
    pub extra_head: u32,
    /// The bound transmit rings.
    pub tx: Range<u16>,
    /// The bound receive rings.
    pub rx: Range<u16>,
    /// No other registration can have these rings.
    pub exclusive: bool,
    /// As the client has asked.
    pub polling: Polling,
}

impl Granted {
    /// Returns the layout of the port in its region.
    ///
    /// # Errors
    /// The numbers contradict each other.
    pub fn layout(&self) -> Result<Layout, LayoutError> {
        let size = |what, number: u64| {
            usize::try_from(number).map_err(|_| LayoutError { what, asked: number, allowed: "less than 2^64" })
        };
        let place = Place {
            base: size("base", self.base)?,
            buffers: size("buffers", self.buffers)?,
            buffer_count: self.buffer_count,
            bytes: size("region_bytes", self.numbers.region_bytes)?,
        };
        Layout::in_region(self.numbers.shape, self.colour, place)
    }
}

/// The answer of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// Why the request was refused, or why the registration has ended.
    Refused {
        /// The number of the error, as of errno.h.
        errno: u16,
        /// The reason, for users.
        text: String,
    },
    /// The port is registered. Three descriptors come with this message.
    Granted(Granted),
    /// A port's numbers.
    Info(Numbers),
    /// A port.
    Listed {
        /// The port.
        name: PortName,
        /// Number of its switch.
        switch_index: u32,
        /// Number of the port in its switch.
        port_index: u32,
    },
}

// Layout of a reply: 0 magic, 4 version, 6 kind, then
// Refused: 8 errno, 72 text[176].
// Granted, Info: 8 region, 10 header u8, 11 u8: bit 0 exclusive, 1 polling no_tx, 2 polling do_rx, 12 colour, 16 region_bytes u64, 24 base u64, 32 interface u64,
// 40 buffers u64, 48 buffer_count, 52 buffer_size, 56 extra_buffers, 60 extra_head, 64 tx_rings, 66 rx_rings, 68 tx_slots,
// 72 rx_slots, 76 mac[6], 82 tx first, 84 tx end, 86 rx first, 88 rx end, 90 name[66].
// Listed: 8 switch_index, 12 port_index, 90 name[66].
// The rest, up to the tag at 248, is zero.
const TEXT_AT: usize = 72;
const REPLY_NAME_AT: usize = 90;

const DONE: u16 = 0;
const REFUSED: u16 = 1;
const GRANTED: u16 = 2;
const NUMBERS: u16 = 3;
const LISTED: u16 = 4;

impl Reply {
    /// Encodes the reply, with the tag 0. A text that is too long for its field is cut at a character boundary.
    #[must_use]
    pub fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut message = [0; REPLY_BYTES];
        put(&mut message, 0, REPLY_MAGIC.to_le_bytes());
        put(&mut message, 4, VERSION.to_le_bytes());
        let kind = match self {
            Self::Done => DONE,
            Self::Refused { errno, text } => {
                put(&mut message, 8, errno.to_le_bytes());
                put_text(&mut message[TEXT_AT..TEXT_AT + TEXT_BYTES], text);
                REFUSED
            }
            Self::Granted(granted) => {
                put_numbers(&mut message, &granted.numbers);
                put_granted(&mut message, granted);
                GRANTED
            }
            Self::Info(numbers) => {
                put_numbers(&mut message, numbers);
                NUMBERS
            }
            Self::Listed { name, switch_index, port_index } => {
                put(&mut message, 8, switch_index.to_le_bytes());
                put(&mut message, 12, port_index.to_le_bytes());
                put_text(&mut message[REPLY_NAME_AT..REPLY_NAME_AT + NAME_BYTES], &name.to_string());
                LISTED
            }
        };
        put(&mut message, 6, kind.to_le_bytes());
        message
    }

    /// Decodes a reply.
    ///
    /// # Errors
    /// The message is not a valid reply.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        check_start(message, REPLY_BYTES, REPLY_MAGIC)?;
        let name = || name_in(&message[REPLY_NAME_AT..REPLY_NAME_AT + NAME_BYTES])?.parse();
        match u16_at(message, 6) {
            DONE => Ok(Self::Done),
            REFUSED => {
                let text = text_in(&message[TEXT_AT..TEXT_AT + TEXT_BYTES]).ok_or(MessageError::Text)?.to_owned();
                Ok(Self::Refused { errno: u16_at(message, 8), text })
            }
            GRANTED => {
                let granted = granted_in(message, numbers_in(message, name()?));
                granted.layout().map_err(MessageError::Shape)?;
                Ok(Self::Granted(granted))
            }
            NUMBERS => Ok(Self::Info(numbers_in(message, name()?))),
            LISTED => {
                let (switch_index, port_index) = (u32_at(message, 8), u32_at(message, 12));
                Ok(Self::Listed { name: name()?, switch_index, port_index })
            }
            kind => Err(MessageError::Kind(kind)),
        }
    }
}

fn put_numbers(message: &mut [u8], numbers: &Numbers) {
    let shape = &numbers.shape;
    put(message, 8, numbers.region.to_le_bytes());
    message[10] = numbers.header;
    put(message, 16, numbers.region_bytes.to_le_bytes());
    put(message, 52, shape.buffer_size.to_le_bytes());
    put(message, 64, shape.tx_rings.to_le_bytes());
    put(message, 66, shape.rx_rings.to_le_bytes());
    put(message, 68, shape.tx_slots.to_le_bytes());
    put(message, 72, shape.rx_slots.to_le_bytes());
    put(message, 76, numbers.mac);
    put_text(&mut message[REPLY_NAME_AT..REPLY_NAME_AT + NAME_BYTES], &numbers.name.to_string());
}

fn numbers_in(message: &[u8], name: PortName) -> Numbers {
    let mut mac = [0; 6];
    mac.copy_from_slice(&message[76..82]);
    let header = message[10];
    let shape = Shape {
        tx_rings: u16_at(message, 64),
        rx_rings: u16_at(message, 66),
        tx_slots: u32_at(message, 68),
        rx_slots: u32_at(message, 72),
        buffer_size: u32_at(message, 52),
        extra_buffers: 0,
        offload: header != 0,
    };
    Numbers { name, region: u16_at(message, 8), region_bytes: u64_at(message, 16), shape, header, mac }
}

fn put_granted(message: &mut [u8], granted: &Granted) {
    message[11] = u8::from(granted.exclusive) | granted.polling.bits() << 1;
    put(message, 12, granted.colour.to_le_bytes());
    put(message, 24, granted.base.to_le_bytes());
    put(message, 32, granted.interface.to_le_bytes());
    put(message, 40, granted.buffers.to_le_bytes());
    put(message, 48, granted.buffer_count.to_le_bytes());
    put(message, 56, granted.extra_buffers.to_le_bytes());
    put(message, 60, granted.extra_head.to_le_bytes());
    put(message, 82, granted.tx.start.to_le_bytes());
    put(message, 84, granted.tx.end.to_le_bytes());
    put(message, 86, granted.rx.start.to_le_bytes());
    put(message, 88, granted.rx.end.to_le_bytes());
}

fn granted_in(message: &[u8], numbers: Numbers) -> Granted {
    Granted {
        numbers,
        colour: u32_at(message, 12),
        base: u64_at(message, 24),
        interface: u64_at(message, 32),
        buffers: u64_at(message, 40),
        buffer_count: u32_at(message, 48),
        extra_buffers: u32_at(message, 56),
        extra_head: u32_at(message, 60),
        tx: u16_at(message, 82)..u16_at(message, 84),
        rx: u16_at(message, 86)..u16_at(message, 88),
        exclusive: message[11] & 1 != 0,
        polling: Polling::from_bits(message[11] >> 1),
    }
}

#[cfg(test)]
mod tests;
