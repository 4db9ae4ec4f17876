//! The interface of a kind of port: settings that open a port and report on it, and the control side of a port whose peer connects.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ringway_api::types::PortStatus;
use ringway_port::{Observer, PortIo};
use ringway_port_device::Found;
use rustix::fs::Stat;

use super::access::Access;
use crate::keys::{Keys, Mac, Name, Table};
pub use ringway_port::State;

/// The settings of a port of one kind. Each kind is a file of this folder, registered in the folder's `mod.rs`.
pub trait PortKind: Table + Any + fmt::Debug {
    /// Sets the defaults that depend on the port's name: a device, a socket.
    fn named(&mut self, name: &Name) {
        let _ = name;
    }

    /// Sets the values of a new port that follow from other keys, and notes combinations that are not valid. Called after the keys are
    /// read.
    fn validate(&mut self, name: &Name, keys: &Keys<'_>) {
        let _ = (name, keys);
    }

    /// Returns the device or socket of the port on the host.
    fn end(&self) -> End<'_>;

    /// Opens the port.
    ///
    /// # Errors
    /// Its device or socket cannot be opened.
    fn open(&self, at: &Opening<'_>) -> Result<Opened, CannotOpen>;

    /// Opens the network device of the port, for a switch without privileges.
    ///
    /// # Errors
    /// It cannot be opened, or the kind has none.
    fn find(&self, at: &Finding<'_>) -> Result<(Found, Option<Namespace>), CannotOpen> {
        let _ = at;
        let why = io::Error::from(io::ErrorKind::Unsupported);
        Err(CannotOpen { what: "the kind of port has no network device".to_owned(), why })
    }

    /// Adds the settings to the status of the port `name`, to which `macs` are bound.
    fn report(&self, name: &Name, macs: &BTreeSet<Mac>, status: &mut PortStatus) {
        let _ = (name, macs, status);
    }
}

/// The name of a kind of port. It is not part of [`PortKind`], so that there are trait objects of that.
pub trait Named: PortKind + Default {
    /// The value of the key `kind`.
    const NAME: &'static str;

    /// What a port of this kind connects, in one line.
    const ABOUT: &'static str;
}

/// The device or socket of a port on the host. Two ports cannot have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// None.
    Nothing,
    /// None: the port exists while a client is attached.
    Client,
    /// A network device in this network namespace; none: the daemon's.
    Device {
        /// Its name.
        device: &'a str,
        /// The namespace.
        netns: Option<&'a str>,
    },
    /// A socket.
    Socket {
        /// Its path, relative to the runtime directory.
        path: &'a Path,
        /// Ringway makes the socket; otherwise the peer does.
        listens: bool,
    },
}

/// Bounds of `mtu`: the least of virtio (1.3, 5.1.4.1), and the payload of the longest frame with two VLAN tags.
pub const MTU: std::ops::RangeInclusive<u16> = 68..=65_513;

/// A network namespace that a name stands for, or stood for. The same name can be another one's later: a container that is started again makes
/// it anew. The kernel gives the number of one that is gone to another one: it says something only while somebody has the namespace, for example
/// a port that is open.
#[derive(Clone, Debug)]
pub struct Namespace {
    device: u64,
    inode: u64,
    /// The process that the name stands for, if it does.
    pub(super) process: Option<Process>,
}

/// A process by the file `stat` of its folder in `/proc`: the descriptor never leads to another one that gets the number later, keeps nothing of the process, and leads
/// to no folder: a client that took the switch over could pass it on.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// The file, which can be read while the process is there.
    pub file: Arc<OwnedFd>,
}

impl Process {
    /// Returns true if the process is there: its number was no other one's until now.
    pub fn is_there(&self) -> bool {
        // An ended one is none.
        matches!(rustix::io::pread(&self.file, &mut [0; 1], 0), Ok(1))
    }
}

impl Namespace {
    /// The namespace of this file, and the process whose file it is.
    pub fn new(stat: &Stat, process: Option<Process>) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino, process }
    }

    /// The namespace with this device and inode.
    pub fn with_number((device, inode): (u64, u64), process: Option<Process>) -> Self {
        Self { device, inode, process }
    }

    /// Returns device and inode of its file.
    pub fn number(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Returns the process whose it was.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Returns true if it was a process's.
    pub fn is_of_process(&self) -> bool {
        self.process.is_some()
    }

    /// Returns true if both have the same number.
    pub fn has_number_of(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As "ls -l /proc/PID/ns/net" and lsns(8) show it.
        write!(f, "net:[{}]", self.inode)
    }
}

/// What is needed to open a port, apart from its settings.
pub struct Opening<'a> {
    /// The port's name.
    pub name: &'a Name,
    /// `SWITCH:PORT`, for thread names and messages.
    pub label: &'a str,
    /// The addresses bound to the port.
    pub macs: &'a BTreeSet<Mac>,
    /// The daemon's runtime directory.
    pub runtime_dir: &'a Path,
    /// Who may connect to the sockets of ports that do not say otherwise.
    pub access: &'a Access,
    /// The network namespace that the device has to be in, if it was in one before that cannot have another one's name.
    pub namespace: Option<Namespace>,
    /// Receives connections, faults and defects of the port.
    pub observer: Arc<dyn Observer>,
    /// Holds what outlives the daemon.
    pub keeper: &'a ringway_keeper::Link,
}

/// What is needed to open the device of a port, apart from its settings.
pub struct Finding<'a> {
    /// The addresses bound to the port.
    pub macs: &'a BTreeSet<Mac>,
    /// The network namespace that the device has to be in, as for [`Opening`].
    pub namespace: Option<Namespace>,
    /// The places of devices that predecessors left.
    pub left: Vec<String>,
}

/// An open port.
pub struct Opened {
    /// The parts that the switch and the engine take.
    pub sides: PortIo,
    /// The control side of a port whose peer connects.
    pub link: Option<Box<dyn Link>>,
    /// The network namespace of the device, if it is not the daemon's.
    pub namespace: Option<Namespace>,
}

/// Why a port could not be opened.
#[derive(Debug)]
pub struct CannotOpen {
    /// What was tried and why it failed, for users.
    pub what: String,
    /// The kernel's reason.
    pub why: io::Error,
}

impl CannotOpen {
    /// The error for a socket that cannot be opened.
    pub fn socket(path: &Path, why: io::Error) -> Self {
        Self { what: format!("cannot open socket \"{}\": {why}", path.display()), why }
    }
}

/// The control side of a port whose peer connects. Dropping it ends the connection and removes the socket. The peer can delay that.
pub trait Link: Send {
    /// Adds the state of the peer to the status: the present state, or the state seen last if the present one is not known before
    /// `until`. Returns `None` if the peer was never seen.
    fn report(&mut self, until: Instant, status: &mut PortStatus) -> Option<State>;

    /// Returns the function that changes the settings of the running port, if the kind has settings that change at run time and that
    /// the port's own threads keep.
    fn setter(&self) -> Option<Setter> {
        None
    }
}

/// Changes the settings of a running port. The argument has the type of the settings that opened the port. The peer can delay this.
pub type Setter = Box<dyn Fn(&dyn Any) + Send>;
