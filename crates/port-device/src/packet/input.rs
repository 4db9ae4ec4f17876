//! Frames from a device.

use std::sync::Arc;

use ringway_keeper::Guard;
use ringway_switch::{Armed, Batch, Discarded, Input, PortFault, WakeOn};

use crate::device_closing::ClosedApart;
use crate::device_watch::{COLLECT, DeviceWatch};
use crate::packet_socket::{Look, PacketSocket};

/// What is open of the device.
struct Open {
    packets: PacketSocket,
    _kept: Arc<Guard>,
}

/// The input of a packet port.
pub(super) struct PacketInput {
    open: ClosedApart<Open>,
    watch: DeviceWatch,
}

impl PacketInput {
    pub(super) fn new(packets: PacketSocket, watch: DeviceWatch, kept: &Arc<Guard>) -> PacketInput {
        PacketInput { open: ClosedApart::new(Open { packets, _kept: Arc::clone(kept) }), watch }
    }

    fn look(&mut self) {
        let Look { lost, is_stalled } = self.open.packets.look();
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
        self.open.packets.collect(batch, self.watch.mtu());
        Ok(())
    }

    fn release(&mut self) {
        self.open.packets.release();
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        let mut discarded = Discarded::default();
        self.open.packets.discard(most as u64, &mut discarded);
        Ok(discarded)
    }

    #[inline]
    fn pending(&mut self) -> bool {
        if self.watch.is_due(1) {
            self.look();
        }
        self.watch.has_report() || self.open.packets.has_frames()
    }

    /// The kernel reports frames by the socket's readiness, and changes of the device by events. There is no event of a client.
    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        self.look();
        Armed::with_kick(wake_on == WakeOn::Frames && self.pending())
    }

    fn disarm(&mut self) {}
}
