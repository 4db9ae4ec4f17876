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

use std::ops::Range;

use flows::Plan;
use ringway_memory::{HEAD_BYTES, View};

use super::receiver::Receiver;
use crate::batch::{Batch, BatchStorage, Frames};
use crate::frame::{Accepts, Offload};
use crate::port::{Counters, Output, OutputCapabilities, PortFault};

/// Most deliveries that are not looked at after one in which nothing could be joined: two to this power.
const LONGEST_PAUSE: u16 = 5;
/// Frames of a delivery that are looked at after one in which nothing could be joined.
const PROBE: usize = 32;
/// Deliveries that are not looked at after a joined frame was too long for its receiver.
const PAUSE_AFTER_LOSS: u16 = 4096;
/// Pairs of sender and receiver with a pause of their own; others share one.
const PAUSES: usize = 64;

/// After frames of a sender to a receiver could not be joined, a few deliveries are not looked at, and more each time, and then a few
/// frames only: what cannot be joined costs little.
#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    /// Deliveries that are still to pass.
    left: u16,
    /// Looks in a row that found nothing to join.
    in_vain: u16,
}

impl Pause {
    /// Returns true if a delivery passes unlooked at.
    fn passes(&mut self) -> bool {
        let is_on = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_on
    }

    /// The frames, of this number, among which two must be found that can be joined, or no others are looked at. Each look in vain is
    /// followed by one at the next frames of a delivery.
    fn window(&self, frames: usize) -> Range<usize> {
        if self.in_vain == 0 {
            return 0..frames;
        }
        let start = usize::from(self.in_vain) % frames.div_ceil(PROBE).max(1) * PROBE;
        start..start + PROBE
    }

    /// Notes how many frames were appended to others.
    fn note(&mut self, appended: usize) {
        self.in_vain = if appended > 0 { 0 } else { self.in_vain.checked_add(1).unwrap_or(1) };
        self.left = if appended > 0 { 0 } else { 1 << (self.in_vain - 1).min(LONGEST_PAUSE) };
    }
}

/// Memory for joined frames, kept between passes.
#[derive(Debug)]
pub(super) struct CoalesceScratch {
    /// By sender and receiver.
    pauses: [Pause; PAUSES],
    plan: Plan,
    /// Taken while frames are delivered.
    chunk: Option<BatchStorage>,
    /// The indices of the chunk's frames, in order.
    order: Box<[u16]>,
    /// The payload that was in the heads of appended frames.
    tails: Box<[[u8; HEAD_BYTES]]>,
}

impl CoalesceScratch {
    pub(super) fn new(batch_limit: usize) -> CoalesceScratch {
        CoalesceScratch {
            pauses: [Pause::default(); PAUSES],
            plan: Plan::new(batch_limit),
            chunk: Some(BatchStorage::new(batch_limit)),
            order: (0..batch_limit as u16).collect(),
            tails: vec![[0; HEAD_BYTES]; batch_limit].into(),
        }
    }
}

/// An output that is given joined frames where that is possible.
pub(super) struct Coalesced<'a> {
    pub(super) output: &'a mut dyn Output,
    /// Those of the client's output.
    pub(super) capabilities: OutputCapabilities,
    pub(super) receiver: Receiver<'a>,
    /// The receiver is congested.
    pub(super) is_shared: bool,
    pub(super) scratch: &'a mut CoalesceScratch,
}

/// Returns true if some of these frames may be joined: there are several, and not all are short.
#[inline(always)]
pub(super) fn may_join(frames: &Frames<'_, '_>) -> bool {
    frames.len() > 1 && !frames.are_short()
}

/// Returns true if a client that accepts these offloads is given joined frames.
#[inline(always)]
pub(super) fn joins(accepts: Accepts) -> bool {
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
        let (sender, receiver) = (self.receiver.sender().owner.index(), self.receiver.to.owner.index());
        let place = (usize::from(sender) * 31 + usize::from(receiver)) % PAUSES;
        if self.scratch.pauses[place].passes() || !self.has_room(&frames) {
            return self.output.deliver(frames, counters);
        }
        let CoalesceScratch { pauses, plan, chunk: storage, order, tails } = &mut *self.scratch;
        let window = pauses[place].window(frames.len());
        let appended = plan.find(&frames, &self.capabilities, window);
        pauses[place].note(appended);
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
            pauses[place].left = PAUSE_AFTER_LOSS;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_cannot_be_joined_are_seldom_looked_at_and_those_that_can_are_found_again() {
        const FRAMES: usize = 256;
        let (mut pause, mut looked_at) = (Pause::default(), 0);
        let mut seen = [0; FRAMES];
        let mut longest = [0; FRAMES];
        for delivery in 0..2000 {
            if !pause.passes() {
                let window = pause.window(FRAMES);
                looked_at += window.len();
                for position in window {
                    let unseen = delivery - std::mem::replace(&mut seen[position], delivery);
                    longest[position] = unseen.max(longest[position]);
                }
                pause.note(0);
            }
        }
        assert!(looked_at * 200 < 2000 * FRAMES, "{looked_at} of {} frames", 2000 * FRAMES);
        let turn = FRAMES / PROBE * ((1 << LONGEST_PAUSE) + 1);
        assert!(longest.iter().all(|&unseen| unseen <= turn), "{longest:?}");
        pause.note(1);
        assert!(!pause.passes() && pause.window(FRAMES) == (0..FRAMES), "what was joined is looked at as a whole");
        assert!(pause.window(2).contains(&1));
        pause.note(0);
        assert!(pause.window(2).contains(&0) && pause.window(2).contains(&1), "short deliveries have one window");
    }
}
