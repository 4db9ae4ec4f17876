//! Calls to the guest, by interrupts.

use std::sync::Arc;
use std::time::Duration;

use ringway_switch::{Bell, CallReason, CallResult, Moderation};

use super::device::Device;

pub(super) struct E1000Bell {
    pub(super) device: Arc<Device>,
}

impl Bell for E1000Bell {
    #[inline]
    fn ring(&self, _: CallReason) -> CallResult {
        self.device.ring(None, true)
    }

    fn ring_due(&self, _: CallReason, due: u64) -> CallResult {
        self.device.ring(Some(due), true)
    }

    /// Both directions share their interrupts, so the interval applies to the interrupts of both together.
    fn moderate(&self, moderation: Moderation) -> bool {
        self.device.moderate(moderation);
        true
    }

    fn forget_calls(&self) {
        self.device.forget_calls();
    }

    fn call_interval(&self) -> Option<Duration> {
        Some(self.device.interval())
    }
}
