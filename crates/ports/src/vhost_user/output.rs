//! Frames to the guest: its receive queues.

use std::cell::Cell;
use std::sync::Arc;

use ringway_switch::{Accepts, Counters, DropReason, Frames, MAX_BATCH, Output, PortFault};

use super::device::{Device, Fault, OutputSide};
use super::steer::flow_hash;
use crate::virtqueue::Tally;

pub(super) struct VhostOutput {
    device: Arc<Device>,
    /// Which queue each frame of a batch goes to.
    picks: Box<[u8]>,
    /// What was said to be accepted since the last delivery. The session may have changed it meanwhile.
    said: Cell<Accepts>,
}

impl VhostOutput {
    pub(super) fn new(device: Arc<Device>) -> VhostOutput {
        VhostOutput { device, picks: vec![0; MAX_BATCH].into(), said: Cell::new(Accepts::NOTHING) }
    }
}

impl Output for VhostOutput {
    fn accepts(&self) -> Accepts {
        let accepts = self.device.output.lock().accepts;
        self.said.set(accepts);
        accepts
    }

    fn room(&mut self) -> Option<(usize, usize)> {
        let mut side = self.device.output.lock();
        let mut queues = side.queues.iter_mut().flatten().filter(|queue| queue.is_enabled());
        let queue = queues.next()?;
        if queues.next().is_none() { queue.room() } else { None }
    }

    #[inline]
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let mut side = self.device.output.lock();
        let OutputSide { queues, fault, accepts, .. } = &mut *side;
        let said = self.said.take();
        let enabled =
            |queue: &&mut Option<_>| matches!(queue, Some(queue) if super::queue::ReceiveQueue::is_enabled(queue));
        let many = queues.iter_mut().filter(enabled).count();
        if many == 0 || fault.is_some() || !accepts.contains(said) {
            counters.drop_out(DropReason::ReceiverDown, frames.count() as u64);
            return Ok(());
        }
        let mut tally = Tally::default();
        if many > 1 {
            for (pick, frame) in self.picks.iter_mut().zip(frames.clone()) {
                *pick = (flow_hash(&frame.head().0) as usize % many) as u8;
            }
        }
        let mut turn = 0;
        for (number, queue) in queues.iter_mut().enumerate() {
            let Some(queue) = queue.as_mut().filter(|queue| queue.is_enabled()) else { continue };
            let result = if many == 1 {
                queue.deliver(frames.clone(), &mut tally)
            } else {
                let mine = frames.clone().zip(&self.picks).filter(|(_, pick)| **pick == turn);
                queue.deliver(mine.map(|(frame, _)| frame), &mut tally)
            };
            if let Err(what) = result {
                fault.get_or_insert(Fault { queue: 2 * number as u16, what });
                self.device.report_broken();
            }
            turn += 1;
        }
        counters.add_out(tally.frames, tally.bytes);
        for (reason, lost) in [
            (DropReason::ReceiverFull, tally.full),
            (DropReason::ReceiverTooSmall, tally.small),
            (DropReason::Oversize, tally.long),
        ] {
            if lost > 0 {
                counters.drop_out(reason, lost);
            }
        }
        Ok(())
    }
}
