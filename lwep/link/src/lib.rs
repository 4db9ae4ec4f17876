//! Network interfaces that a program owns (VPE §3.1, §4.7): frames are sent from the program's registered memory, and received into
//! it, without the operating system.
//!
//! A [`Link`] is one such interface. Its memory is a number of [`Buffer`]s of equal size that the device knows. The program owns
//! them: it writes a frame into one and lets the link send it, keeps it until its peer has acknowledged the frame, and exchanges one
//! for the next received frame that it wants to keep.
//!
//! [`AnyLink`] opens any of them by its name.
//!
//! | interface | link |
//! |---|---|
//! | a process port of a switch on this host | [`ProcessLink`] |
//! | a network interface that the host goes on using | [`PacketLink`] |
//! | a queue of such an interface, without the host's stack | [`XdpLink`] |
//! | a virtio-net device that this program drives | [`virtio::VirtioLink`] |
//! | an e1000 or e1000e that this program drives | [`e1000::E1000Link`] |
//! | within this process, for tests | [`memory`] |

mod any;
pub mod e1000;
mod host;
pub mod memory;
mod packet;
mod process;
pub mod virtio;
mod xdp;

pub use any::{AnyLink, AnyOptions, LinkName};
pub use packet::{PacketLink, PacketOptions};
pub use process::{ProcessLink, ProcessOptions};
pub use ringway_abi::Offload;
pub use ringway_abi::offload::Gso;
pub use ringway_drivers::pci;
pub use ringway_lwep::link::{Counts, ETHERTYPE, Interface, Link, Received};
pub use ringway_memory::Buffer;
pub use ringway_netdevice::xdp::Mode as XdpMode;
pub use xdp::{XdpLink, XdpOptions};
