//! Small virtual machines, made on the spot: a Debian kernel, a busybox initramfs, QEMU by software emulation.
//!
//! A guest boots in about two seconds. It obeys commands on a virtio port of its own, whatever becomes of its network. The
//! crate fetches kernels, and a QEMU from Debian where the host's is too old, once (`packaging/guest-*`). The crate knows
//! nothing of the switch.
//!
//! ```no_run
//! use ringway_guests::{Guest, Nic};
//!
//! let left = Guest::builder("left").nic(Nic::vhost_user("/run/ringway/vm1.sock").mac("52:54:00:00:00:01")).start()?;
//! left.ok("ip link set eth0 up; ip addr add 10.0.0.1/24 dev eth0")?;
//! print!("{}", left.ok("ping -c 3 10.0.0.2")?);
//! # Ok::<(), ringway_guests::Error>(())
//! ```
#![forbid(unsafe_code)]

mod archive;
mod builder;
pub mod bulk;
mod console;
mod fetch;
mod guest;
mod initramfs;
mod kernel;
mod nic;
mod programs;
mod qemu;
mod qmp;

pub use builder::{Accel, Builder};
pub use console::Output;
pub use guest::{Guest, Job};
pub use kernel::{Kernel, Release};
pub use nic::Nic;
pub use programs::missing;
pub use qemu::Qemu;

use std::path::PathBuf;

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
fn at(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.into();
    move |source| Error::Io { path, source }
}
