//! Questions and answers.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Most bytes of a question, or of an answer.
pub(super) const BYTES_MOST: usize = 96 << 10;

/// Owner, group and mode of a socket; none: those of this process, and 0600.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The user's number.
    pub owner: Option<u32>,
    /// The group's number.
    pub group: Option<u32>,
    /// The permissions.
    pub mode: Option<u16>,
}

/// Device and inode of a file.
pub type Identity = (u64, u64);

/// What the switch asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Bind the socket beside this to a path. A socket that nobody listens on is removed before. The answer is [`Said::Bound`].
    Bind {
        /// The path.
        path: PathBuf,
        /// Who may connect.
        access: Access,
    },
    /// Remove a socket, if the path is still this one. The answer is [`Said::Done`].
    Remove {
        /// The path.
        path: PathBuf,
        /// What it was when it was bound.
        identity: Identity,
    },
    /// Connect the socket beside this to the listener at a path. The answer is [`Said::Done`].
    Connect {
        /// The path.
        path: PathBuf,
    },
    /// Open the network device of a port. The answer is [`Said::Device`].
    Device {
        /// The port's name.
        port: String,
        /// Its keys, as in the configuration.
        keys: serde_json::Map<String, serde_json::Value>,
        /// The namespace that the device has to be in, if it was a process's. The file `stat` of the process's folder is beside this.
        only: Option<Place>,
        /// The places of devices of this kind that predecessors left, and that are open already.
        left: Vec<String>,
    },
    /// Have a device take VLAN tags out of frames again. A socket for requests in its namespace is beside this. The answer is [`Said::Done`].
    Tags {
        /// The device's number.
        device: u32,
        /// The bits of its features.
        features: u128,
    },
    /// Look at the network namespace that this name or path stands for now. The answer is [`Said::Namespace`].
    Namespace {
        /// The name, as of `ip netns`, or a path.
        name: String,
    },
    /// Open a file of the configuration for reading. The answer is [`Said::Done`], with the file.
    Read {
        /// The path.
        path: PathBuf,
    },
    /// Let the socket, or the pipe, beside this have so many bytes of frames under way, beyond what the machine lets everybody have. The answer is [`Said::Done`].
    SendBuffer {
        /// The bytes: 4 MiB at most, 128 KiB of a pipe.
        bytes: u32,
    },
    /// Look for the compiler of forwarding programs. The answer is [`Said::Done`].
    FindCompiler,
    /// Start the compiler of forwarding programs. The answer is [`Said::Done`], with its standard input, output and error, and a pipe that says how
    /// it ended: the raw status, four bytes. It is ended when nobody has the pipe's other end any more.
    Compile,
    /// Start another closer, with the socket beside this as its standard input. The answer is [`Said::Done`], with its process.
    Closer,
    /// Replace the state file by the contents of the memory file beside this; without one, remove it. The answer is [`Said::Done`].
    State,
    /// Open the state file for reading. The answer is [`Said::Done`], with the file.
    ReadState {
        /// That of the runtime directory, where the configuration names another one.
        older: bool,
    },
    /// Open the file that is locked against another daemon with the same state file, and lock it. The answer is [`Said::Done`], with the file, if it needs one.
    LockState,
    /// Rename the state file, which cannot be used. The answer is [`Said::Aside`].
    RefuseState {
        /// That of the runtime directory, where the configuration names another one.
        older: bool,
    },
    /// Open the in-flight record of a port, whose file has so many bytes. The answer is [`Said::Done`], with the locked file.
    Record {
        /// The path.
        path: PathBuf,
        /// Bytes of the file.
        size: u64,
    },
    /// Put the file of an in-flight record aside, or remove it, if the path is still this one. The answer is [`Said::Done`].
    EndRecord {
        /// The path.
        path: PathBuf,
        /// The file.
        identity: Identity,
        /// Something in it is needed yet.
        keep: bool,
    },
}

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Device and inode of its file.
    pub identity: Identity,
    /// The number of the process whose it is. The process's file is beside the message.
    pub process: Option<u32>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// What was asked for.
    Done,
    /// The file has this path now.
    Aside(PathBuf),
    /// The socket is bound, and its path is this.
    Bound(Option<Identity>),
    /// The device is open.
    Device {
        /// Where it is.
        place: String,
        /// What its descriptors do not say. `None`: a predecessor left it at that place, and no descriptor is beside this.
        note: Option<String>,
        /// Its namespace, if it is not the daemon's. A process's file `stat` is the last file.
        namespace: Option<Place>,
    },
    /// The namespace, if there is one. A process's file is not beside this.
    Namespace(Option<Place>),
}

/// Why something cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason, for users.
    pub text: String,
    /// The kernel's number, if the reason is the kernel's alone.
    pub errno: Option<i32>,
    /// The kind, if it is one that somebody looks at.
    pub kind: Option<Kind>,
}

/// Kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// [`ErrorKind::NotFound`].
    NotFound,
    /// [`ErrorKind::PermissionDenied`].
    PermissionDenied,
    /// [`ErrorKind::AlreadyExists`].
    AlreadyExists,
    /// [`ErrorKind::AddrInUse`].
    AddrInUse,
    /// [`ErrorKind::InvalidInput`].
    InvalidInput,
    /// [`ErrorKind::Unsupported`].
    Unsupported,
    /// [`ErrorKind::OutOfMemory`].
    OutOfMemory,
    /// [`ErrorKind::ResourceBusy`].
    ResourceBusy,
}

const KINDS: [(ErrorKind, Kind); 8] = [
    (ErrorKind::NotFound, Kind::NotFound),
    (ErrorKind::PermissionDenied, Kind::PermissionDenied),
    (ErrorKind::AlreadyExists, Kind::AlreadyExists),
    (ErrorKind::AddrInUse, Kind::AddrInUse),
    (ErrorKind::InvalidInput, Kind::InvalidInput),
    (ErrorKind::Unsupported, Kind::Unsupported),
    (ErrorKind::OutOfMemory, Kind::OutOfMemory),
    (ErrorKind::ResourceBusy, Kind::ResourceBusy),
];

impl From<&io::Error> for Refusal {
    fn from(why: &io::Error) -> Self {
        let kind = KINDS.iter().find(|(kind, _)| *kind == why.kind()).map(|(_, kind)| *kind);
        Self { text: why.to_string(), errno: why.raw_os_error(), kind }
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        let kind =
            KINDS.iter().find(|(_, kind)| Some(*kind) == refusal.kind).map_or(ErrorKind::Other, |(kind, _)| *kind);
        refusal.errno.map_or_else(|| io::Error::new(kind, refusal.text), io::Error::from_raw_os_error)
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// What was done.
    pub said: Said,
    /// The files.
    pub files: Vec<OwnedFd>,
}

impl From<Said> for Reply {
    fn from(said: Said) -> Self {
        Self { said, files: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_the_kernel_and_of_others_arrive_as_they_were() {
        for why in [
            io::Error::from_raw_os_error(98),
            io::Error::new(ErrorKind::NotFound, "no namespace"),
            io::Error::other("another reason"),
        ] {
            let came = io::Error::from(Refusal::from(&why));
            assert_eq!(
                (came.kind(), came.to_string(), came.raw_os_error()),
                (why.kind(), why.to_string(), why.raw_os_error())
            );
        }
    }
}
