//! The driver's side of a virtio-net device (virtio 1.3, 5.1).
//!
//! | file | holds |
//! |---|---|
//! | `feature.rs`, `vhost_user.rs` | the vhost-user dialogue |
//! | `buffer.rs` | the places of header and frame in a buffer |
//! | `ring.rs` | the operations of a kind of ring |
//! | `split.rs`, `packed.rs` | the rings as the device sees them |
//! | `queue.rs` | a ring with its buffers, and the owner of each |
//! | `gathering.rs` | received frames over several buffers |

pub mod any_ring;
#[cfg(test)]
mod any_ring_tests;
pub mod buffer;
pub mod entry;
pub mod feature;
pub mod feature_of_link;
mod gathering;
mod packed;
mod packed_of_link;
pub mod pci;
mod queue;
pub mod receive;
mod ring;
mod split;
mod split_of_link;
pub mod transmit;
pub mod vhost_user;

pub use gathering::{Gathering, wrong_length};
pub use packed::Packed;
pub use queue::Queue;
pub use ring::{Direction, Misuse, Order, Parts, QueueLayout, Ring, Used};
pub use split::Split;
