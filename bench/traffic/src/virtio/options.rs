//! Options of a virtio-net driver.

use std::time::Duration;

use ringway_drivers::area::MAX_RING;
use ringway_drivers::virtio::buffer::HEADER;
use ringway_drivers::virtio::feature;
use ringway_drivers::virtio::vhost_user::VhostUserError;

/// Which side listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SocketRole {
    /// The back end listens.
    #[default]
    Connect,
    /// The driver listens, and the back end connects.
    Listen,
}

/// Settings of the driver.
#[derive(Debug, Clone)]
pub struct VirtioOptions {
    /// Which side listens on the socket.
    pub socket_role: SocketRole,
    /// Time limit for the back end to connect, and for each of its answers.
    pub within: Duration,
    /// Descriptors of the transmit ring: a power of two up to [`MAX_RING`].
    pub tx_ring: u32,
    /// Descriptors of the receive ring: a power of two up to [`MAX_RING`].
    pub rx_ring: u32,
    /// Most bytes of a frame in a buffer. A multiple of 64; an odd multiple spreads buffers over cache sets.
    pub buffer_size: u32,
    /// The queue pair to use, from 0. The pairs before it are configured and stay empty.
    pub pair: u16,
    /// True if VIRTIO_F_IN_ORDER is required.
    pub in_order: bool,
    /// True if VIRTIO_F_EVENT_IDX is required.
    pub event_idx: bool,
    /// True if VIRTIO_NET_F_MRG_RXBUF is required.
    pub mergeable: bool,
    /// Requests segmentation of every frame into segments with this many bytes of data, and accepts such frames
    /// unsegmented: TCP over IPv4, headers without options or tags. Requires VIRTIO_NET_F_CSUM, GUEST_CSUM, HOST_TSO4
    /// and GUEST_TSO4.
    pub segments: Option<u16>,
    /// True if the back end has to note the buffers in flight in memory that the driver keeps for its successor (INFLIGHT_SHMFD).
    pub inflight: bool,
}

impl Default for VirtioOptions {
    fn default() -> VirtioOptions {
        VirtioOptions {
            socket_role: SocketRole::Connect,
            within: Duration::from_secs(60),
            tx_ring: 256,
            rx_ring: 256,
            buffer_size: 2304,
            pair: 0,
            in_order: false,
            event_idx: false,
            mergeable: false,
            segments: None,
            inflight: false,
        }
    }
}

impl VirtioOptions {
    pub(super) fn features(&self, packed: bool) -> u64 {
        let wish = |wanted: bool, bit: u64| if wanted { bit } else { 0 };
        feature::VERSION_1
            | wish(packed, feature::RING_PACKED)
            | wish(self.in_order, feature::IN_ORDER)
            | wish(self.event_idx, feature::EVENT_IDX)
            | wish(self.mergeable, feature::MRG_RXBUF)
            | wish(self.pair > 0, feature::MQ)
            | wish(self.segments.is_some(), feature::SEGMENTS)
    }

    /// Returns the size of queue number `queue`. Receive queues have even numbers (virtio 1.3, 5.1.2).
    pub(super) fn ring_of(&self, queue: usize) -> u32 {
        if queue.is_multiple_of(2) { self.rx_ring } else { self.tx_ring }
    }

    pub(super) fn check(&self) -> Result<(), VhostUserError> {
        for ring in [self.tx_ring, self.rx_ring] {
            if !ring.is_power_of_two() || !(2..=MAX_RING).contains(&ring) {
                let what =
                    format!("a virtio ring of {ring} descriptors: a power of two from 2 to {MAX_RING} is needed");
                return Err(VhostUserError::Options(what));
            }
        }
        let size = self.buffer_size;
        if size == 0 || !size.is_multiple_of(64) || size > 65_536 {
            let what = format!("a buffer of {size} bytes: a multiple of 64 from 64 to 65536 is needed");
            return Err(VhostUserError::Options(what));
        }
        Ok(())
    }
}

/// Returns the header of a TCP frame over IPv4 that requests a checksum and segments with `size` bytes of data (virtio
/// 1.3, 5.1.6.2).
pub(super) fn segmented(size: u16) -> [u8; HEADER] {
    const NEEDS_CSUM: u8 = 1;
    const TCPV4: u8 = 1;
    // The frame begins with an Ethernet and an IPv4 header. The TCP checksum is 16 bytes after these, and the TCP
    // header ends 4 bytes after the checksum's offset.
    let [start, offset, end] = [34u16, 16, 54].map(u16::to_le_bytes);
    let size = size.to_le_bytes();
    [NEEDS_CSUM, TCPV4, end[0], end[1], size[0], size[1], start[0], start[1], offset[0], offset[1], 0, 0]
}
