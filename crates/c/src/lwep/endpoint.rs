//! An LWEP endpoint: attaching, services, connections, what was counted.

use std::ffi::{c_char, c_int};
use std::io;
use std::net::Ipv4Addr;
use std::ptr;

use ringway_client::AttachError;
use ringway_link::{AnyLink, AnyOptions, LinkName};
use ringway_lwep::{ConnectError, Connection, Endpoint, Options, SendError};

use super::handles::Handles;
use super::held::Held;
use crate::error::{
    RINGWAY_E_ARGUMENT, RINGWAY_E_CONNECTIONS, RINGWAY_E_IN_MESSAGE, RINGWAY_E_INTERFACE, RINGWAY_E_LENGTH,
    RINGWAY_E_NAME, RINGWAY_E_OVER, RINGWAY_E_SHAPE, code,
};
use crate::port::{Failure, read_names, read_sized, store};

/// An LWEP endpoint at a link: a process port, or a network interface. ringway_lwep_attach() makes it, ringway_lwep_free() ends it.
pub struct Lwep {
    pub(crate) endpoint: Endpoint<AnyLink>,
    /// The message that the last ringway_lwep_poll() returned.
    pub(crate) last: (*const u8, usize),
    /// Buffers that the program has.
    pub(crate) held: Handles<Held>,
}

/// How an endpoint behaves. 0 stands for the default, which is in parentheses.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct LwepOptions {
    /// sizeof(struct ringway_lwep_options), set by RINGWAY_LWEP_OPTIONS_INIT. Later versions of the library may append members.
    pub size: usize,
    /// Slots of the transmit ring and of the receive ring: 4 to 32768 (1024 of a process port, 512 of other links).
    pub slots: u32,
    /// Bytes of a buffer: 128 to 65472, a multiple of 64 (2112 of a process port, 2048 of other links). Header and checksum take 52 bytes
    /// of it, and an offload header 66. A dev: link with an address needs 65549 or more, an xdp: link 2048 or 4096.
    pub buffer_size: u32,
    /// Buffers for messages to send, and for messages that wait or are kept: up to 65536 (4096 of a process port, 2048 of other links).
    pub buffers: u32,
    /// 1: a process port or a NIC of pci: takes and gives frames that are still to be segmented, for ringway_lwep_reserve_many(). A dev:
    /// link does so with an address, an xdp: link never.
    pub offload: u32,
    /// Most connections of one station; there is room for half as many more (1024).
    pub connections: u32,
    /// Messages of each connection that are taken before the program has had them: 8 to 4096 (1024).
    pub window: u32,
    /// Messages of each connection that may be queued and not acknowledged (1024).
    pub queue: u32,
    /// 1: frames have checksums (CRC-32C); so have those of the peers.
    pub checksums: u32,
    /// Most bytes of a long message that is taken (none is).
    pub long_message: u32,
    /// Bytes of the messages that a segmented buffer becomes (1440).
    pub segment: u32,
    /// Connections that peers have asked for and not completed: more displace the oldest (64).
    pub half_open: u32,
    /// The endpoint's own IPv4 address, which no kernel has, for segmented buffers; 0.0.0.0: no such frames are taken.
    pub address: [u8; 4],
    /// The address to use at a process port, if none is bound to it. Other links have the interface's.
    pub mac: [u8; 6],
    /// 0.
    pub reserved: [u8; 2],
    /// An acknowledgement waits at most so long for a message that carries it, in nanoseconds (25000).
    pub acknowledge_within_ns: u64,
    /// A connection without traffic for so long asks whether its peer is there, in nanoseconds (never).
    pub keep_alive_ns: u64,
    /// A connection attempt ends without an answer for so long, in nanoseconds (5000000000).
    pub connect_within_ns: u64,
}

