//! Errors of an attached port.

use std::io;
use std::path::PathBuf;

use ringway_abi::attach::MessageError;

/// Why a port could not be attached, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The name is not `SWITCH:PORT`.
    #[error(transparent)]
    Name(#[from] MessageError),
    /// No switch listens at the socket.
    #[error("no switch at {}: {source} (start one with \"ringway run\")", path.display())]
    Unreachable {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The switch refused the request or ended the port, for this reason.
    #[error("the switch refused: {0}")]
    Refused(String),
    /// A signal has ended a wait of [`crate::Port::wait_rx_or_signal`] or [`crate::Port::wait_tx_or_signal`].
    #[error("a signal has ended the wait")]
    Interrupted,
    /// The attach dialogue failed.
    #[error("attach dialogue: {0}")]
    Dialogue(#[source] io::Error),
    /// The shared memory differs from what the switch announced.
    #[error("shared memory: {0}")]
    Memory(#[source] io::Error),
}
