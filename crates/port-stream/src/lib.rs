//! Stream ports: frames one after the other on a Unix stream socket, each behind its length, as QEMU's `-netdev stream` and
//! passt send them. Any NIC model of any QEMU can be at the other end.
//!
//! - `framing`: where frames begin and end in a stream of bytes. `ended`: why a connection ended.
//! - `connection`: the connection, which the port's own thread gives to the data path and takes away.
//! - `protocol`: what that thread does with a connection.
//! - `sending`: sending without waiting.
//! - `lasting`: what outlives the switch.
//! - `input`, `output`: the data path's sides.
//!
//! A stream port shares no memory with its peer: the kernel copies each frame into the socket and, at the peer, out of the
//! socket, or into a pipe whose pages the socket takes over. There is no other copy. Frames go from the sender's memory into the socket, and from
//! the receive buffer of `recv` to the receivers. A poller never waits: a frame that the socket has no room for is dropped as `receiver_full`.
//!
//! A poller waits for the socket through an epoll descriptor of the port's, because connections change.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod connection;
mod ended;
mod lasting;
mod output;
mod protocol;
mod sending;
#[cfg(test)]
mod successor_tests;

// Peers choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in these modules
// may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod framing;
#[deny(clippy::arithmetic_side_effects)]
mod input;

#[cfg(fuzzing)]
pub mod fuzzing;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use connection::SharedConnection;
use input::StreamInput;
use lasting::Lasting;
use output::StreamOutput;
use protocol::StreamProtocol;
use ringway_keeper::Link;
use ringway_runtime::Signal;
use ringway_switch::{Bell, CallReason, CallResult};

pub use ringway_port::front_end::Observer;
use ringway_port::front_end::{Files, Role, Service, Socket, SocketAccess, State, kept_name};
use ringway_port::port_io::PortIo;

/// Settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `SWITCH:PORT`, for thread names and messages.
    pub label: String,
    /// Path of the socket.
    pub socket: PathBuf,
    /// Which side listens.
    pub role: Role,
    /// Who may connect to the socket that the port makes.
    pub access: SocketAccess,
}

/// The control side of a running port. Dropping it stops the port's thread and removes its socket.
pub struct Stream {
    connection: Arc<SharedConnection>,
    _service: Service,
}

impl Stream {
    /// Returns the state of the port: frames flow as soon as a peer is connected.
    #[must_use]
    pub fn state(&self) -> State {
        let connected = self.connection.is_connected();
        State::new(connected, connected)
    }
}

/// Opens a port. From now on peers may connect and disconnect; `observer` is told of each event.
///
/// # Errors
/// The socket cannot be opened, or the kernel has no descriptors, memory or threads left.
pub fn open(settings: &Settings, observer: Arc<dyn Observer>) -> io::Result<(PortIo, Stream)> {
    open_kept(settings, observer, &Link::default())
}

/// The same. With a keeper, the socket and the connection outlive the switch: peers that connect meanwhile wait, and the connected one goes on.
///
/// # Errors
/// As of [`open`].
pub fn open_kept(settings: &Settings, observer: Arc<dyn Observer>, keeper: &Link) -> io::Result<(PortIo, Stream)> {
    let Settings { label, socket, role, access } = settings;
    let lasting_name = kept_name("stream", socket);
    let socket = Socket { label, path: socket, role: *role, access, files: Files::Refused, keeper: Some(keeper) };
    // First: without a socket, what a predecessor left stays where it is.
    let socket = socket.open()?;
    let connection = Arc::new(SharedConnection::new(Lasting::open(keeper, &lasting_name, label)?)?);
    let sides = PortIo {
        input: Box::new(StreamInput::new(Arc::clone(&connection))),
        output: Box::new(StreamOutput::new(Arc::clone(&connection))),
        bell: Box::new(NoBell),
        signal: Signal::Device(connection.watch()),
    };
    let service = socket.serve(StreamProtocol { connection: Arc::clone(&connection) }, observer)?;
    Ok((sides, Stream { connection, _service: service }))
}

/// A bell without effect: the kernel wakes the peer that waits for its socket.
struct NoBell;

impl Bell for NoBell {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}
