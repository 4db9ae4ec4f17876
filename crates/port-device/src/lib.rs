//! Ports of network devices of the host.
//!
//! | folder | port kind |
//! |---|---|
//! | [`tap`] | a TAP device: the network stack of the host or of a namespace |
//! | [`xdp`] | a network device, by AF_XDP |
//! | [`packet`] | a network device that the host goes on using, by a packet socket; or a macvtap |
//!
//! - `packet_socket`: frames that arrive at a network device. `socket_output`: frames to a TAP device or a packet socket. `tap_file`: frames
//!   from a TAP device or a macvtap.
//! - `device_watch`: the device goes or changes. `device_closing`: closes without waiting for the kernel.
//! - `kept`: what outlives the switch. `positions`: how far it is in a device's rings.
//! - `partial`: frames of the local kernel with incomplete checksums.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod device_closing;
mod device_watch;
mod kept;
pub mod packet;
mod packet_socket;
mod partial;
mod positions;
mod socket_output;
pub mod tap;
mod tap_file;
pub mod xdp;

pub use device_closing::unclosed_devices;
pub use kept::{Found, is_kept_of};
pub use xdp::answer_about_tags;
