//! Delivery to an output that does not take a frame as it is (VPE §4.6).

use ringway_memory::View;

use super::segment::{Cut, FragmentNumbers, TAIL_BYTES, Tail};
use crate::batch::{Batch, BatchStorage, Cursor, Frame, Frames};
use crate::frame::{Accepts, DropReason, Gso, Offload};
use crate::port::{Counters, Output, PortFault};
use crate::topology::Member;

/// Frames that are finished before they are delivered.
const CHUNK: usize = Finisher::CHUNK;

/// What a poller needs for finishing frames, kept between passes.
#[derive(Debug)]
pub(crate) struct Finisher {
    chunk: Option<BatchStorage>,
    /// The numbers of a chunk's frames, in order.
    order: Box<[u16]>,
    tails: Box<[Tail]>,
    numbers: FragmentNumbers,
}

impl Finisher {
    /// Most frames that it delivers at once.
    pub(crate) const CHUNK: usize = 128;

    pub(crate) fn new() -> Self {
        Self {
            chunk: Some(BatchStorage::new(CHUNK)),
            order: (0..CHUNK as u16).collect(),
            tails: [[0; TAIL_BYTES]; CHUNK].into(),
            numbers: FragmentNumbers::new(),
        }
    }

    /// Delivers `frames`, finished as far as `output` needs it, a chunk at a time.
    ///
    /// # Errors
    /// The first of the output's.
    #[cold]
    pub(crate) fn deliver(
        &mut self,
        frames: Frames<'_, '_>,
        output: &mut dyn Output,
        counters: &Counters,
    ) -> Result<(), PortFault> {
        let accepts = output.accepts();
        let is_unfinished = |frame: Frame<'_, '_>| frame.offload().is_some_and(|offload| !accepts.covers(offload));
        if !frames.clone().any(is_unfinished) {
            return output.deliver(frames, counters);
        }
        let mut queue = Queue { frames, accepts, cut: None, numbers: &mut self.numbers, lost: 0 };
        let (mut result, mut more) = (Ok(()), true);
        while more {
            let mut chunk = self.chunk.take().unwrap_or_else(|| BatchStorage::new(CHUNK)).into_batch();
            let mut tails = self.tails.iter_mut();
            while more
                && chunk.room() > 0
                && let Some(tail) = tails.next()
            {
                more = queue.finish_one(&mut chunk, tail);
            }
            let count = chunk.len();
            if count > 0 {
                // An output that failed counts what else it is given as lost.
                result = result.and(output.deliver(Frames::of(&chunk, &self.order[..count]), counters));
            }
            self.chunk = Some(chunk.into_storage());
        }
        if queue.lost > 0 {
            counters.drop_out(DropReason::BadOffload, queue.lost);
        }
        result
    }
}

/// Frames on their way through a [`Finisher`].
struct Queue<'b, 'm, 'f> {
    frames: Frames<'b, 'm>,
    accepts: Accepts,
    /// The frame that is being cut.
    cut: Option<Cut<'b, 'm>>,
    numbers: &'f mut FragmentNumbers,
    /// Frames that could not be finished, at least not to their end.
    lost: u64,
}

impl<'m> Queue<'_, 'm, '_> {
    /// Takes the next step: adds a finished frame to `chunk`, or counts one as lost. False: there are none left.
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
                offload => {
                    copy(&frame, offload, chunk);
                    return true;
                }
            }
        }
        let ended = self.cut.as_mut().and_then(|cut| cut.segment(chunk, tail, self.accepts));
        self.lost += u64::from(ended.is_none());
        if ended != Some(false) {
            self.cut = None;
        }
        true
    }
}

/// Adds a frame as it is.
fn copy<'m>(frame: &Frame<'_, 'm>, offload: Option<&Offload>, chunk: &mut Batch<'m>) {
    let (head, rests) = chunk.draft();
    *head = *frame.head();
    rests.extend_from_slice(frame.rest());
    chunk.seal(frame.head_len(), offload.copied());
}

/// Adds a frame with its checksum. `None`: it has no such field, which admission rules out.
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
        // The source's memory is not written to: two bytes of it are replaced on the way.
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

/// Gives frames of the batch to a port whose output is `output`. True when it broke the rules.
#[inline]
pub(crate) fn hand_over(
    batch: &Batch<'_>,
    frames: Frames<'_, '_>,
    member: &Member,
    output: &mut dyn Output,
    finisher: &mut Finisher,
) -> bool {
    match finish(batch, frames, output, finisher, member.port.counters()) {
        Ok(()) => false,
        Err(fault) => {
            member.port.fail(fault);
            true
        }
    }
}

/// Whether no frame of the batch has to be finished for this output.
#[inline]
fn output_takes_all(batch: &Batch<'_>, output: &dyn Output) -> bool {
    batch.needs() == Accepts::NOTHING || output.accepts().contains(batch.needs())
}

/// Gives frames of the batch to `output`, finished as far as the output needs it.
#[inline]
pub(super) fn finish(
    batch: &Batch<'_>,
    frames: Frames<'_, '_>,
    output: &mut dyn Output,
    finisher: &mut Finisher,
    counters: &Counters,
) -> Result<(), PortFault> {
    if output_takes_all(batch, output) {
        output.deliver(frames, counters)
    } else {
        finisher.deliver(frames, output, counters)
    }
}