impl LwepOptions {
    /// Returns the options of the link with this name, and of the endpoint.
    fn read(&self, name: LinkName<'_>) -> Result<(AnyOptions, Options), Failure> {
        let or = |asked: u32, default: u32| if asked == 0 { default } else { asked };
        let within = |what: &str, asked: u32, least: u32, most: u32| {
            let message = || (RINGWAY_E_SHAPE, format!("{what} {asked} is not possible: {least} to {most}"));
            (asked == 0 || (least..=most).contains(&asked)).then_some(asked).ok_or_else(message)
        };
        let flag = |what: &str, asked: u32| within(what, asked, 0, 1).map(|asked| asked == 1);
        if self.reserved != [0; 2] {
            return Err((RINGWAY_E_SHAPE, "reserved members of the options are not 0".to_owned()));
        }
        let time = |asked: u64, default: u64| if asked == 0 { default } else { asked };
        let (usual, default) = (name.usual(), Options::default());
        let address = (self.address != [0; 4]).then_some(Ipv4Addr::from(self.address));
        let link = AnyOptions {
            slots: or(self.slots, usual.slots),
            buffer: or(self.buffer_size, usual.buffer),
            buffers: within("buffers", or(self.buffers, usual.buffers), 16, 65_536)?,
            offload: flag("offload", self.offload)?,
            address,
            mac: (self.mac != [0; 6]).then_some(self.mac),
        };
        let options = Options {
            connections: or(within("connections", self.connections, 1, 1 << 20)?, default.connections),
            window: or(within("window", self.window, 8, 4096)?, default.window.into()) as u16,
            queue: or(within("queue", self.queue, 1, 1 << 20)?, default.queue as u32) as usize,
            checksums: flag("checksums", self.checksums)?,
            long: self.long_message,
            address,
            segment: or(within("segment", self.segment, 1, 65_535)?, default.segment.into()) as u16,
            acknowledge_within: time(self.acknowledge_within_ns, default.acknowledge_within),
            keep_alive: (self.keep_alive_ns != 0).then_some(self.keep_alive_ns),
            connect_within: time(self.connect_within_ns, default.connect_within),
            half_open: or(within("half_open", self.half_open, 1, 1 << 16)?, default.half_open as u32) as usize,
            ..default
        };
        Ok((link, options))
    }
}

/// Opens the link `name`, makes an endpoint of it, and stores it in `*lwep`. `name` is SWITCH:PORT for a process port, through the socket
/// of the switch; dev:INTERFACE for a network interface that the host goes on using; xdp:INTERFACE or xdp:INTERFACE/QUEUE for one of its
/// queues by AF_XDP; pci:ADDRESS for a NIC that this program drives. `socket` and `options` may be NULL; `socket`, `text` and the result
/// are as with ringway_attach(), and RINGWAY_E_INTERFACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_attach(
    socket: *const c_char,
    name: *const c_char,
    options: *const LwepOptions,
    lwep: *mut *mut Lwep,
    text: *mut c_char,
    text_size: usize,
) -> c_int {
    // SAFETY: the caller's pointers, as this function's comment describes them.
    unsafe { store(Lwep::attach(socket, name, options), lwep, text, text_size) }
}

/// Detaches, and frees what belongs to the endpoint: also the buffers that the program has. Connections end without a word to their
/// peers: ringway_lwep_close() or ringway_lwep_abort() end them before. `lwep` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_free(lwep: *mut Lwep) {
    if !lwep.is_null() {
        // SAFETY: made by `ringway_lwep_attach`, and the caller does not use it again.
        drop(unsafe { Box::from_raw(lwep) });
    }
}

impl Lwep {
    /// Opens a link with an endpoint.
    ///
    /// # Safety
    /// `socket` and `name` are NULL or strings that end with NUL; `options` is as for [`read_sized`].
    unsafe fn attach(
        socket: *const c_char,
        name: *const c_char,
        options: *const LwepOptions,
    ) -> Result<Box<Lwep>, Failure> {
        // SAFETY: the caller's; options are numbers.
        let ((socket, name), options) = unsafe {
            (read_names(socket, name)?, read_sized(options, "options structure", "RINGWAY_LWEP_OPTIONS_INIT")?)
        };
        let parsed = LinkName::parse(name).map_err(|error| (RINGWAY_E_NAME, error.to_string()))?;
        let (link, options) = options.read(parsed)?;
        let link = AnyLink::open(name, socket.as_ref(), &link);
        let link = link.map_err(|error| (open_code(&error), error.to_string()))?;
        let endpoint = Endpoint::new(link, options);
        Ok(Box::new(Lwep { endpoint, last: (ptr::null(), 0), held: Handles::default() }))
    }

