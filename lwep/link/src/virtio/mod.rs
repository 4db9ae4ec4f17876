//! The driver of a virtio-net device on a PCI bus (virtio 1.3, 4.1 and 5.1), for a program that owns it.
//!
//! One queue pair. A frame and the 12-byte header before it have one buffer, one descriptor and no copy. Notifications are suppressed
//! in both directions while both sides work. What the device writes is checked: an impossible buffer or length ends the link.
//!
//! | file | holds |
//! |---|---|
//! | `feature.rs` | feature bits |
//! | `entry.rs` | what a ring tells, and how a device breaks the rules |
//! | `split.rs`, `packed.rs`, `ring.rs` | the rings as the device sees them; any of both |
//! | `transmit.rs`, `receive.rs` | a ring with its buffers, and the owner of each |
//! | `transport.rs` | registers: features, queues, notifications, interrupts |
//! | `link.rs` | [`VirtioLink`] |

mod entry;
mod feature;
mod link;
mod packed;
mod receive;
mod ring;
#[cfg(test)]
mod rings_tests;
mod split;
mod transmit;
mod transport;

pub use entry::Misuse;
pub use link::{VirtioLink, VirtioOptions};
