//! Frames to the guest: the receive queues of a vhost-user port.

use std::sync::Arc;

use ringway_port::steer::{Picks, queue_of};
use ringway_switch::{Counters, DropReason, Frames, Output, OutputCapabilities, PortFault};

use super::device::{Device, Fault, OutputState};
use super::queue::ReceiveQueue;
use crate::virtqueue::Tally;

pub(super) struct VhostOutput {
    device: Arc<Device>,
    picks: Picks,
}

impl VhostOutput {
    pub(super) fn new(device: Arc<Device>) -> VhostOutput {
        VhostOutput { device, picks: Picks::new() }
    }
}

/// Returns the enabled queues.
fn enabled(queues: &mut [Option<ReceiveQueue>]) -> impl Iterator<Item = &mut ReceiveQueue> {
    queues.iter_mut().flatten().filter(|queue| queue.is_enabled())
}

impl Output for VhostOutput {
    fn capabilities(&self) -> OutputCapabilities {
        let accepts = self.device.output.lock().accepts;
        OutputCapabilities { accepts, names_losses: true, ..OutputCapabilities::default() }
    }

    fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
        let enabled = enabled(&mut self.device.output.lock().queues).count();
        (enabled > 1).then(|| self.picks.picked(frames, enabled))
    }

    fn room(&mut self, mut frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        let mut side = self.device.output.lock();
        let many = enabled(&mut side.queues).count().max(1);
        enabled(&mut side.queues).nth(queue_of(&frames.next()?, many))?.room()
    }

    fn buffer(&mut self) -> usize {
        let mut side = self.device.output.lock();
        enabled(&mut side.queues).map(|queue| queue.buffer()).min().unwrap_or(usize::MAX)
    }

    #[inline]
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let mut side = self.device.output.lock();
        let OutputState { queues, fault, accepts, .. } = &mut *side;
        let enabled = |queue: &&mut Option<_>| matches!(queue, Some(queue) if ReceiveQueue::is_enabled(queue));
        let many = queues.iter_mut().filter(enabled).count();
        // The session may have changed the features since the switch asked for them.
        if many == 0 || fault.is_some() || !frames.need_only(*accepts) {
            counters.drop_out(DropReason::ReceiverDown, frames.len() as u64);
            frames.for_each(|frame| frame.lose(DropReason::ReceiverDown));
            return Ok(());
        }
        let mut tally = Tally::default();
        if many > 1 {
            self.picks.pick(frames.clone(), many);
        }
        let mut turn = 0;
        for (number, queue) in queues.iter_mut().enumerate() {
            let Some(queue) = queue.as_mut().filter(|queue| queue.is_enabled()) else { continue };
            let result = match frames.as_contiguous() {
                _ if many > 1 => queue.deliver(self.picks.of(frames.clone(), turn), &mut tally),
                Some(frames) => queue.deliver(frames, &mut tally),
                None => queue.deliver(frames.clone(), &mut tally),
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