    /// Returns the endpoint.
    ///
    /// # Safety
    /// `lwep` is NULL or an endpoint, which no other thread uses for `'a`.
    #[inline]
    pub(crate) unsafe fn of<'a>(lwep: *mut Lwep) -> Option<&'a mut Lwep> {
        // SAFETY: the caller's.
        unsafe { lwep.as_mut() }
    }

    /// Returns the connection with this number.
    #[inline]
    pub(crate) fn connection(number: u32) -> Connection {
        Connection::from_number(number)
    }

    fn is_connection(&mut self, number: u32) -> c_int {
        if self.endpoint.status(Self::connection(number)).is_some() { 0 } else { RINGWAY_E_OVER }
    }
}

/// Returns the code of an error in opening a link.
fn open_code(error: &io::Error) -> c_int {
    let attach = error.get_ref().and_then(|error| error.source()).and_then(|error| error.downcast_ref::<AttachError>());
    match error.kind() {
        _ if attach.is_some() => attach.map_or(RINGWAY_E_INTERFACE, code),
        io::ErrorKind::InvalidInput => RINGWAY_E_SHAPE,
        _ => RINGWAY_E_INTERFACE,
    }
}

/// Returns the code for a message that is not taken: 0 if there will be room.
#[cold]
pub(crate) fn send_code(error: SendError) -> c_int {
    match error {
        SendError::Full => 0,
        SendError::TooLong => RINGWAY_E_LENGTH,
        SendError::Over => RINGWAY_E_OVER,
        SendError::OtherEndpoint => RINGWAY_E_ARGUMENT,
        SendError::InMessage => RINGWAY_E_IN_MESSAGE,
    }
}

/// Stores the first `size` bytes of a structure, and zeroes behind it if the caller's structure is that of a later version.
///
/// # Safety
/// `size` bytes can be written at `to`. All bytes of `T` are initialised.
unsafe fn store_sized<T: Copy>(from: &T, to: *mut T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: within the caller's `size` bytes, and within `from`.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(ptr::from_ref(from).cast(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
    }
}

/// Stores the 6 bytes of the endpoint's address at `mac`. Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_mac(lwep: *mut Lwep, mac: *mut u8) -> c_int {
    // SAFETY: the caller's endpoint.
    let (Some(lwep), false) = (unsafe { Lwep::of(lwep) }, mac.is_null()) else { return RINGWAY_E_ARGUMENT };
    // SAFETY: 6 bytes of the caller.
    unsafe { mac.cast::<[u8; 6]>().write(lwep.endpoint.mac()) };
    0
}

/// Returns most bytes of a message in one frame, if the peer takes as many: the least that ringway_lwep_reserve() gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_message(lwep: *mut Lwep) -> c_int {
    // SAFETY: the caller's endpoint.
    unsafe { Lwep::of(lwep) }.map_or(RINGWAY_E_ARGUMENT, |lwep| lwep.endpoint.message() as c_int)
}

/// Accepts connections to a service, a number that peers know. Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_listen(lwep: *mut Lwep, service: u32) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    lwep.endpoint.listen(service);
    0
}

/// Accepts no further connections to a service. Those that exist stay. Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_ignore(lwep: *mut Lwep, service: u32) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    lwep.endpoint.ignore(service);
    0
}

