//! Feature bits (virtio 1.3, 5.1.3 and 6).

/// The device sums frames to send: VIRTIO_NET_F_CSUM.
pub const CSUM: u64 = 1 << 0;
/// Received frames may lack a checksum: VIRTIO_NET_F_GUEST_CSUM.
pub const GUEST_CSUM: u64 = 1 << 1;
/// The device tells its MTU: VIRTIO_NET_F_MTU.
pub const MTU: u64 = 1 << 3;
/// The device tells its address: VIRTIO_NET_F_MAC.
pub const MAC: u64 = 1 << 5;
/// Received frames may be unsegmented: VIRTIO_NET_F_GUEST_TSO4.
pub const GUEST_TSO4: u64 = 1 << 7;
/// The device segments frames to send: VIRTIO_NET_F_HOST_TSO4.
pub const HOST_TSO4: u64 = 1 << 11;
/// Frames with partial checksums and unsegmented TCP over IPv4, in both directions.
pub const SEGMENTS: u64 = CSUM | GUEST_CSUM | GUEST_TSO4 | HOST_TSO4;
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
/// The device is behind an IOMMU, if there is one.
pub const ACCESS_PLATFORM: u64 = 1 << 33;
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
        _ if bit & SEGMENTS != 0 => "checksum and segmentation offload (VIRTIO_NET_F_CSUM, HOST_TSO4 and GUEST_TSO4)",
        _ => "use in order (VIRTIO_F_IN_ORDER)",
    }
}
