//! Port kinds. Each kind is a folder with one public type that makes a port's sides: its input, its output, its bell and its
//! signal ([`Sides`]). The daemon opens a port kind in `control/src/daemon/open.rs`.
//!
//! | folder | port kind |
//! |---|---|
//! | `process` | netmap's rings in memory shared with a program |
//! | `tap` | a network device of the host or of a namespace |
//! | `vhost_user` | virtio-net for stock hypervisors |
//! | `e1000` | an 82540EM or 82574L for stock QEMU, served by `vfio_user` |
//! | `stream` | frames on a Unix stream socket |
//!
//! Kinds share these modules:
//!
//! - `virtqueue`: the device's side of both ring formats of virtio.
//! - `guest`: a guest's memory, and the log of its written pages.
//! - `front_end`: sockets, complete messages, a port's own thread, and the delay before the next connection.
//! - `vfio_user`: serves a PCI function to a hypervisor.
//! - `copy`: copies rows of frames into a client's memory.
//! - `gather`: frames whose pieces are in several places of a guest's memory.
//! - `steer`: receive queue selection.

mod copy;
pub mod e1000;
mod front_end;
mod gather;
// Guests choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in this module
// may wrap.
#[deny(clippy::arithmetic_side_effects)]
pub mod guest;
pub mod process;
mod steer;
pub mod stream;
pub mod tap;
pub mod vfio_user;
pub mod vhost_user;
pub mod virtqueue;

pub use front_end::refuse_files;
use ringway_engine::Signal;
use ringway_switch::{Bell, Input, Output};

/// The parts of one port, as the switch and the engine take them.
pub struct Sides {
    /// Takes frames from the client.
    pub input: Box<dyn Input>,
    /// Delivers frames to the client.
    pub output: Box<dyn Output>,
    /// Notifies the client of frames and of buffers that it can use again.
    pub bell: Box<dyn Bell>,
    /// Tells the engine how the client's notifications arrive.
    pub signal: Signal,
}
