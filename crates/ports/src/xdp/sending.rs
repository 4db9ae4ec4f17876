//! Has the kernel send what is in the transmit ring. In copy mode it sends only in a system call, up to 32 frames in each.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringway_engine::nanoseconds;
use ringway_switch::{Bell, CallReason, CallResult, Moderation};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::ring::Queued;

/// Frames that a system call sends in copy mode.
const A_CALL: u32 = 32;
/// Time after which the kernel is asked again to send what the device had no room for, in nanoseconds.
const ASK_AGAIN: u64 = 20_000;

/// The transmit ring, as any thread may see it.
pub(super) struct Sending {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) queued: Queued,
}

impl Sending {
    /// Has the kernel send as much as it takes. Returns true if it will take the rest soon.
    pub(super) fn send(&self) -> bool {
        // Not all kernels say after each call how many they have sent.
        for _ in 0..self.queued.untold().div_ceil(A_CALL) {
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                // The device has no room.
                Err(Errno::BUSY | Errno::NOBUFS) => return true,
                // The device is down or gone.
                Err(_) => return false,
            }
            if self.queued.untold() == 0 {
                return false;
            }
        }
        self.queued.untold() > 0
    }
}

/// Sends what deliveries have queued: the device is the port's client.
pub(super) struct XdpBell(pub(super) Arc<Sending>);

impl Bell for XdpBell {
    fn ring(&self, reason: CallReason) -> CallResult {
        if reason == CallReason::Room || self.0.queued.untold() == 0 {
            return CallResult::Unwanted;
        }
        if self.0.send() {
            return CallResult::Later { due: nanoseconds() + ASK_AGAIN, called: true };
        }
        CallResult::Called
    }

    /// A system call sends the frames of a whole pass: nothing is gained if they wait.
    fn moderate(&self, _: Moderation) -> bool {
        true
    }
}