/// Asks the endpoint with the 6 bytes `mac` as address for a connection to `service`, and stores its number in `*connection`. Messages
/// may be sent at once: they go out when the peer has accepted, which RINGWAY_LWEP_CONNECTED tells. Returns 0; RINGWAY_E_CONNECTIONS if
/// there are too many, RINGWAY_E_ARGUMENT if the address is a group's or the endpoint's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_connect(
    lwep: *mut Lwep,
    mac: *const u8,
    service: u32,
    now: u64,
    connection: *mut u32,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { begin(lwep, mac, connection, |endpoint, mac| endpoint.connect(mac, service, now)) }
}

/// Begins a connection that both ends have agreed on by other means: both call this with the other one's address and the same
/// `identifier`, which was never used between them before. Nothing is sent for it. Returns as ringway_lwep_connect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_agree(
    lwep: *mut Lwep,
    mac: *const u8,
    identifier: u64,
    now: u64,
    connection: *mut u32,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { begin(lwep, mac, connection, |endpoint, mac| endpoint.agree(mac, identifier, now)) }
}

/// Begins a connection, and stores its number.
///
/// # Safety
/// `lwep` is as for [`Lwep::of`]; `mac` is NULL or 6 bytes; `connection` is NULL or can be written.
unsafe fn begin(
    lwep: *mut Lwep,
    mac: *const u8,
    connection: *mut u32,
    begin: impl FnOnce(&mut Endpoint<AnyLink>, [u8; 6]) -> Result<Connection, ConnectError>,
) -> c_int {
    // SAFETY: the caller's.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }).filter(|_| !mac.is_null() && !connection.is_null()) else {
        return RINGWAY_E_ARGUMENT;
    };
    // SAFETY: the caller's, not NULL.
    let begun = begin(&mut lwep.endpoint, unsafe { *mac.cast::<[u8; 6]>() });
    match begun {
        Ok(begun) => {
            // SAFETY: the caller's, not NULL.
            unsafe { connection.write(begun.number()) };
            0
        }
        Err(ConnectError::Full | ConnectError::InUse) => RINGWAY_E_CONNECTIONS,
        Err(ConnectError::Address) => RINGWAY_E_ARGUMENT,
    }
}

/// Announces that no further messages follow. The connection is over (RINGWAY_LWEP_ENDED) when both ends have done so and all messages
/// are acknowledged. Returns 0; RINGWAY_E_OVER if there is no such connection or this was done before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_close(lwep: *mut Lwep, connection: u32, now: u64) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    lwep.endpoint.close(Lwep::connection(connection), now).map_or_else(send_code, |()| 0)
}

/// Ends a connection at once. What is not acknowledged may have arrived or not: RINGWAY_LWEP_ENDED tells what is acknowledged. Returns
/// 0; RINGWAY_E_OVER if there is no such connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_abort(lwep: *mut Lwep, connection: u32, now: u64) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    let result = lwep.is_connection(connection);
    lwep.last = (ptr::null(), 0);
    lwep.endpoint.abort(Lwep::connection(connection), now);
    result
}

/// Takes no messages of a connection for the program. They wait until the connection's window is full; then the peer waits. Returns 0;
/// RINGWAY_E_OVER if there is no such connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_pause(lwep: *mut Lwep, connection: u32) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    lwep.endpoint.pause(Lwep::connection(connection));
    lwep.is_connection(connection)
}

/// Takes messages of a connection again. Returns as ringway_lwep_pause().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_resume(lwep: *mut Lwep, connection: u32) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    lwep.endpoint.resume(Lwep::connection(connection));
    lwep.is_connection(connection)
}

/// State of a connection.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct LwepStatus {
    /// The peer's address.
    pub mac: [u8; 6],
    /// 1 when messages flow: the handshake is over.
    pub is_open: u8,
    /// 1 if buffers to this peer can be segmented.
    pub is_segmented: u8,
    /// Most bytes of a message in one frame to this peer.
    pub message: u64,
    /// Messages that are queued or under way.
    pub queued: u64,
    /// Own messages that the peer has acknowledged.
    pub acknowledged: u64,
    /// The peer's messages that have arrived without a gap.
    pub received: u64,
    /// The smoothed round trip in nanoseconds; 0 before it is measured.
    pub round_trip_ns: u64,
}

