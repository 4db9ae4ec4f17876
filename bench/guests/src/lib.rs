//! Small virtual machines, made on the spot: a Debian kernel, a busybox initramfs, QEMU by software emulation.
//!
//! A guest boots in about two seconds. It obeys commands on a virtio port of its own, whatever becomes of its network. The
//! crate fetches or builds kernels, and fetches a QEMU from Debian where the host's is too old, once (`packaging/guest-*`), and what builds
//! the driver of `guest/linux`. The crate knows nothing of the switch.
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
mod complaints;
mod console;
mod driver;
mod error;
mod fetch;
mod guest;
mod initramfs;
mod kernel;
mod nic;
mod programs;
mod qemu;
mod qmp;

pub use builder::Builder;
pub use console::Output;
pub use error::Error;
pub use guest::{Guest, Job, PATIENCE};
pub use kernel::{Kernel, Release};
pub use nic::Nic;
pub use programs::missing;
pub use qemu::{Accel, Qemu};
