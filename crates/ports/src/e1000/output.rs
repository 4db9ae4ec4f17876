//! Frames to the guest: its receive ring.

use std::sync::Arc;

use ringway_switch::{Accepts, Batch, Counters, DropReason, Frame, Frames, Output, PortFault};

use super::device::Device;
use super::interrupt::ReceivedNews;
use super::offsets::{RADV, RDH, RDTR};
use super::rings::{Receive, Received};
use super::sides::{OutputSide, Ring};

pub(super) struct E1000Output {
    device: Arc<Device>,
}

impl E1000Output {
    pub(super) fn new(device: Arc<Device>) -> E1000Output {
        E1000Output { device }
    }
}

impl Output for E1000Output {
    fn accepts(&self) -> Accepts {
        Receive::ACCEPTS
    }

    fn room(&mut self, _: Frames<'_, '_>) -> Option<(usize, usize)> {
        let side = self.device.output.lock();
        let Ring::On(receive) = &side.ring else { return None };
        Some((receive.free(side.tail(&self.device.page)) as usize, receive.size() as usize))
    }

    #[inline]
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let mut side = self.device.output.lock();
        if !side.link || side.looped || !side.ring.is_on() {
            counters.drop_out(DropReason::ReceiverDown, frames.count() as u64);
            return Ok(());
        }
        let received = self.device.receive(&mut side, frames);
        counters.add_out(received.traffic.frames, received.bytes);
        for (reason, lost) in [
            (DropReason::ReceiverFiltered, received.filtered),
            (DropReason::ReceiverFull, received.full),
            (DropReason::Oversize, received.long),
        ] {
            if lost > 0 {
                counters.drop_out(reason, lost);
            }
        }
        Ok(())
    }
}

impl Device {
    /// Gives frames to the guest, and notes what that causes.
    #[inline]
    fn receive<'b, 'm: 'b>(
        &self,
        side: &mut OutputSide,
        frames: impl Iterator<Item = Frame<'b, 'm>> + Clone,
    ) -> Received {
        let mut now = Received::default();
        let tail = side.tail(&self.page);
        let mut result = side.start(&self.page, tail);
        let OutputSide { ring, memory, settings, received, .. } = side;
        if let (Ring::On(receive), Ok(())) = (&mut *ring, result) {
            result = receive.deliver(&memory.writable, frames.clone(), settings, tail, &mut now);
            self.page.set(RDH, receive.head());
        } else {
            now.full = frames.count() as u64;
        }
        if let Err(fault) = result {
            ring.fail(self, "receive", fault);
        }
        received.merge(&now);
        let head = self.page.get(RDH);
        let news = ReceivedNews { frames: now.traffic.frames > 0, low: now.low, overrun: now.full > 0 };
        let news = side.news(news, head);
        let mut interrupting = self.interrupting();
        interrupting.frames += now.traffic.frames;
        interrupting.causes.received(news, self.page.get(RDTR), self.page.get(RADV), ringway_engine::nanoseconds);
        now
    }

    /// Frames that the guest sends to itself. Those that would have to be cut into segments are lost.
    pub(super) fn give_back(&self, batch: &Batch<'_>) {
        let accepted = |frame: &Frame<'_, '_>| frame.offload().is_none_or(|offload| Receive::ACCEPTS.covers(offload));
        let mut side = self.output.lock();
        if side.ring.is_on() {
            let frames = (0..batch.len()).map(|index| batch.frame(index)).filter(accepted);
            self.receive(&mut side, frames);
        }
        self.set_news();
    }
}
