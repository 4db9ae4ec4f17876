//! A lean virtio-net driver in user space. It loads every vhost-user back end.
//!
//! The driver is one queue pair in memory of its own. Every frame has one buffer with its 12-byte header in front (virtio
//! 1.3, 5.1.6.1), every buffer has one descriptor, and both are written as seldom as the ring allows: a place of the ring
//! takes the buffer that was used there a lap before, so that with a device that works in order only an index changes.
//!
//! | file | holds |
//! |---|---|
//! | `options.rs` | what a driver can be told |
//! | `endpoint.rs` | the [`Endpoint`](crate::Endpoint) |

mod endpoint;
mod options;

pub use endpoint::VirtioEndpoint;
pub use options::{SocketRole, VirtioOptions};
pub use ringway_drivers::virtio::vhost_user::VhostUserError;
pub use ringway_drivers::virtio::{Packed, Ring, Split};
