//! A lean virtio-net driver in user space. It loads every vhost-user back end.
//!
//! The driver is one queue pair in memory of its own. Every frame has one buffer with its 12-byte header in front (virtio
//! 1.3, 5.1.6.1), every buffer has one descriptor, and both are written as seldom as the ring allows: a place of the ring
//! takes the buffer that was used there a lap before, so that with a device that works in order only an index changes.
//!
//! | file | holds |
//! |---|---|
//! | `frontend.rs` | the vhost-user dialogue |
//! | `ring.rs` | the operations of a kind of ring |
//! | `split.rs`, `packed.rs` | the rings as the device sees them |
//! | `queue.rs` | a ring with its buffers, and the owner of each |
//! | `gathering.rs` | received frames over several buffers |
//! | `options.rs`, `endpoint.rs` | the [`Endpoint`](crate::Endpoint) |

mod endpoint;
mod frontend;
mod gathering;
mod options;
mod packed;
mod queue;
mod ring;
mod split;

pub use endpoint::VirtioEndpoint;
pub use frontend::VhostUserError;
pub use options::{MAX_RING, Meeting, VirtioOptions};
pub use packed::Packed;
pub use ring::Ring;
pub use split::Split;

/// Bytes of the header before every frame.
const HEADER: usize = 12;
/// Offset of the header in its buffer, so that the frame begins with a cache line, and a short frame takes no other
/// line.
const HEADER_AT: usize = 52;
/// Offset of the frame in its buffer.
const FRAME_AT: usize = HEADER_AT + HEADER;

/// Feature bits (virtio 1.3, 5.1.3 and 6).
mod feature {
    /// Frames with partial checksums and unsegmented TCP over IPv4, in both directions: VIRTIO_NET_F_CSUM, GUEST_CSUM,
    /// GUEST_TSO4, HOST_TSO4.
    pub const SEGMENTS: u64 = 1 << 0 | 1 << 1 | 1 << 7 | 1 << 11;
    /// Received frames may take several buffers.
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// Several queue pairs.
    pub const MQ: u64 = 1 << 22;
    /// Each side publishes the index at which it wants the next notification.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// vhost-user's own feature bit: there are protocol features.
    pub const PROTOCOL: u64 = 1 << 30;
    /// Not a legacy device.
    pub const VERSION_1: u64 = 1 << 32;
    /// Packed rings.
    pub const RING_PACKED: u64 = 1 << 34;
    /// The device uses buffers in the order in which they were made available.
    pub const IN_ORDER: u64 = 1 << 35;

    /// Returns the name of a feature that a back end lacks.
    pub fn name(bit: u64) -> &'static str {
        match bit {
            MRG_RXBUF => "mergeable receive buffers (VIRTIO_NET_F_MRG_RXBUF)",
            MQ => "several queue pairs (VIRTIO_NET_F_MQ)",
            EVENT_IDX => "event indices (VIRTIO_F_EVENT_IDX)",
            VERSION_1 => "virtio 1 (VIRTIO_F_VERSION_1)",
            RING_PACKED => "packed rings (VIRTIO_F_RING_PACKED)",
            _ if bit & SEGMENTS != 0 => {
                "checksum and segmentation offload (VIRTIO_NET_F_CSUM, HOST_TSO4 and GUEST_TSO4)"
            }
            _ => "use in order (VIRTIO_F_IN_ORDER)",
        }
    }
}
