//! Frames to the guest: the receive ring of an e1000, and the packet buffer before the ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use parking_lot::MutexGuard;
use ringway_port::guest::GuestMemory;
use ringway_switch::{Batch, Counters, DropReason, Frame, Frames, Output, OutputCapabilities, PortFault, giving};

use super::data_path::{Backlog, OutputState, Ring};
use super::device::Device;
use super::interrupt::ReceivedEvent;
use super::offsets::{RADV, RDH, RDTR};
use super::rings::{Destination, PacketBuffer, Receive, ReceiveSettings, Received, RingFault};

pub(super) struct E1000Output {
    device: Arc<Device>,
}

impl E1000Output {
    pub(super) fn new(device: Arc<Device>) -> E1000Output {
        E1000Output { device }
    }
}

impl Output for E1000Output {
    fn capabilities(&self) -> OutputCapabilities {
        OutputCapabilities { accepts: Receive::ACCEPTS, ..OutputCapabilities::default() }
    }

    fn room(&mut self, mut frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        let side = self.device.output.lock();
        let Ring::On(receive) = &side.ring else { return None };
        let (free, most) = side.buffer.room(frames.next().map_or(0, |frame| frame.len()));
        Some((receive.free(side.tail()) as usize + free, receive.size() as usize + most))
    }

    #[inline]
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let mut side = self.device.output.lock();
        if !side.link || side.looped || !side.ring.is_on() {
            counters.drop_out(DropReason::ReceiverDown, frames.count() as u64);
            return Ok(());
        }
        let received = match frames.as_contiguous() {
            Some(frames) => self.device.receive(&mut side, frames),
            None => self.device.receive(&mut side, frames),
        };
        counters.add_out(received.traffic.frames + received.held, received.bytes + received.held_bytes);
        for (reason, lost) in [
            (DropReason::ReceiverFiltered, received.filtered),
            (DropReason::ReceiverFull, received.full),
            (DropReason::ReceiverTooSmall, received.long),
            (DropReason::BufferLost, std::mem::take(&mut side.lost)),
        ] {
            if lost > 0 {
                counters.drop_out(reason, lost);
            }
        }
        Ok(())
    }

    fn count_late(&mut self, counters: &Counters) {
        let lost = std::mem::take(&mut self.device.output.lock().lost);
        counters.drop_out(DropReason::BufferLost, lost);
    }
}

