//! Port kinds. Each kind is a folder with one public function `open` that makes the parts of a port: its input, its output, its
//! bell and its signal ([`PortIo`]). The daemon opens a port in the kind's file in `config/src/kinds`.
//!
//! The modules stand on floors. A module imports modules of lower floors only (`crates/switch/tests/floors.rs` proves it).
//!
//! ```text
//!  port kinds   process     tap     vhost_user     e1000       stream     xdp     packet
//!  ---------------------------------------------------------------------
//!  protocols                        virtqueue      vfio_user
//!  ---------------------------------------------------------------------
//!  clients      guest       gather     front_end   packet_socket     device_watch
//!  ---------------------------------------------------------------------
//!  bottom       port_io     copy       steer     socket_output   tap_file   partial
//! ```
//!
//! | folder | port kind |
//! |---|---|
//! | `process` | netmap's rings in memory shared with a program |
//! | `tap` | a network device of the host or of a namespace |
//! | `vhost_user` | virtio-net for stock hypervisors |
//! | `e1000` | an 82540EM or 82574L for stock QEMU, served by `vfio_user` |
//! | `stream` | frames on a Unix stream socket |
//! | `xdp` | a network device of the host, by AF_XDP |
//! | `packet` | a network device that the host goes on using, by a packet socket; or a macvtap |
//!
//! Kinds share these modules:
//!
//! - `virtqueue`: the device's side of both ring formats of virtio.
//! - `vfio_user`: serves a PCI function to a hypervisor.
//! - `guest`: a guest's memory, and the log of its written pages.
//! - `gather`: frames whose pieces are in several places of a guest's memory.
//! - `front_end`: everything around a peer's connection: connecting, the port's own thread, complete messages, the pause before
//!   the next connection, the state in reports.
//! - `port_io`: the parts of a port.
//! - `copy`: copies rows of frames into a client's memory.
//! - `steer`: receive queue selection. `socket_output`: frames to a TAP device or a packet socket. `tap_file`: frames from a TAP device or a
//!   macvtap.
//! - `packet_socket`: frames that arrive at a network device. `device_watch`: the device goes or changes.
//!   `device_closing`: closes without waiting for the kernel.
//!   `partial`: frames of the local kernel with incomplete checksums.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod copy;
mod device_closing;
mod device_watch;
pub mod e1000;
mod front_end;
mod gather;
// Guests choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in this module
// may wrap.
#[deny(clippy::arithmetic_side_effects)]
pub mod guest;
pub mod packet;
mod packet_socket;
mod partial;
mod port_io;
pub mod process;
mod socket_output;
mod steer;
pub mod stream;
pub mod tap;
mod tap_file;
#[cfg(test)]
mod testing;
pub mod vfio_user;
pub mod vhost_user;
pub mod virtqueue;
pub mod xdp;

pub use device_closing::unclosed_devices;
pub use front_end::{ClientFd, Observer, Role, SocketAccess, State, end_closer, listen_at, run_closer, start_closer};
pub use port_io::PortIo;
