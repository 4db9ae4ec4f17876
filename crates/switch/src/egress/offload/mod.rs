//! Offloads in software, for outputs that do not accept them: checksums, segmentation, fragmentation (VPE §4.6).
//!
//! `segment`: a frame that is cut; `tunnel`: one whose segments are in a UDP tunnel. `coalesce`: the opposite, for outputs that accept more
//! than the sender did.

pub(super) mod coalesce;
mod segment;
mod tunnel;

#[cfg(test)]
mod finish_tests;
#[cfg(test)]
mod header_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tunnel_tests;

use ringway_memory::View;

use crate::batch::{Batch, BatchStorage, Cursor, Frame, Frames};
use crate::frame::{Accepts, DropReason, Gso, Offload};
use crate::port::{Counters, Output, OutputCapabilities, PortFault};
use crate::time::Measure;
use segment::{Cut, FragmentNumbers, TAIL_BYTES, Tail};

/// Most frames that are processed before they are delivered.
const CHUNK: usize = 128;

/// Memory for offloads in software, kept between passes.
#[derive(Debug)]
pub(in crate::egress) struct OffloadScratch {
    chunk: Option<BatchStorage>,
    /// The indices of a chunk's frames, in order.
    order: Box<[u16]>,
    tails: Box<[Tail]>,
    numbers: FragmentNumbers,
    /// While passes are examined: the clock.
    pub(in crate::egress) clock: Option<Measure>,
    /// Nanoseconds that the clock has measured.
    pub(in crate::egress) spent: u64,
}

impl OffloadScratch {
    pub(in crate::egress) fn new() -> OffloadScratch {
        OffloadScratch {
            chunk: Some(BatchStorage::new(CHUNK)),
            order: (0..CHUNK as u16).collect(),
            tails: [[0; TAIL_BYTES]; CHUNK].into(),
            numbers: FragmentNumbers::new(),
            clock: None,
            spent: 0,
        }
    }
}

/// An output with software offloads: does the offloads that the inner output does not accept.
pub(in crate::egress) struct SoftwareOffload<'a> {
    pub(in crate::egress) output: &'a mut dyn Output,
    pub(in crate::egress) scratch: &'a mut OffloadScratch,
}

impl Output for SoftwareOffload<'_> {
    fn capabilities(&self) -> OutputCapabilities {
        OutputCapabilities { accepts: Accepts::EVERYTHING, ..self.output.capabilities() }
    }

    fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
        self.output.queues(frames)
    }

    fn room(&mut self, frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        self.output.room(frames)
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let accepts = self.output.capabilities().accepts;
        if frames.need_only(accepts) {
            return self.output.deliver(frames, counters);
        }
        let OffloadScratch { chunk: storage, order, tails, numbers, clock, spent } = &mut *self.scratch;
        let clock = *clock;
        let mut queue = Queue { frames, accepts, cut: None, numbers, lost: 0 };
        let (mut result, mut more) = (Ok(()), true);
        while more {
            let began = clock.map(|measure| measure().nanoseconds);
            let mut chunk = storage.take().unwrap_or_else(|| BatchStorage::new(CHUNK)).into_batch();
            let mut tails = tails.iter_mut();
            while more
                && chunk.room() > 0
                && let Some(tail) = tails.next()
            {
                more = queue.finish_one(&mut chunk, tail);
            }
            if let (Some(measure), Some(began)) = (clock, began) {
                *spent = spent.saturating_add(measure().nanoseconds.saturating_sub(began));
            }
            let count = chunk.len();
            if count > 0 {
                // An output that failed counts the other chunks as lost.
                result = result.and(self.output.deliver(Frames::of(&chunk, &order[..count]), counters));
            }
            *storage = Some(chunk.into_storage());
        }
        if queue.lost > 0 {
            counters.drop_out(DropReason::BadOffload, queue.lost);
        }
        result
    }
}

/// The input frames of one [`SoftwareOffload`] delivery.
struct Queue<'b, 'm, 'f> {
    frames: Frames<'b, 'm>,
    accepts: Accepts,
    /// The frame that is being segmented or fragmented.
    cut: Option<Cut<'b, 'm>>,
    numbers: &'f mut FragmentNumbers,
    /// Number of frames whose offload failed, some of them after a few segments.
    lost: u64,
}

impl<'m> Queue<'_, 'm, '_> {
    /// Adds the next output frame to `chunk`, or counts an input frame as lost. Returns false if there are no frames
    /// left.
    fn finish_one<'x>(&mut self, chunk: &mut Batch<'x>, tail: &'x mut Tail) -> bool
    where
        'm: 'x,
    {
        if self.cut.is_none() {
            let Some(frame) = self.frames.next() else { return false };
            match frame.offload() {
                Some(offload) if !self.accepts.covers(offload) => match offload.gso {
                    Gso::None => {
                        let done = checksum(&frame, offload, chunk, tail);
                        self.lost += u64::from(done.is_none());
                        return true;
                    }
                    _ => self.cut = Cut::new(frame, *offload, self.numbers),
                },
                _ => {
                    chunk.push_copy(&frame);
                    return true;
                }
            }
        }
        let ended = self.cut.as_mut().and_then(|cut| match cut.tunnel {
            None => cut.segment(chunk, tail, self.accepts),
            Some((outer, tunnel)) => cut.segment_in_tunnel(&outer, tunnel, chunk, tail, self.accepts),
        });
        self.lost += u64::from(ended.is_none());
        if ended != Some(false) {
            self.cut = None;
        }
        true
    }
}

/// Adds a frame with its checksum computed. Returns `None` if the frame has no checksum field; admission rejects such
/// frames before.
fn checksum<'m>(frame: &Frame<'_, 'm>, offload: &Offload, chunk: &mut Batch<'m>, tail: &'m mut Tail) -> Option<()> {
    let start = usize::from(offload.csum_start);
    let field = start + usize::from(offload.csum_offset);
    let value = frame.sum_from(start).checksum();
    if field + value.len() > frame.len() {
        return None;
    }
    let (head, rests) = chunk.draft();
    *head = *frame.head();
    let head_len = frame.head_len();
    let (near, far) = value.split_at(head_len.saturating_sub(field).min(value.len()));
    if !near.is_empty() {
        head.0.get_mut(field..field + near.len())?.copy_from_slice(near);
    }
    let mut cursor = Cursor::default();
    if !far.is_empty() {
        // The source's memory is not written to: a private copy replaces the two bytes of the checksum.
        cursor.take(frame.rest(), (field + near.len()).checked_sub(head_len)?, |view| rests.push(view));
        let bytes = tail.get_mut(..far.len())?;
        bytes.copy_from_slice(far);
        rests.push(View::private(bytes));
        cursor.take(frame.rest(), far.len(), drop);
    }
    cursor.take(frame.rest(), frame.len(), |view| rests.push(view));
    chunk.seal(head_len, None);
    Some(())
}