impl Device {
    /// Delivers frames to the guest, and notes the causes of interrupts. From the first frame without descriptors on,
    /// frames wait in the packet buffer.
    #[inline]
    fn receive<'b, 'm: 'b>(
        &self,
        side: &mut OutputState,
        frames: impl Iterator<Item = Frame<'b, 'm>> + Clone,
    ) -> Received {
        let (mut earlier, mut now) = (Received::default(), Received::default());
        let tail = side.tail();
        let mut result = side.start(tail);
        let OutputState { ring, memory, settings, buffer, .. } = side;
        if let (Ring::On(receive), false, Ok(())) = (&mut *ring, buffer.is_empty(), result) {
            result = give_held(receive, buffer, &memory.writable, settings, tail, &mut earlier);
        }
        if result.is_ok() {
            let (settings, writable) = (&*settings, &memory.writable);
            let has_held = !buffer.is_empty();
            let hold = |frame: &Frame<'_, '_>, received: &mut Received| hold(buffer, frame, settings, received);
            match ring {
                Ring::On(receive) if !has_held => {
                    result = receive.deliver(&Destination { writable, settings, tail }, frames, &mut now, hold);
                }
                Ring::On(_) | Ring::Enabled => hold_all(frames, hold, &mut now),
                Ring::Off | Ring::Broken => now.full = frames.count() as u64,
            }
            if result.is_err() {
                buffer.clear();
                now.full += std::mem::take(&mut now.held);
                now.held_bytes = 0;
            }
        } else {
            now.full = frames.count() as u64;
        }
        self.finish(side, result, &earlier, &now);
        now
    }

    /// Notes the causes of interrupts after a delivery. `earlier` counts the frames that came from the packet buffer,
    /// `now` the others.
    #[inline]
    fn finish(&self, side: &mut OutputState, result: Result<(), RingFault>, earlier: &Received, now: &Received) {
        if let Ring::On(receive) = &side.ring {
            side.page.set(RDH, receive.head());
        }
        if let Err(fault) = result {
            side.ring.fail(self, "receive", fault);
            side.forget();
        }
        if !side.looped {
            side.lost += earlier.filtered + earlier.long;
        }
        side.received.merge(earlier);
        side.received.merge(now);
        let waits = !side.buffer.is_empty();
        if waits != self.waiting.load(Ordering::Relaxed) {
            self.waiting.store(waits, Ordering::Relaxed);
        }
        let head = side.page.get(RDH);
        let given = earlier.traffic.frames + now.traffic.frames;
        let news = ReceivedEvent { frames: given > 0, low: earlier.low || now.low, overrun: now.full > 0 };
        let news = side.news(news, head);
        let mut interrupting = self.interrupting();
        interrupting.frames += given;
        if earlier.traffic.frames > 0 {
            interrupting.idle_polls = 0;
        }
        interrupting.causes.received(news, side.page.get(RDTR), side.page.get(RADV), ringway_runtime::nanoseconds);
    }

    /// Has a poller count frames that were lost from the packet buffer.
    pub(super) fn tell_of_losses(&self, side: MutexGuard<'_, OutputState>) {
        let any = side.lost > 0;
        drop(side);
        if any {
            self.raise_event();
        }
    }

    /// Returns true if frames wait for descriptors.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Called when the guest has given descriptors. If frames wait for descriptors, has a poller deliver them.
    pub(super) fn has_descriptors(&self) {
        // The tail was published before. A thread that makes frames wait checks the tail afterwards (`Device::drain`).
        fence(Ordering::SeqCst);
        if self.is_waiting() {
            self.raise_event();
        }
    }

    /// Delivers the waiting frames while there are descriptors.
    #[cold]
    pub(super) fn drain(&self) -> Backlog {
        let mut side = self.output.lock();
        let mut received = Received::default();
        let tail = side.tail();
        let mut result = side.start(tail);
        let OutputState { ring, memory, settings, buffer, looped, .. } = &mut *side;
        if let (Ring::On(receive), Ok(())) = (&mut *ring, result) {
            let mut give = || give_held(receive, buffer, &memory.writable, settings, tail, &mut received);
            // Other ports' clients chose these frames, unless the guest loops back its own. A panic here is blamed
            // accordingly.
            result = if *looped { give() } else { giving(give) };
        }
        self.finish(&mut side, result, &received, &Received::default());
        let tells = !self.mapped && side.csb.is_none();
        let left = if tells || side.buffer.is_empty() { Backlog::Announced } else { Backlog::Polled };
        self.tell_of_losses(side);
        left
    }

    /// Delivers frames to the guest that sent them (loopback). Frames that would have to be segmented are dropped.
    pub(super) fn give_back(&self, batch: &Batch<'_>) {
        let accepted = |frame: &Frame<'_, '_>| frame.offload().is_none_or(|offload| Receive::ACCEPTS.covers(offload));
        let mut side = self.output.lock();
        if side.ring.is_on() {
            let frames = (0..batch.len()).map(|index| batch.frame(index)).filter(accepted);
            self.receive(&mut side, frames);
        }
        self.set_event();
    }
}

/// Delivers frames from the packet buffer.
#[cold]
fn give_held(
    receive: &mut Receive,
    buffer: &mut PacketBuffer,
    writable: &GuestMemory,
    settings: &ReceiveSettings,
    tail: u32,
    received: &mut Received,
) -> Result<(), RingFault> {
    let mut result = Ok(());
    if receive.head() == tail {
        return result;
    }
    #[cfg(test)]
    super::switched_tests::trap_of_held_frames();
    buffer.drain(|batch| {
        let (mut left, frames) = (0, (0..batch.len()).map(|index| batch.frame(index)));
        result = receive.deliver(&Destination { writable, settings, tail }, frames, received, |_, _| left += 1);
        batch.len() - left
    });
    result
}

/// Keeps a frame in the packet buffer until there are descriptors, if it passes the guest's filters.
#[cold]
fn hold(buffer: &mut PacketBuffer, frame: &Frame<'_, '_>, settings: &ReceiveSettings, received: &mut Received) {
    if !received.judge(frame, settings) {
    } else if buffer.put(frame) {
        received.held += 1;
        received.held_bytes += frame.len() as u64;
    } else {
        received.full += 1;
    }
}

#[cold]
fn hold_all<'b, 'm: 'b>(
    frames: impl Iterator<Item = Frame<'b, 'm>>,
    mut hold: impl FnMut(&Frame<'b, 'm>, &mut Received),
    received: &mut Received,
) {
    frames.for_each(|frame| hold(&frame, received));
}
