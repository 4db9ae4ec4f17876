//! Has the kernel send what is in the transmit ring. In copy mode it sends only in a system call, up to a number of frames in each. With
//! zero copy a system call wakes the driver, and the driver takes the frames later and by itself.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ringway_engine::nanoseconds;
use ringway_switch::{Bell, CallReason, CallResult, Moderation, PortFault};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::queue::{Entry, SendingSocket, TRANSMIT, Transfer};
use super::ring::{Producer, Queued};

/// Time after which the kernel is asked again to send what the device had no room for, in nanoseconds.
const ASK_AGAIN: u64 = 20_000;

/// The transmit ring, as any thread may see it.
pub(super) struct Sending {
    socket: OwnedFd,
    pub(super) queued: Queued,
    transfer: Transfer,
    frames_of_a_call: u32,
    /// The device sent nothing when the kernel was asked to send, and no delivery has seen it since.
    is_down: AtomicBool,
    /// Frames that the kernel has refused.
    refused: AtomicU64,
    cancelled: Mutex<Cancelled>,
}

/// Frames that were lost after their delivery.
#[derive(Default)]
pub(super) struct Cancelled {
    /// Frames that waited in the ring when the device went down, which must not be sent when it comes up again, and those that the
    /// kernel took and dropped.
    pub(super) frames: u64,
    /// Frames whose metadata the kernel refused.
    pub(super) refused: u64,
    /// The addresses of the chunks of cancelled frames.
    pub(super) chunks: Vec<u64>,
}

impl Sending {
    /// Also returns the side of the ring that is filled.
    pub(super) fn new(sender: SendingSocket) -> (Sending, Producer<2>) {
        let SendingSocket { socket, transmit, queued, transfer, frames_of_a_call } = sender;
        let cancelled = Cancelled { chunks: Vec::with_capacity(TRANSMIT as usize), ..Cancelled::default() };
        let (is_down, refused, cancelled) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(cancelled));
        (Sending { socket, queued, transfer, frames_of_a_call, is_down, refused, cancelled }, transmit)
    }

    pub(super) fn transfer(&self) -> Transfer {
        self.transfer
    }

    /// Has the kernel send as much as it takes. Returns true if it will take the rest soon.
    pub(super) fn send(&self) -> bool {
        // Not all kernels say after each call how many they have sent.
        let (queued, mut taken) = (self.queued.untold(), 0);
        while taken < queued {
            match self.call() {
                Ok(_) if self.transfer == Transfer::ZeroCopy => return false,
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => taken += self.frames_of_a_call,
                // The call ended with the frame that was lost.
                Err(Errno::BUSY | Errno::INVAL) if self.transfer == Transfer::Copy => taken += 1,
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

    fn call(&self) -> Result<usize, Errno> {
        let refused = self.refused.load(Ordering::Acquire);
        let result = send(&self.socket, &[], SendFlags::DONTWAIT);
        match result {
            Err(Errno::NETDOWN | Errno::NXIO) => self.cancel(),
            // The kernel has taken a frame, and the device did not: it has no carrier.
            Err(Errno::BUSY) if self.transfer == Transfer::Copy => self.cancelled.lock().frames += 1,
            Err(Errno::INVAL) if self.transfer == Transfer::Copy => self.refuse(refused),
            _ => return result,
        }
        self.is_down.store(true, Ordering::Release);
        result
    }

    /// Cancels what waits in the ring.
    #[cold]
    fn cancel(&self) {
        let mut cancelled = self.cancelled.lock();
        self.queued.cancel(|words| {
            let entry = Entry::of(words);
            cancelled.frames += u64::from(!entry.continues);
            cancelled.chunks.push(entry.address);
        });
    }

    /// Cancels the frame that the kernel has refused: it would refuse this frame again in each call, and take none behind it. Other
    /// threads' calls may have ended with the same frame: `before` frames were refused when this thread's call began.
    #[cold]
    fn refuse(&self, before: u64) {
        let mut cancelled = self.cancelled.lock();
        if self.refused.load(Ordering::Acquire) == before {
            self.queued.cancel_first(|words| cancelled.chunks.push(Entry::of(words).address));
            cancelled.refused += 1;
            self.refused.store(before + 1, Ordering::Release);
        }
    }

    /// Calls `back` with the chunks of cancelled frames, after those that the kernel gave back were taken: it may have given back some of
    /// the same.
    pub(super) fn take_chunks(&self, back: impl FnMut(u64)) {
        self.cancelled.lock().chunks.drain(..).for_each(back);
    }

    /// Returns true if the device is down. Calls `back` with what was cancelled, to be counted and used again.
    ///
    /// # Errors
    /// The device is gone.
    pub(super) fn is_down(&self, back: impl FnOnce(&mut Cancelled)) -> Result<bool, PortFault> {
        // Set again by the call if the device is still down.
        if !self.is_down.swap(false, Ordering::Acquire) {
            return Ok(false);
        }
        let result = self.call();
        back(&mut self.cancelled.lock());
        match result {
            Err(Errno::NXIO) => Err(PortFault::DeviceLost),
            other => Ok(other == Err(Errno::NETDOWN)),
        }
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
