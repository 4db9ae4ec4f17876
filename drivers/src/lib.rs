//! Drivers of NICs in user space: virtio-net and e1000s, each behind a PCI function that this program owns, or behind a socket.
//!
//! LWEP's links drive NICs of their machine with them, and the traffic generator the ports of a switch.
//!
//! | module | holds |
//! |---|---|
//! | [`area`] | words that driver and device share, and buffers in the driver's memory |
//! | [`pci`] | PCI functions by VFIO and UIO: registers, interrupts, memory |
//! | [`vfio_user`] | PCI functions of a process behind a socket |
//! | [`virtio`] | the rings of virtio-net; devices on a PCI bus ([`virtio::pci`]) and behind sockets ([`virtio::vhost_user`]) |
//! | [`e1000`] | the rings and the bring-up of an 82540EM or 82574L |

pub mod area;
pub mod e1000;
mod messages;
pub mod pci;
pub mod vfio_user;
pub mod virtio;
