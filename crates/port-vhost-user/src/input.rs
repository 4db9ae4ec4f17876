//! Frames from the guest: the transmit queues of a vhost-user port.

use std::sync::Arc;

use parking_lot::lock_api::ArcMutexGuard;
use parking_lot::{Mutex, RawMutex};
use ringway_memory::Mapping;
use ringway_switch::{Armed, Batch, Discarded, Input, InputCapabilities, PortFault, WaitingPlace, WakeOn};

use super::device::{Device, Fault, InputState};
use super::queue::TransmitQueue;
use crate::virtqueue::RingFault;

/// Length in bytes of a reverse ARP request without padding (RFC 903). A back end broadcasts it for a guest that cannot
/// announce itself.
const RARP_BYTES: usize = 42;

pub(super) struct VhostInput {
    device: Arc<Device>,
    side: Arc<Mutex<InputState>>,
    /// The lock, held from a collect to its release. The session waits meanwhile.
    held: Option<ArcMutexGuard<RawMutex, InputState>>,
    /// A queue owes its guest a call since the last event.
    owes_call: bool,
    announcement: Mapping,
}

impl VhostInput {
    pub(super) fn new(device: Arc<Device>) -> std::io::Result<VhostInput> {
        let side = Arc::clone(&device.input);
        Ok(VhostInput { device, side, held: None, owes_call: false, announcement: Mapping::private(RARP_BYTES)? })
    }
}

impl Drop for VhostInput {
    fn drop(&mut self) {
        // Only after a panic between a collect and its release. The frames that the poller had are not released. No
        // thread may continue with queues in an unknown state, so the session, which waits for the lock, finds no
        // queue.
        if let Some(mut side) = self.held.take() {
            side.queues.iter_mut().for_each(|queue| *queue = None);
        }
    }
}

impl Input for VhostInput {
    #[inline]
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        // The session has the lock. It wakes the poller when it is done.
        let Some(guard) = self.side.try_lock_arc() else { return Ok(()) };
        let side: &'m mut InputState = self.held.insert(guard);
        if side.fault.is_some() {
            return Ok(());
        }
        let announce = side.announce.take();
        side.announced = announce.is_some();
        if let Some(mac) = announce {
            let whole = self.announcement.whole();
            if whole.write(&rarp(mac)) {
                batch.push(whole, RARP_BYTES);
            }
        }
        if side.bounce.begin().is_err() {
            return Ok(());
        }
        let count = side.queues.len();
        let first = side.next;
        side.first = first;
        side.next = if first + 1 < count { first + 1 } else { 0 };
        let bounce = &side.bounce;
        let (before, from) = side.queues.split_at_mut(first);
        let numbered = from.iter_mut().zip(first..).chain(before.iter_mut().zip(0..));
        for (queue, number) in numbered {
            let Some(queue) = queue else { continue };
            if let Err(what) = queue.collect(bounce, batch) {
                side.fault = Some(Fault { queue: 2 * number as u16 + 1, what });
                self.device.report_broken();
                break;
            }
        }
        Ok(())
    }

    fn capabilities(&self) -> InputCapabilities {
        InputCapabilities { rewind: true, discard_like: true, waiting: WaitingPlace::Ring }
    }

    fn rewind(&mut self, frames: usize) {
        let Some(side) = &mut self.held else { return };
        // An announcement that would have to wait is dropped: the guest's own frames announce it, too.
        let mut left = frames.saturating_sub(side.announced.into());
        let (before, from) = {
            let first = side.first;
            side.queues.split_at_mut(first)
        };
        for queue in from.iter_mut().chain(before).flatten() {
            left -= queue.rewind(left);
        }
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        Ok(self.discard_by(|queue, discarded| queue.discard(most, discarded)))
    }

    fn discard_like(&mut self, addresses: &[u8; 12], most: usize) -> Result<Discarded, PortFault> {
        Ok(self.discard_by(|queue, discarded| queue.discard_like(addresses, most, discarded)))
    }

    #[inline]
    fn release(&mut self) {
        let Some(mut side) = self.held.take() else { return };
        let InputState { queues, fault, .. } = &mut *side;
        for (number, queue) in queues.iter_mut().enumerate() {
            let Some(queue) = queue else { continue };
            if let Err(what) = queue.release() {
                fault.get_or_insert(Fault { queue: 2 * number as u16 + 1, what });
                self.device.report_broken();
            }
            self.owes_call |= queue.owes_call;
        }
    }

    #[inline]
    fn pending(&mut self) -> bool {
        let Some(mut side) = self.side.try_lock() else { return false };
        side.announce.is_some() || side.fault.is_none() && side.queues.iter_mut().flatten().any(|q| q.pending())
    }

    /// A call that is owed comes pending in the poller's list.
    fn take_event(&mut self) -> bool {
        std::mem::take(&mut self.owes_call)
    }

    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        if wake_on == WakeOn::Events {
            // The guest has no events.
            return Armed::Kick;
        }
        // The session has the lock, and may be blocked by its guest's memory: do not wait for it.
        let Some(mut side) = self.side.try_lock() else { return Armed::Pending };
        side.armed = true;
        side.queues.iter_mut().flatten().for_each(|queue| queue.arm());
        // Lost memory reads as zeroes, so no further event would ever be seen in it.
        if side.fault.is_none()
            && let Some(number) =
                side.queues.iter().position(|queue| queue.as_ref().is_some_and(|q| q.memory.is_lost()))
        {
            side.fault = Some(Fault { queue: 2 * number as u16 + 1, what: RingFault::MemoryLost });
            self.device.report_broken();
        }
        if side.announce.is_some() || side.fault.is_none() && side.queues.iter_mut().flatten().any(|q| q.pending()) {
            return Armed::Pending;
        }
        let is_silent = side.queues.iter().zip(&side.kicks).any(|(queue, kick)| queue.is_some() && kick.is_none());
        if is_silent { Armed::Silent } else { Armed::Kick }
    }

    fn disarm(&mut self) {
        // If the session has the lock, for a moment only, an extra kick is harmless.
        let Some(mut side) = self.side.try_lock() else { return };
        side.armed = false;
        side.queues.iter_mut().flatten().for_each(|queue| queue.disarm());
    }
}

impl VhostInput {
    /// Calls `discard` for each queue in turn, and marks the chains used.
    fn discard_by(
        &mut self,
        mut discard: impl FnMut(&mut TransmitQueue, &mut Discarded) -> Result<(), RingFault>,
    ) -> Discarded {
        let mut discarded = Discarded::default();
        let Some(guard) = self.side.try_lock_arc() else { return discarded };
        let side = self.held.insert(guard);
        let count = if side.fault.is_none() { side.queues.len() } else { 0 };
        // An announcement is not the guest's frame, and waits.
        for number in (side.next..count).chain(0..side.next.min(count)) {
            let Some(queue) = &mut side.queues[number] else { continue };
            if let Err(what) = discard(queue, &mut discarded) {
                side.fault = Some(Fault { queue: 2 * number as u16 + 1, what });
                self.device.report_broken();
                break;
            }
        }
        side.next = if side.next + 1 < side.queues.len() { side.next + 1 } else { 0 };
        self.release();
        discarded
    }
}

fn rarp(mac: [u8; 6]) -> [u8; RARP_BYTES] {
    let mut frame = [0; RARP_BYTES];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac);
    // EtherType; hardware type Ethernet, protocol IPv4, their address lengths; operation "request reverse".
    frame[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 0x08, 0, 6, 4, 0, 3]);
    frame[22..28].copy_from_slice(&mac);
    frame[32..38].copy_from_slice(&mac);
    frame
}
