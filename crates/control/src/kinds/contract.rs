//! What a kind of port is: settings that open a port and report on it, and the control side of a port whose peer comes and goes.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ringway_ports::Sides;
use ringway_ports::vhost_user::Observer;

use crate::api::types::PortStatus;
use crate::config::keys::Keys;
use crate::config::name::{Mac, Name};
use crate::config::table::Table;

/// The settings of a port of one kind. Each kind is a file of this folder, registered in the folder's `mod.rs`.
pub trait PortKind: Table + Any + fmt::Debug {
    /// Sets what a new port has by its name, if nothing else is written: a device, a socket.
    fn named(&mut self, name: &Name) {
        let _ = name;
    }

    /// Takes what follows from the keys of a new port, and notes keys that do not go together. `keys` were read before.
    fn agree(&mut self, name: &Name, keys: &Keys<'_>) {
        let _ = (name, keys);
    }

    /// What the port has on the host.
    fn end(&self) -> End<'_>;

    /// Opens the port.
    ///
    /// # Errors
    /// Its device or socket cannot be had.
    fn open(&self, at: &Opening<'_>) -> Result<Opened, CannotOpen>;

    /// Reports the settings of the port called `name`, which is bound to `macs`.
    fn report(&self, name: &Name, macs: &BTreeSet<Mac>, status: &mut PortStatus) {
        let _ = (name, macs, status);
    }
}

/// What identifies a kind of port. Apart from [`PortKind`], which can be a trait object.
pub trait Named: PortKind + Default {
    /// The value of the key `kind`.
    const NAME: &'static str;

    /// What a port of this kind connects, in one line.
    const ABOUT: &'static str;
}

/// What a port has on the host. No two ports can have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// Nothing.
    Nothing,
    /// Nothing until a client attaches, which brings the port with it.
    Client,
    /// A network device in this network namespace; none: the daemon's.
    Device {
        /// Its name.
        device: &'a str,
        /// The namespace.
        netns: Option<&'a str>,
    },
    /// A socket at this path, relative to the runtime directory.
    Socket(&'a Path),
}

/// What a port is opened with beside its settings.
pub struct Opening<'a> {
    /// The port's name.
    pub name: &'a Name,
    /// `SWITCH:PORT`, for thread names and messages.
    pub label: &'a str,
    /// The addresses bound to the port.
    pub macs: &'a BTreeSet<Mac>,
    /// The daemon's runtime directory.
    pub runtime_dir: &'a Path,
    /// Is told of connections, faults and defects.
    pub observer: Arc<dyn Observer>,
}

/// An open port.
pub struct Opened {
    /// The parts that the switch and the engine take.
    pub sides: Sides,
    /// The control side of a port whose peer comes and goes.
    pub link: Option<Box<dyn Link>>,
}

/// A port that could not be opened.
#[derive(Debug)]
pub struct CannotOpen {
    /// What was tried and why it failed.
    pub what: String,
    /// The kernel's reason.
    pub why: io::Error,
}

impl CannotOpen {
    /// The socket at this path cannot be opened.
    pub fn socket(path: &Path, why: io::Error) -> Self {
        Self { what: format!("cannot open socket \"{}\": {why}", path.display()), why }
    }
}

/// The control side of a port whose peer comes and goes. Ends the connection and removes the socket when dropped, which the peer
/// can make last.
pub trait Link: Send {
    /// Reports what is known of the peer, as of the last time that it could be told before `until`. Returns `None` when it never
    /// could.
    fn report(&mut self, until: Instant, status: &mut PortStatus) -> Option<State>;

    /// Returns what gives the running port other settings, if the kind has settings that change at run time and that the port's
    /// own threads keep.
    fn setter(&self) -> Option<Setter> {
        None
    }
}

/// Gives a running port these settings, a value of the type that opened the port. The peer can make this last.
pub type Setter = Box<dyn Fn(&dyn Any) + Send>;

/// How far a port's peer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is none.
    Waiting,
    /// It has connected; its guest has started no queue yet.
    Connected,
    /// Frames flow.
    Up,
}

impl State {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connected => "connected",
            Self::Up => "up",
        }
    }
}
