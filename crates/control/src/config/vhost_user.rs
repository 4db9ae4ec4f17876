//! What `kind = "vhost-user"` has beside the keys of every port and its socket.

/// Most queue pairs of a port.
pub const MOST_QUEUES: u16 = 8;

/// Smallest and largest MTU: virtio allows no less (1.3, 5.1.4.1), a frame with two VLAN tags holds no more.
pub const MTU: std::ops::RangeInclusive<u32> = 68..=65_513;

/// Settings of a vhost-user port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUser {
    /// Most queue pairs, 1 to 8.
    pub queues: u16,
    /// The MTU that the guest is told, and longer frames than it allows are dropped; none: the guest chooses.
    pub mtu: Option<u16>,
    /// Whether checksums and segmentation may be left to the other side.
    pub offload: bool,
}

impl Default for VhostUser {
    fn default() -> Self {
        Self { queues: MOST_QUEUES, mtu: None, offload: true }
    }
}
