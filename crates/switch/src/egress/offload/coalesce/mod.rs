//! Receive coalescing (VPE §4.5): TCP segments of one flow that follow one another in a batch are delivered as one frame, to
//! receivers that accept unsegmented TCP.
//!
//! Segments are joined only if cutting the joined frame gives the same frames again, byte by byte: equal headers, consecutive sequence
//! numbers and identifications, correct checksums, full segments before the last, and `PSH` and `FIN` in the last only. A frame of the
//! flow that cannot join ends what is joined: the frames of a flow keep their order. The payload is delivered from its sender's memory.
//!
//! `segment`: what is read of a frame, and when two are alike. `flows`: which frames are joined.

mod flows;
mod segment;
#[cfg(test)]
mod tests;

use flows::Plan;
use ringway_memory::{HEAD_BYTES, View};

use crate::batch::{Batch, BatchStorage, Frames};
use crate::egress::receiver::Receiver;
use crate::frame::{Accepts, Offload};
use crate::port::{Counters, Output, OutputCapabilities, PortFault};

/// Memory for joined frames, kept between passes.
#[derive(Debug)]
pub(in crate::egress) struct CoalesceScratch {
    plan: Plan,
    /// Taken while frames are delivered.
    chunk: Option<BatchStorage>,
    /// The indices of the chunk's frames, in order.
    order: Box<[u16]>,
    /// The payload that was in the heads of appended frames.
    tails: Box<[[u8; HEAD_BYTES]]>,
}

impl CoalesceScratch {
    pub(in crate::egress) fn new(batch_limit: usize) -> CoalesceScratch {
        CoalesceScratch {
            plan: Plan::new(batch_limit),
            chunk: Some(BatchStorage::new(batch_limit)),
            order: (0..batch_limit as u16).collect(),
            tails: vec![[0; HEAD_BYTES]; batch_limit].into(),
        }
    }
}

/// An output that is given joined frames where that is possible.
pub(in crate::egress) struct Coalesced<'a> {
    pub(in crate::egress) output: &'a mut dyn Output,
    /// Those of the client's output.
    pub(in crate::egress) capabilities: OutputCapabilities,
    pub(in crate::egress) receiver: Receiver<'a>,
    /// The receiver is congested.
    pub(in crate::egress) is_shared: bool,
    pub(in crate::egress) scratch: &'a mut CoalesceScratch,
}

/// Returns true if some of these frames may be joined: there are several, and not all are short.
#[inline(always)]
pub(in crate::egress) fn may_join(frames: &Frames<'_, '_>) -> bool {
    frames.len() > 1 && !frames.are_short()
}

/// Returns true if a client that accepts these offloads is given joined frames.
#[inline(always)]
pub(in crate::egress) fn joins(accepts: Accepts) -> bool {
    accepts.contains(Accepts::CSUM) && accepts.meets(Accepts::TSO4 | Accepts::TSO6)
}

impl Coalesced<'_> {
    /// Returns true if the receiver has a place for each frame, or cannot tell. In a receiver that is nearly full a joined frame would
    /// be lost as a whole, where some of its segments find room.
    fn has_room(&mut self, frames: &Frames<'_, '_>) -> bool {
        !self.is_shared || self.output.room(frames.clone()).is_none_or(|(free, _)| free >= frames.len())
    }
}

impl Output for Coalesced<'_> {
    fn capabilities(&self) -> OutputCapabilities {
        self.output.capabilities()
    }

    fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
        self.output.queues(frames)
    }

    fn room(&mut self, frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        self.output.room(frames)
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let pauses = self.receiver.pauses();
        let to = self.receiver.to.owner;
        let mut pause = pauses.of(to);
        if pause.passes() || !self.has_room(&frames) {
            pauses.set(to, pause);
            return self.output.deliver(frames, counters);
        }
        let CoalesceScratch { plan, chunk: storage, order, tails } = &mut *self.scratch;
        let appended = plan.find(&frames, &self.capabilities, pause.window(frames.len()));
        pause.note(appended);
        pauses.set(to, pause);
        if appended == 0 {
            return self.output.deliver(frames, counters);
        }
        let mut chunk = storage.take().unwrap_or_else(|| BatchStorage::new(order.len())).into_batch();
        self.receiver.count_joined(appended);
        let mut tails = tails.iter_mut();
        for (position, frame) in frames.clone().enumerate() {
            match plan.first(position) {
                _ if plan.is_appended(position) => {}
                None => chunk.push_copy(&frame),
                Some(_) => join(&frames, position, plan, &mut chunk, &mut tails),
            }
        }
        plan.clear(frames.len());
        if frames.has_waited() {
            chunk.note_waited();
        }
        let before = counters.too_long();
        let result = self.output.deliver(Frames::of(&chunk, &order[..chunk.len()]), counters);
        if counters.too_long() != before {
            pauses.set(to, pause.after_loss());
        }
        *storage = Some(chunk.into_storage());
        result
    }
}

/// Adds the frame at `first` to `chunk`, with those that are appended to it.
fn join<'x, 'm: 'x>(
    frames: &Frames<'_, 'm>,
    first: usize,
    plan: &Plan,
    chunk: &mut Batch<'x>,
    tails: &mut impl Iterator<Item = &'x mut [u8; HEAD_BYTES]>,
) {
    let (Some(segment), Some(frame)) = (plan.first(first), frames.clone().nth(first)) else { return };
    let start = usize::from(segment.end);
    let (head, rests) = chunk.draft();
    *head = *frame.head();
    rests.extend_from_slice(frame.rest());
    let (mut last, mut payload, mut position) = (frame, frame.len() - start, first);
    while let Some(next) = plan.next(position) {
        let (Some(frame), Some(tail)) = (frames.clone().nth(next), tails.next()) else { break };
        let judged = frame.first_bytes().get(start..).unwrap_or(&[]);
        if let Some(tail) = tail.get_mut(..judged.len()).filter(|tail| !tail.is_empty()) {
            tail.copy_from_slice(judged);
            rests.push(View::private(tail));
        }
        rests.extend_from_slice(frame.rest());
        payload += frame.len() - start;
        (last, position) = (frame, next);
    }
    let size = segment.payload;
    let offload: Option<Offload> = segment.enlarge(&mut head.0, payload, size, &last.head().0);
    chunk.seal(frame.head_len(), offload);
}
