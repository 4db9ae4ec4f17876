//! The senders' shares of a congested port, for each queue of the port separately.

use super::receiver::Receiver;
use crate::batch::Frames;
use crate::frame::DropReason;
use crate::policy::Room;
use crate::port::{Counters, Output, OutputCapabilities, PortFault};

/// Memory for sorting frames by queue, for a port with several queues. Kept between passes.
#[derive(Debug)]
pub(super) struct QueueScratch {
    /// Queue number and frame index of each frame.
    queued: Vec<(u8, u16)>,
    /// Frame indices of one queue.
    of_one: Vec<u16>,
}

impl QueueScratch {
    pub(super) fn new(batch_limit: usize) -> QueueScratch {
        QueueScratch { queued: Vec::with_capacity(batch_limit), of_one: Vec::with_capacity(batch_limit) }
    }
}

/// An output of a congested port: delivers only the sender's share of each queue. The frames are those that the client is given: segments after cutting.
pub(super) struct Shared<'a> {
    pub(super) output: &'a mut dyn Output,
    pub(super) receiver: Receiver<'a>,
    pub(super) scratch: &'a mut QueueScratch,
    /// Under which reason refused frames count.
    pub(super) refusal: DropReason,
}

impl Output for Shared<'_> {
    fn capabilities(&self) -> OutputCapabilities {
        self.output.capabilities()
    }

    fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
        self.output.queues(frames)
    }

    fn room(&mut self, frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        self.output.room(frames)
    }

    #[cold]
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let Some(queues) = self.output.queues(frames.clone()) else { return self.deliver_to(0, frames, counters) };
        let QueueScratch { mut queued, mut of_one } = std::mem::replace(self.scratch, QueueScratch::new(0));
        queued.clear();
        queued.extend(queues.iter().copied().zip(frames.indices()));
        queued.sort_unstable();
        let mut result = Ok(());
        for queue in queued.chunk_by(|one, next| one.0 == next.0) {
            of_one.clear();
            of_one.extend(queue.iter().map(|(_, index)| index));
            result = result.and(self.deliver_to(queue[0].0, frames.named(&of_one), counters));
        }
        *self.scratch = QueueScratch { queued, of_one };
        result
    }
}

impl<'a> Shared<'a> {
    /// Returns why the port takes none of the frames, if that is known without looking at each: it is set aside, or its
    /// only queue has no room.
    #[cold]
    pub(super) fn turns_away(&mut self, frames: &Frames<'_, '_>) -> Option<Closed<'a>> {
        let receiver = self.receiver;
        // A detour takes frames for a port that is set aside.
        let is_for_client = self.refusal == DropReason::ReceiverFull;
        if is_for_client && receiver.to.port.congestion().is_aside(receiver.now()) {
            return Some(Closed { receiver, reason: DropReason::ReceiverSlow, is_full: false });
        }
        let has_one = self.output.queues(frames.clone()).is_none();
        let is_full = has_one && self.output.room(frames.clone()).is_some_and(|(free, _)| free == 0);
        is_full.then_some(Closed { receiver, reason: self.refusal, is_full })
    }

    /// Delivers the sender's share of frames that all go to one queue.
    fn deliver_to(&mut self, queue: u8, mut frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let (from, now) = (self.receiver.sender(), self.receiver.now());
        let congestion = self.receiver.to.port.congestion();
        let room = self.output.room(frames.clone());
        let room = room.map(|(free, of)| Room { free, of, adds_up: false, frame: 1, worth: 0 });
        let buffer = self.output.buffer().max(1);
        // For a queue without room, skip the computation of the share.
        let (bytes, most) = match room {
            Some(Room { free: 0, .. }) => (0, 0),
            _ => congestion.most(from, queue, room, takes(&frames, buffer), now),
        };
        let (given, cost) = first(frames.clone(), bytes, most, buffer);
        let refused = given < frames.len();
        if refused {
            self.receiver.refuse(&frames, given, self.refusal);
            if given == 0 {
                congestion.served(from, queue, 0, true, now);
                return Ok(());
            }
            frames = frames.first(given);
        }
        let before = counters.delivered_and_lost();
        let result = self.output.deliver(frames, counters);
        let after = counters.delivered_and_lost();
        let (bytes, full) = (after.0.wrapping_sub(before.0), after.1 != before.1);
        // If frames were dropped for another reason than lack of room, they count for the sender's share.
        let had = if full { bytes } else { bytes.max(cost) };
        congestion.served(from, queue, had, full || refused, now);
        result
    }
}

/// The number of buffers that the first frame takes.
fn takes(frames: &Frames<'_, '_>, buffer: usize) -> usize {
    frames.clone().next().map_or(0, |frame| frame.len().div_ceil(buffer.max(1)))
}

/// The number of leading frames that begin before `bytes` bytes and fit into `room` buffers of `buffer` bytes, and their
/// bytes.
fn first(frames: Frames<'_, '_>, bytes: u64, room: u64, buffer: usize) -> (usize, u64) {
    let (mut given, mut sum, mut used) = (0, 0, 0_u64);
    for frame in frames {
        used = used.saturating_add(frame.len().div_ceil(buffer) as u64);
        if sum >= bytes || used > room {
            break;
        }
        given += 1;
        sum += frame.len() as u64;
    }
    (given, sum)
}

/// In place of the output of a congested port that takes nothing: refuses all frames.
pub(super) struct Closed<'a> {
    pub(super) receiver: Receiver<'a>,
    pub(super) reason: DropReason,
    pub(super) is_full: bool,
}

impl Output for Closed<'_> {
    #[cold]
    fn deliver(&mut self, frames: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
        let Receiver { to, .. } = self.receiver;
        self.receiver.refuse(&frames, 0, self.reason);
        if self.is_full {
            to.port.congestion().served(self.receiver.sender(), 0, 0, true, self.receiver.now());
        }
        Ok(())
    }
}
