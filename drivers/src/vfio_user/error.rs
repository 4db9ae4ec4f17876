//! Why a server cannot be used.

use std::io;
use std::path::PathBuf;

/// Why a vfio-user server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VfioUserError {
    /// No server listens.
    #[error("no vfio-user server at {}: {source}", path.display())]
    Unreachable {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The server refused a command.
    #[error("vfio-user server at {}: it refused {command}: {source}", path.display())]
    Refused {
        /// Path of the socket.
        path: PathBuf,
        /// The command.
        command: String,
        /// The errno of the refusal.
        source: io::Error,
    },
    /// The dialogue with the server failed.
    #[error("vfio-user server at {}: {command}: {source}", path.display())]
    Dialogue {
        /// Path of the socket.
        path: PathBuf,
        /// The command.
        command: String,
        /// What went wrong.
        source: io::Error,
    },
    /// The kernel refuses a setting of the socket.
    #[error("cannot set up a socket: {0}")]
    Socket(#[from] io::Error),
}
