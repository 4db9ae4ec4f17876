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

use flows::Plan;
use ringway_memory::{HEAD_BYTES, View};

use super::receiver::Receiver;
use crate::batch::{Batch, BatchStorage, Frame, Frames};
use crate::frame::{Accepts, Offload};
use crate::port::{Counters, Output, OutputCapabilities, PortFault};

/// Most deliveries that are not looked at after one in which nothing could be joined.
const LONGEST_PAUSE: u8 = 8;
/// Senders with a pause of their own; others share one.
const PAUSES: usize = 64;

/// After a sender's frames could not be joined, a few deliveries of it are not looked at, and more each time: what cannot be joined
/// costs little.
#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    /// Deliveries that are still to pass.
    left: u8,
    length: u8,
}

impl Pause {
    /// Returns true if a delivery passes unlooked at.
    fn passes(&mut self) -> bool {
        let is_on = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_on
    }

    /// Notes how many frames were appended to others.
    fn note(&mut self, appended: usize) {
        self.length = if appended > 0 { 0 } else { (self.length * 2).clamp(1, LONGEST_PAUSE) };
        self.left = self.length;
    }
}

/// Memory for joined frames, kept between passes.
#[derive(Debug)]
pub(super) struct CoalesceScratch {
    /// By sender.
    pauses: [Pause; PAUSES],
    plan: Plan,
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
            chunk: None,
            order: (0..batch_limit as u16).collect(),
            tails: vec![[0; HEAD_BYTES]; batch_limit].into(),
        }
    }
}

/// An output that is given joined frames where that is possible.
pub(super) struct Coalesced<'a> {
    pub(super) output: &'a mut dyn Output,
    /// What the output accepts.
    pub(super) accepts: Accepts,
    pub(super) receiver: Receiver<'a>,
    pub(super) scratch: &'a mut CoalesceScratch,
}

/// What the output accepts, if some of these frames may be joined for it: it accepts unsegmented TCP, and not all frames are short.
#[inline(always)]
pub(super) fn accepted(frames: &Frames<'_, '_>, output: &dyn Output) -> Option<Accepts> {
    if frames.len() < 2 || frames.are_short() {
        return None;
    }
    let accepts = output.capabilities().accepts;
    (accepts.contains(Accepts::CSUM) && accepts.meets(Accepts::TSO4 | Accepts::TSO6)).then_some(accepts)
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
        let (v4, v6) = (self.accepts.contains(Accepts::TSO4), self.accepts.contains(Accepts::TSO6));
        let CoalesceScratch { pauses, plan, chunk: storage, order, tails } = &mut *self.scratch;
        let pause = &mut pauses[usize::from(self.receiver.sender().owner.index()) % PAUSES];
        if pause.passes() {
            return self.output.deliver(frames, counters);
        }
        let appended = plan.find(&frames, v4, v6);
        pause.note(appended);
        if appended == 0 {
            return self.output.deliver(frames, counters);
        }
        self.receiver.join(appended);
        let mut chunk = storage.take().unwrap_or_else(|| BatchStorage::new(order.len())).into_batch();
        let mut tails = tails.iter_mut();
        for (position, frame) in frames.clone().enumerate() {
            match plan.first(position) {
                _ if plan.is_appended(position) => {}
                None => copy(&frame, &mut chunk),
                Some(_) => join(&frames, position, plan, &mut chunk, &mut tails),
            }
        }
        plan.clear(frames.len());
        let result = self.output.deliver(Frames::of(&chunk, &order[..chunk.len()]), counters);
        *storage = Some(chunk.into_storage());
        result
    }
}

/// Adds an unchanged frame to `chunk`.
fn copy<'m>(frame: &Frame<'_, 'm>, chunk: &mut Batch<'m>) {
    let (head, rests) = chunk.draft();
    *head = *frame.head();
    rests.extend_from_slice(frame.rest());
    chunk.seal(frame.head_len(), frame.offload().copied());
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
