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
/// Each side tells the position at which it wants the next notification.
pub const EVENT_IDX: u64 = 1 << 29;
/// Not a legacy device.
pub const VERSION_1: u64 = 1 << 32;
/// The device is behind an IOMMU, if there is one.
pub const ACCESS_PLATFORM: u64 = 1 << 33;
/// Packed rings.
pub const RING_PACKED: u64 = 1 << 34;
/// The device uses buffers in the order in which they were made available.
pub const IN_ORDER: u64 = 1 << 35;
