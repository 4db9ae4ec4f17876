//! The driver's side of virtio-net devices (virtio 1.3, 5.1).
//!
//! A frame has one buffer with its 12-byte header in front, and every buffer has one descriptor. Notifications are suppressed in both directions
//! while both sides work. What the device writes is checked: an impossible buffer or length is a [`Misuse`].
//!
//! The two formats of rings, [`Split`] and [`Packed`], have two users. A [`Queue`] owns its buffers: a place of the ring takes the buffer that was
//! used there a lap before, so that with a device that works in order only an index changes, and frames of a batch cost a few instructions.
//! An [`AnyRing`] takes any buffers of its user, one by one, with [`Transmit`] and [`Receive`] as the owners of each: nothing is copied when the user
//! keeps a frame, or sends it again.
//!
//! | file | holds |
//! |---|---|
//! | `feature.rs` | feature bits |
//! | `ring.rs` | what a ring tells, how a device breaks the rules, and the operations of a format |
//! | `split.rs`, `packed.rs` | the rings as the device sees them |
//! | `buffer.rs`, `queue.rs`, `gathering.rs` | a ring with buffers of its own; frames over several of them |
//! | `any_ring.rs`, `transmit.rs`, `receive.rs` | a ring of either format for its user's buffers |
//! | `pci.rs` | a device on a PCI bus: registers for features, queues, notifications, interrupts |
//! | `vhost_user.rs` | a device behind a socket: the dialogue with a vhost-user back end |

mod any_ring;
#[cfg(test)]
mod any_ring_tests;
pub mod buffer;
pub mod feature;
mod gathering;
mod packed;
pub mod pci;
mod queue;
mod receive;
mod ring;
mod split;
mod transmit;
pub mod vhost_user;

pub use any_ring::AnyRing;
pub use gathering::{Gathering, wrong_length};
pub use packed::Packed;
pub use queue::Queue;
pub use receive::Receive;
pub use ring::{Direction, Misuse, Order, Parts, QueueLayout, Ring, Shape, Used};
pub use split::Split;
pub use transmit::Transmit;
