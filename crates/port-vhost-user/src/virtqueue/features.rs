//! Feature bits of virtio.

/// `VIRTIO_F_RING_PACKED` (virtio 1.3, 6).
pub const F_RING_PACKED: u64 = 1 << 34;
/// `VIRTIO_F_IN_ORDER` (virtio 1.3, 6).
pub const F_IN_ORDER: u64 = 1 << 35;
/// `VIRTIO_F_VERSION_1` (virtio 1.3, 6).
pub const F_VERSION_1: u64 = 1 << 32;
/// `VIRTIO_F_INDIRECT_DESC` (virtio 1.3, 6).
pub const F_INDIRECT_DESC: u64 = 1 << 28;
/// `VIRTIO_F_EVENT_IDX` (virtio 1.3, 6).
pub const F_EVENT_IDX: u64 = 1 << 29;
/// `VIRTIO_F_ANY_LAYOUT` (virtio 1.3, 6.3).
pub const F_ANY_LAYOUT: u64 = 1 << 27;
/// `VIRTIO_NET_F_MRG_RXBUF` (virtio 1.3, 5.1.3).
pub const F_MRG_RXBUF: u64 = 1 << 15;
/// `VIRTIO_F_RING_RESET` (virtio 1.3, 6).
pub const F_RING_RESET: u64 = 1 << 40;
