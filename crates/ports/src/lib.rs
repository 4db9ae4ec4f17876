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
// Guests choose the numbers here: release builds of this crate have no overflow checks, and no arithmetic here may wrap.
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

/// A port, in the parts that the switch and the engine take.
pub struct Sides {
    /// Frames from the client.
    pub input: Box<dyn Input>,
    /// Frames to the client.
    pub output: Box<dyn Output>,
    /// Wakes the client.
    pub bell: Box<dyn Bell>,
    /// How the client makes itself heard.
    pub signal: Signal,
}
