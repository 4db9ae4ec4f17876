//! Calls to the guest, by the call eventfds of its queues.

use std::sync::Arc;

use ringway_switch::{Bell, CallReason, CallResult};

use super::device::{Device, Fault};

pub(super) struct VhostBell {
    pub(super) device: Arc<Device>,
}

impl Bell for VhostBell {
    /// Another poller that delivers, or the port's own thread, may hold the lock: then the bell is rung again later.
    #[inline]
    fn ring(&self, reason: CallReason) -> CallResult {
        if self.device.calls_blocked() {
            return CallResult::Unwanted;
        }
        let (mut called, mut held, mut broken) = (false, false, None);
        match reason {
            CallReason::Frames => {
                let Some(mut side) = self.device.output.try_lock() else { return CallResult::Busy };
                for (number, queue) in side.queues.iter_mut().enumerate() {
                    match queue.as_mut().map_or(Ok(false), |queue| queue.call_if_wanted()) {
                        Ok(made) => called |= made,
                        Err(what) => {
                            broken = Some(Fault { queue: 2 * number as u16, what });
                            break;
                        }
                    }
                }
                if broken.is_some() {
                    side.fault = side.fault.or(broken);
                }
            }
            CallReason::Room => {
                let Some(mut side) = self.device.input.try_lock() else { return CallResult::Busy };
                for (number, queue) in side.queues.iter_mut().enumerate() {
                    let Some(queue) = queue else { continue };
                    if queue.owes_call && self.device.account().is_held() {
                        held = true;
                        continue;
                    }
                    queue.owes_call = false;
                    match queue.call_if_wanted() {
                        Ok(made) => called |= made,
                        Err(what) => {
                            broken = Some(Fault { queue: 2 * number as u16 + 1, what });
                            break;
                        }
                    }
                }
                if broken.is_some() {
                    side.fault = side.fault.or(broken);
                }
            }
        }
        if broken.is_some() {
            // No queue of this client is called again, in either direction.
            self.device.block_calls();
            self.device.report_broken();
        }
        match (called, held) {
            (called, true) => CallResult::Held { called },
            (true, false) => CallResult::Called,
            (false, false) => CallResult::Unwanted,
        }
    }

    fn held_until(&self) -> u64 {
        self.device.account().held_until()
    }
}
