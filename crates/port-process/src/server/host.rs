//! What the server asks of the daemon: ports for its clients.

use std::sync::Arc;

use ringway_abi::attach::Request;
use ringway_abi::netmap::{Family, Numbers, PortName, Register, Reply, Wish};
use ringway_port::front_end::Process;
use ringway_port::port_io::PortIo;
use rustix::io::Errno;

use super::super::client_handles::ClientHandles;
use super::super::external::ExternalMemory;
use super::super::region::Registration;

/// Identifies an attached client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// A granted request.
#[derive(Debug)]
pub struct Grant {
    /// What the client gets.
    pub ends: ClientHandles,
    /// The colour of the layout.
    pub colour: u32,
    /// The MAC address bound to the port, or zero.
    pub mac: [u8; 6],
}

/// Makes and removes the ports that clients ask for. Called on the server's thread.
pub trait Host: NetmapHost + Send {
    /// Checks that the port of a client that brings memory can be made, before its memory is taken.
    ///
    /// # Errors
    /// Why the request is refused. The text is for the client.
    fn check(&mut self, request: &Request) -> Result<(), String>;

    /// Makes the port that a client asks for. `process`: that of the client. `memory`: what the client has brought, if the request says so.
    ///
    /// # Errors
    /// Why the request is refused. The text is for the client.
    fn attach(
        &mut self,
        client: ClientId,
        process: Process,
        request: Request,
        memory: Option<Arc<ExternalMemory>>,
    ) -> Result<Grant, String>;

    /// Takes the port that a predecessor made for a client, and that was opened again.
    ///
    /// # Errors
    /// Why the client ends. The text is for the client.
    fn take_over(
        &mut self,
        _client: ClientId,
        _process: Process,
        _request: &Request,
        _colour: u32,
        _port: PortIo,
    ) -> Result<(), String> {
        Err("the switch was started anew".to_owned())
    }

    /// All clients that a predecessor left have their ports.
    fn taken_over(&mut self) {}

    /// Removes the port of a client that has disconnected.
    fn detach(&mut self, client: ClientId);
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error's number.
    pub errno: Errno,
    /// The reason, for users.
    pub text: String,
    /// It may pass within a moment: the server asks the host again.
    pub is_transient: bool,
}

impl Refusal {
    /// A refusal by this errno, for this reason.
    pub fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno, text: text.into(), is_transient: false }
    }

    fn unsupported() -> Self {
        Self::new(Errno::OPNOTSUPP, "this switch has no ports for the netmap API")
    }

    pub(super) fn reply(&self) -> Reply {
        let errno = u16::try_from(self.errno.raw_os_error()).unwrap_or(0);
        Reply::Refused { errno, text: self.text.clone() }
    }
}

/// Who asks for something that lives on when he is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The process.
    pub process: Process,
    /// Its user, if the kernel tells.
    pub user: Option<u32>,
}

/// A port in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The port.
    pub name: PortName,
    /// Number of its switch.
    pub switch_index: u32,
    /// Number of the port in its switch.
    pub port_index: u32,
}

/// A change to a persistent port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Attaches a persistent port to a switch.
    Attach(PortName),
    /// Detaches a persistent port from its switch.
    Detach(PortName),
    /// Makes a persistent port.
    New(String),
    /// Deletes a persistent port.
    Delete(String),
}

/// Answers the requests of the netmap dialogue. Called on the server's thread, but registrations on others. By default, all are refused.
pub trait NetmapHost {
    /// Returns another handle of this host, for a thread that registers.
    fn another(&self) -> Box<dyn NetmapHost + Send> {
        Box::new(Unsupported)
    }

    /// Registers a port, or some of its rings, for a client that has no registration yet. `process`: that of the client. It touches memory of
    /// the client, so that the client decides how long it lasts: called on a thread that serves this process alone meanwhile.
    ///
    /// # Errors
    /// Why the request is refused.
    fn register(
        &mut self,
        _client: ClientId,
        _process: Process,
        _family: Family,
        _register: &Register,
    ) -> Result<Registration, Refusal> {
        Err(Refusal::unsupported())
    }

    /// Ends a client's registration, which the caller drops afterwards. The client may have none.
    fn unregister(&mut self, _client: ClientId) {}

    /// Returns the numbers that a port has or would get.
    ///
    /// # Errors
    /// Why the request is refused.
    fn info(&mut self, _family: Family, _name: &PortName, _wish: &Wish) -> Result<Numbers, Refusal> {
        Err(Refusal::unsupported())
    }

    /// Returns the port of this number, counted over all switches.
    ///
    /// # Errors
    /// There is none.
    fn list(&mut self, _number: u32) -> Result<Listed, Refusal> {
        Err(Refusal::unsupported())
    }

    /// Changes a persistent port.
    ///
    /// # Errors
    /// Why the request is refused.
    fn change(&mut self, _asker: Asker, _change: &Change) -> Result<(), Refusal> {
        Err(Refusal::unsupported())
    }
}

/// The host of a switch without ports for the netmap API.
struct Unsupported;

impl NetmapHost for Unsupported {}
