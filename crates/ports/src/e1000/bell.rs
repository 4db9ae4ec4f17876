//! Calls to the guest, by interrupts.

use std::sync::Arc;

use ringway_switch::{Asked, Bell, Moderation, News};

use super::device::Device;

pub(super) struct E1000Bell {
    pub(super) device: Arc<Device>,
}

impl Bell for E1000Bell {
    #[inline]
    fn ring(&self, _: News) -> Asked {
        self.device.ring(None, true)
    }

    fn ring_due(&self, _: News, due: u64) -> Asked {
        self.device.ring(Some(due), true)
    }

    /// Both directions share their interrupts, so the interval applies to the interrupts of both together.
    fn moderate(&self, moderation: Moderation) -> bool {
        self.device.moderate(moderation);
        true
    }
}
