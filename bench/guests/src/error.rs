//! Errors of guests.

use std::path::PathBuf;

use crate::console::Output;

/// Why a guest could not be made, or did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is missing.
    #[error("{program} is not there: install the Debian package {package}")]
    Missing {
        /// Name of the program.
        program: String,
        /// Its Debian package.
        package: String,
    },
    /// The kernel could not be fetched or unpacked.
    #[error("no kernel for guests: {0}")]
    Kernel(String),
    /// A QEMU that is new enough could not be fetched or unpacked.
    #[error("no QEMU for such guests: {0}")]
    Qemu(String),
    /// The driver of Linux guests could not be built, or what builds it could not be fetched.
    #[error("no driver for guests: {0}")]
    Driver(String),
    /// An error at a file or socket of the guest.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file or socket.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// An event did not happen in time, or QEMU ended before it.
    #[error("guest {guest}: {what}\n{said}")]
    Failed {
        /// Name of the guest.
        guest: String,
        /// What went wrong.
        what: String,
        /// The last output of QEMU and of the guest's kernel.
        said: String,
    },
    /// A command in the guest ended with another status than 0.
    #[error("guest {guest}: {command:?} ended with status {}: {}", output.status, output.text)]
    Status {
        /// Name of the guest.
        guest: String,
        /// The command.
        command: String,
        /// Its result.
        output: Output,
    },
    /// Data changed on its way.
    #[error("guest {guest}: {what}")]
    Altered {
        /// Name of the receiver.
        guest: String,
        /// What arrived.
        what: String,
    },
}

/// Adds the path to an I/O error.
pub fn at(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.into();
    move |source| Error::Io { path, source }
}
