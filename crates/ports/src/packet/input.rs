//! Frames from a device.

use ringway_switch::{Armed, Batch, Discarded, DropReason, Input, PortFault, WakeOn};

use crate::device_watch::DeviceWatch;
use crate::packet_socket::PacketSocket;

/// The device is looked at after so many looks into the ring, and before a poller sleeps.
const LOOK_AFTER: u32 = 1 << 17;
/// A collect counts as so many of them.
const COLLECTS: u32 = 32;

/// The input of a packet port.
pub(super) struct PacketInput {
    packets: PacketSocket,
    watch: DeviceWatch,
    /// The device is gone.
    is_lost: bool,
    /// Frames that were lost, and that no batch has counted yet.
    lost: u64,
    /// Looks into the ring since the device was looked at.
    unlooked: u32,
}

impl PacketInput {
    pub(super) fn new(packets: PacketSocket, watch: DeviceWatch) -> PacketInput {
        PacketInput { packets, watch, is_lost: false, lost: 0, unlooked: 0 }
    }

    /// Looks if `weight` more brings the time. A poller that never sleeps never arms the port.
    #[inline]
    fn look_in_time(&mut self, weight: u32) {
        self.unlooked += weight;
        if self.unlooked > LOOK_AFTER {
            self.look();
        }
    }

    /// Looks for changes of the device and for lost frames.
    fn look(&mut self) {
        self.unlooked = 0;
        self.is_lost = self.is_lost || self.watch.has_changed();
        self.lost += self.packets.take_lost();
    }
}

impl Input for PacketInput {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        if self.is_lost {
            return Err(PortFault::DeviceLost);
        }
        self.look_in_time(COLLECTS);
        if self.lost > 0 {
            let lost = u32::try_from(std::mem::take(&mut self.lost)).unwrap_or(u32::MAX);
            batch.refuse_lost(DropReason::DeviceOverrun, lost);
        }
        self.packets.collect(batch);
        Ok(())
    }

    fn release(&mut self) {
        self.packets.release();
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        let mut discarded = Discarded::default();
        self.packets.discard(most as u64, &mut discarded);
        Ok(discarded)
    }

    #[inline]
    fn pending(&mut self) -> bool {
        self.look_in_time(1);
        self.is_lost || self.lost > 0 || self.packets.has_frames()
    }

    /// The kernel reports frames by the socket's readiness, and changes of the device by events. There is no event of a client.
    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        self.look();
        Armed::with_kick(wake_on == WakeOn::Frames && self.pending())
    }

    fn disarm(&mut self) {}
}
