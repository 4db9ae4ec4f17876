//! Has the kernel send what is in the transmit ring. In copy mode it sends only in a system call, up to a number of frames in each. With
//! zero copy a system call wakes the driver, and the driver takes the frames later and by itself.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use ringway_netdevice::xdp::{Entry, Producer, Queued, Transfer};
use ringway_runtime::nanoseconds;
use ringway_switch::{Bell, CallReason, CallResult, Moderation, PortFault};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::queue::{SendingSocket, TRANSMIT, TransmitRing};

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
    /// The rings are of no more use: the kernel takes no frame behind one that it refuses, and drivers with zero copy may take none behind
    /// cancelled ones.
    is_stuck: AtomicBool,
    /// Cancelled entries that the kernel has not passed: in copy mode, from Linux 6.6 on, it passes one in a call.
    skipping: AtomicU32,
    cancelled: Mutex<Cancelled>,
}

/// Frames that were lost after their delivery.
#[derive(Default)]
pub(super) struct Cancelled {
    /// Frames that waited in the ring when the device went down, which must not be sent when it comes up again, and those that the
    /// kernel took and dropped.
    pub(super) frames: u64,
    /// The addresses of the chunks of cancelled frames.
    pub(super) chunks: Vec<u64>,
}

impl Sending {
    /// Also returns the side of the ring that is filled.
    pub(super) fn new(sender: SendingSocket) -> (Sending, Producer<2>) {
        let SendingSocket { socket, ring: TransmitRing { filled, queued }, transfer, frames_of_a_call } = sender;
        let cancelled = Cancelled { chunks: Vec::with_capacity(TRANSMIT as usize), ..Cancelled::default() };
        let skipping = queued.cancelled();
        let sending = Sending {
            socket,
            queued,
            transfer,
            frames_of_a_call,
            is_down: AtomicBool::new(false),
            is_stuck: AtomicBool::new(skipping > 0 && transfer == Transfer::ZeroCopy),
            skipping: AtomicU32::new(skipping),
            cancelled: Mutex::new(cancelled),
        };
        (sending, filled)
    }

    pub(super) fn transfer(&self) -> Transfer {
        self.transfer
    }

    /// Returns true if the rings are of no more use.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Acquire)
    }

    /// Has the kernel send as much as it takes. Returns true if it will take the rest soon.
    pub(super) fn send(&self) -> bool {
        // Not all kernels say after each call how many they have sent.
        let (queued, mut taken) = (self.queued.untold(), 0);
        while taken < queued {
            match self.call() {
                Ok(_) if self.transfer == Transfer::ZeroCopy => return false,
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) if self.has_skipped() => taken += 1,
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => taken += self.frames_of_a_call,
                // The call ended with the frame that was lost.
                Err(Errno::BUSY) if self.transfer == Transfer::Copy => taken += 1,
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
        let result = send(&self.socket, &[], SendFlags::DONTWAIT);
        match result {
            Err(Errno::NETDOWN | Errno::NXIO) => self.cancel(),
            // The kernel has taken a frame, and the device did not: it has no carrier.
            Err(Errno::BUSY) if self.transfer == Transfer::Copy => self.cancelled.lock().frames += 1,
            // A bug of ours: frames whose metadata are refused are not queued.
            Err(Errno::INVAL) if self.transfer == Transfer::Copy => {
                self.is_stuck.store(true, Ordering::Release);
                self.cancel();
            }
            _ => return result,
        }
        self.is_down.store(true, Ordering::Release);
        result
    }

    /// Cancels what waits in the ring.
    #[cold]
    fn cancel(&self) {
        let mut cancelled = self.cancelled.lock();
        let mut count = 0;
        self.queued.cancel(|words| {
            let entry = Entry::of(words);
            cancelled.frames += u64::from(!entry.continues);
            cancelled.chunks.push(entry.address);
            count += 1;
        });
        self.skipping.fetch_add(count, Ordering::Relaxed);
        if count > 0 && self.transfer == Transfer::ZeroCopy {
            self.is_stuck.store(true, Ordering::Release);
        }
    }

    /// Notes that a call has passed one cancelled entry, if there are any.
    fn has_skipped(&self) -> bool {
        self.skipping.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Returns true if the device is down. Calls `back` with what was cancelled, to be counted and used again.
    ///
    /// # Errors
    /// The device is gone, or it is up and takes no more frames from these rings.
    pub(super) fn is_down(&self, back: impl FnOnce(&mut Cancelled)) -> Result<bool, PortFault> {
        // Set again by the call if the device is still down.
        if !self.is_down.swap(false, Ordering::Acquire) {
            return Ok(false);
        }
        let result = self.call();
        back(&mut self.cancelled.lock());
        match result {
            Err(Errno::NXIO) => Err(PortFault::DeviceLost),
            Err(Errno::NETDOWN) => Ok(true),
            _ if self.is_stuck() => Err(PortFault::DeviceStalled),
            _ => Ok(false),
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
