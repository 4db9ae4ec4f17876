//! The driver of a virtio-net device on a PCI bus (virtio 1.3, 4.1 and 5.1), for a program that owns it.
//!
//! One queue pair. A frame and the 12-byte header before it have one buffer, one descriptor and no copy. Notifications are suppressed
//! in both directions while both sides work. What the device writes is checked: an impossible buffer or length ends the link.
//!
//! The rings and registers are in `drivers`.

mod link;

pub use link::{VirtioLink, VirtioOptions};
pub use ringway_drivers::virtio::Misuse;
