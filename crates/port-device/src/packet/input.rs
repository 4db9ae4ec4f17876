//! Frames from a device.

use ringway_switch::{Armed, Batch, Discarded, Input, PortFault, WakeOn};

use crate::device_closing::ClosedApart;
use crate::device_watch::{COLLECT, DeviceWatch};
use crate::packet_socket::{Look, PacketSocket};

/// The input of a packet port.
pub(super) struct PacketInput {
    packets: ClosedApart<PacketSocket>,
    watch: DeviceWatch,
}

impl PacketInput {
    pub(super) fn new(packets: PacketSocket, watch: DeviceWatch) -> PacketInput {
        PacketInput { packets: ClosedApart::new(packets), watch }
    }

    fn look(&mut self) {
        let Look { lost, is_stalled } = self.packets.look();
        self.watch.look(lost);
        if is_stalled {
            self.watch.fail(PortFault::DeviceStalled);
        }
    }
}

impl Input for PacketInput {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.watch.report(batch)?;
        if self.watch.is_due(COLLECT) {
            self.look();
        }
        self.packets.collect(batch, self.watch.mtu());
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
        if self.watch.is_due(1) {
            self.look();
        }
        self.watch.has_report() || self.packets.has_frames()
    }

    /// The kernel reports frames by the socket's readiness, and changes of the device by events. There is no event of a client.
    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        self.look();
        Armed::with_kick(wake_on == WakeOn::Frames && self.pending())
    }

    fn disarm(&mut self) {}
}