/// Stores the state of a connection in `*status`; `size` is sizeof(struct ringway_lwep_status). Returns 0; RINGWAY_E_OVER if there is no
/// such connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_get_status(
    lwep: *mut Lwep,
    connection: u32,
    status: *mut LwepStatus,
    size: usize,
) -> c_int {
    // SAFETY: the caller's endpoint.
    let (Some(lwep), false) = (unsafe { Lwep::of(lwep) }, status.is_null()) else { return RINGWAY_E_ARGUMENT };
    let Some(found) = lwep.endpoint.status(Lwep::connection(connection)) else { return RINGWAY_E_OVER };
    let found = LwepStatus {
        mac: found.mac,
        is_open: found.is_open.into(),
        is_segmented: found.is_segmented.into(),
        message: found.message as u64,
        queued: found.queued as u64,
        acknowledged: found.acknowledged,
        received: found.received,
        round_trip_ns: found.round_trip.unwrap_or(0),
    };
    // SAFETY: `size` bytes of the caller; the structure has no padding.
    unsafe { store_sized(&found, status, size) };
    0
}

/// Frames and messages since the endpoint was made. Every frame that is not used is counted under its reason.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct LwepCounters {
    /// Messages that were sent for the first time, fragments counted one by one.
    pub messages_sent: u64,
    /// Messages that were given to the program, or added to a long one.
    pub messages_received: u64,
    /// Frames that were sent, with repetitions, acknowledgements and all others.
    pub frames_sent: u64,
    /// Frames that were received.
    pub frames_received: u64,
    /// Messages that were sent again.
    pub repeated: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Messages that had arrived before.
    pub duplicates: u64,
    /// Frames that are not LWEP.
    pub foreign: u64,
    /// Frames whose header is cut, contradicts itself, or is unknown.
    pub malformed: u64,
    /// Frames of another version.
    pub other_version: u64,
    /// Frames with a wrong checksum, or without one on a connection with checksums.
    pub bad_checksum: u64,
    /// Frames for no connection, or with a wrong secret or source.
    pub no_connection: u64,
    /// Messages with numbers outside the window.
    pub outside_window: u64,
    /// Acknowledgements of what was never sent.
    pub bad_acknowledgement: u64,
    /// Messages for which there was no free buffer.
    pub no_buffer: u64,
    /// Requests for connections that were refused or displaced.
    pub refused: u64,
    /// Answers to strangers that the rate limit has suppressed.
    pub unanswered: u64,
}

/// Stores what the endpoint has counted in `*counters`; `size` is sizeof(struct ringway_lwep_counters). Returns the number of
/// connections.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_get_counters(lwep: *mut Lwep, counters: *mut LwepCounters, size: usize) -> c_int {
    // SAFETY: the caller's endpoint.
    let (Some(lwep), false) = (unsafe { Lwep::of(lwep) }, counters.is_null()) else { return RINGWAY_E_ARGUMENT };
    let counted = *lwep.endpoint.counters();
    let counted = LwepCounters {
        messages_sent: counted.messages_sent,
        messages_received: counted.messages_received,
        frames_sent: counted.frames_sent,
        frames_received: counted.frames_received,
        repeated: counted.repeated,
        timeouts: counted.timeouts,
        duplicates: counted.duplicates,
        foreign: counted.foreign,
        malformed: counted.malformed,
        other_version: counted.other_version,
        bad_checksum: counted.bad_checksum,
        no_connection: counted.no_connection,
        outside_window: counted.outside_window,
        bad_acknowledgement: counted.bad_acknowledgement,
        no_buffer: counted.no_buffer,
        refused: counted.refused,
        unanswered: counted.unanswered,
    };
    // SAFETY: `size` bytes of the caller; the structure has no padding.
    unsafe { store_sized(&counted, counters, size) };
    lwep.endpoint.connections() as c_int
}
