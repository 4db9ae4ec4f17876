//! Frames from a device.

use ringway_switch::{Armed, Batch, Discarded, DropReason, Input, PortFault, WakeOn};

use crate::device_watch::DeviceWatch;
use crate::packet_socket::PacketSocket;

/// The kernel is asked for lost frames after so many collects, and before a poller sleeps.
const ASK_AFTER: u32 = 4096;

/// The input of a packet port.
pub(super) struct PacketInput {
    packets: PacketSocket,
    watch: DeviceWatch,
    /// The device is gone.
    is_lost: bool,
    /// Frames that were lost, and that no batch has counted yet.
    lost: u64,
    /// Collects since the kernel was asked for lost frames.
    unasked: u32,
}

impl PacketInput {
    pub(super) fn new(packets: PacketSocket, watch: DeviceWatch) -> PacketInput {
        PacketInput { packets, watch, is_lost: false, lost: 0, unasked: 0 }
    }

    fn ask_for_lost(&mut self) {
        self.unasked = 0;
        self.lost += self.packets.take_lost();
    }
}

impl Input for PacketInput {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        if self.is_lost {
            return Err(PortFault::DeviceLost);
        }
        self.unasked += 1;
        if self.unasked > ASK_AFTER {
            self.ask_for_lost();
        }
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
        self.is_lost || self.lost > 0 || self.packets.has_frames()
    }

    /// The kernel reports frames by the socket's readiness, and changes of the device by events.
    fn arm(&mut self, _: WakeOn) -> Armed {
        self.is_lost = self.is_lost || self.watch.has_changed();
        self.ask_for_lost();
        Armed::with_kick(self.pending())
    }

    fn disarm(&mut self) {}
}
