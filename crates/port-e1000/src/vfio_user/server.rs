//! The running socket of a port that serves a PCI function.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ringway_keeper::Link;
use ringway_port::front_end::{Files, Observer, Role, Service, Socket, SocketAccess};

use super::function::Function;
use super::interrupts::Interrupts;
use super::protocol::VfioProtocol;

/// Settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// `SWITCH:PORT`, for the thread's name.
    pub label: String,
    /// Path of the socket.
    pub socket: PathBuf,
    /// Who may connect to it.
    pub access: SocketAccess,
}

/// The running thread of a port. Dropping it ends the thread, its connection and its socket.
pub struct Server {
    _service: Service,
}

impl Server {
    /// Listens, and serves `function` to the front ends that connect.
    ///
    /// # Errors
    /// The socket cannot be opened, or the kernel has no descriptors or threads left.
    pub fn start(
        settings: &ServerSettings,
        function: Arc<dyn Function>,
        interrupts: Arc<Interrupts>,
        observer: Arc<dyn Observer>,
    ) -> io::Result<Server> {
        Server::start_kept(settings, function, interrupts, observer, None)
    }

    /// The same. `keeper`: has the listener and the connection outlive this process.
    ///
    /// # Errors
    /// As for [`Server::start`].
    pub fn start_kept(
        settings: &ServerSettings,
        function: Arc<dyn Function>,
        interrupts: Arc<Interrupts>,
        observer: Arc<dyn Observer>,
        keeper: Option<&Link>,
    ) -> io::Result<Server> {
        let ServerSettings { label, socket, access } = settings;
        let socket = Socket { label, path: socket, role: Role::Server, access, files: Files::Taken, keeper };
        let protocol = VfioProtocol::new(function, interrupts)?;
        Ok(Server { _service: Service::start(&socket, protocol, observer)? })
    }
}
