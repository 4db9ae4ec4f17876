//! A lean virtio-net driver in user space. It loads every vhost-user back end.
//!
//! The driver is one queue pair in memory of its own. Every frame has one buffer with its 12-byte header in front (virtio
//! 1.3, 5.1.6.1), every buffer has one descriptor, and both are written as seldom as the ring allows: a place of the ring
//! takes the buffer that was used there a lap before, so that with a device that works in order only an index changes.
//!
//! | file | holds |
//! |---|---|
//! | `feature.rs`, `frontend.rs` | the vhost-user dialogue |
//! | `buffer.rs` | the places of header and frame in a buffer |
//! | `ring.rs` | the operations of a kind of ring |
//! | `split.rs`, `packed.rs` | the rings as the device sees them |
//! | `queue.rs` | a ring with its buffers, and the owner of each |
//! | `gathering.rs` | received frames over several buffers |
//! | `options.rs`, `endpoint.rs` | the [`Endpoint`](crate::Endpoint) |

mod buffer;
mod endpoint;
mod feature;
mod frontend;
mod gathering;
mod options;
mod packed;
mod queue;
mod ring;
mod split;

pub use endpoint::VirtioEndpoint;
pub use frontend::VhostUserError;
pub use options::{SocketRole, VirtioOptions};
pub use packed::Packed;
pub use ring::Ring;
pub use split::Split;
