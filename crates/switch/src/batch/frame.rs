//! One frame of a batch.

use std::iter::Zip;
use std::slice;

use ringway_memory::{Head, View};

use super::cursor::Cursor;
use super::entry::{Entry, Extras};
use super::storage::Batch;
use crate::frame::{Class, DropReason, Offload, Sum};

/// All frames of a batch, by index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllFrames<'b, 'm> {
    batch: &'b Batch<'m>,
    entries: &'b [Entry],
    heads: &'b [Head],
}

impl<'b, 'm> AllFrames<'b, 'm> {
    #[inline(always)]
    fn of(batch: &'b Batch<'m>) -> Self {
        let count = batch.parts.count;
        Self { batch, entries: &batch.parts.entries[..count], heads: &batch.parts.heads[..count] }
    }

    #[inline(always)]
    pub(super) fn batch(&self) -> &'b Batch<'m> {
        self.batch
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Frame<'b, 'm> {
        Frame { batch: self.batch, entry: &self.entries[index], head: &self.heads[index] }
    }

    /// The first `count` frames. There must be that many.
    #[inline(always)]
    pub(crate) fn as_contiguous(&self, count: usize) -> Contiguous<'b, 'm> {
        Contiguous { batch: self.batch, parts: self.entries[..count].iter().zip(&self.heads[..count]) }
    }

    /// Starts to record which frames their receiver loses.
    pub(crate) fn start_recording_losses(&self) {
        self.batch.parts.losses.begin();
    }

    /// Stops recording lost frames.
    pub(crate) fn stop_recording_losses(&self) {
        self.batch.parts.losses.end();
    }

    /// The class of frame `index`. Only meaningful if the switch has VLANs.
    #[inline]
    pub(crate) fn class(&self, index: usize) -> Class {
        self.batch.class(index)
    }
}

/// The first frames of a batch, without a gap.
#[derive(Clone, Debug)]
pub struct Contiguous<'b, 'm> {
    batch: &'b Batch<'m>,
    parts: Zip<slice::Iter<'b, Entry>, slice::Iter<'b, Head>>,
}

impl<'b, 'm> Iterator for Contiguous<'b, 'm> {
    type Item = Frame<'b, 'm>;

    #[inline(always)]
    fn next(&mut self) -> Option<Frame<'b, 'm>> {
        self.parts.next().map(|(entry, head)| Frame { batch: self.batch, entry, head })
    }

    #[inline(always)]
    fn nth(&mut self, n: usize) -> Option<Frame<'b, 'm>> {
        self.parts.nth(n).map(|(entry, head)| Frame { batch: self.batch, entry, head })
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.parts.size_hint()
    }
}

/// A frame to deliver: `head_len` bytes of `head` and then each of `rest`, together `len` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'b, 'm> {
    batch: &'b Batch<'m>,
    entry: &'b Entry,
    head: &'b Head,
}

impl<'b, 'm> Frame<'b, 'm> {
    /// Length of the frame in bytes.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.entry.len as usize
    }

    /// The private copy of the frame's first bytes, which policy has judged. Bytes from `head_len` on are unspecified.
    #[inline(always)]
    #[must_use]
    pub fn head(&self) -> &'b Head {
        self.head
    }

    /// Returns true if most frames of its sender wait for a limit. Then neither this frame nor the receiver's buffers
    /// are likely to be in the cache.
    #[inline(always)]
    #[must_use]
    pub fn has_waited(&self) -> bool {
        self.batch.parts.source_waits
    }

    /// Records that the receiver has lost the frame, for captures of the receiver. An output calls this if its
    /// [`crate::OutputCapabilities::names_losses`] is set. It also counts the frame.
    #[inline]
    pub fn lose(&self, reason: DropReason) {
        self.batch.parts.losses.note(self.head, reason);
    }

    /// Why the receiver has lost the frame, if that was recorded since [`AllFrames::start_recording_losses`].
    #[inline]
    pub(crate) fn loss(&self) -> Option<DropReason> {
        self.batch.parts.losses.of(self.head)
    }

    /// Number of bytes of `head` that belong to the frame: at most 128.
    #[inline(always)]
    #[must_use]
    pub fn head_len(&self) -> usize {
        self.entry.extras.head_len(self.entry.len)
    }

    /// The bytes of `head` that belong to the frame.
    #[inline]
    #[must_use]
    pub fn first_bytes(&self) -> &'b [u8] {
        self.head.0.get(..self.head_len()).unwrap_or(&self.head.0)
    }

    /// The frame's bytes behind the head, in the source's memory.
    #[inline(always)]
    #[must_use]
    pub fn rest(&self) -> &'b [View<'m>] {
        let first = self.entry.first_rest as usize;
        &self.batch.rests[first..first + self.entry.extras.rests()]
    }

    /// Copies the frame's first bytes. Returns how many there are.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> usize {
        let first = self.first_bytes();
        let mut at = first.len().min(bytes.len());
        bytes[..at].copy_from_slice(&first[..at]);
        for view in self.rest() {
            let Some(part) = bytes.get_mut(at..).map(|left| left.len().min(view.len())).filter(|&part| part > 0) else {
                break;
            };
            if !view.read(&mut bytes[at..at + part]) {
                break;
            }
            at += part;
        }
        at
    }

    /// The ones' complement sum of the bytes from `start` on.
    pub(crate) fn sum_from(&self, start: usize) -> Sum {
        let mut sum = Sum::default();
        self.add_from(start, &mut sum);
        sum
    }

    /// Adds the bytes from `start` on to a sum.
    pub(crate) fn add_from(&self, start: usize, sum: &mut Sum) {
        let head = self.first_bytes();
        sum.add(head.get(start..).unwrap_or(&[]));
        let mut cursor = Cursor::default();
        cursor.take(self.rest(), start.saturating_sub(head.len()), drop);
        cursor.take(self.rest(), self.len(), |view| sum.add_view(view));
    }

    /// The internet checksum of the bytes from `start` on, never zero (RFC 768).
    #[must_use]
    pub fn checksum_from(&self, start: usize) -> [u8; 2] {
        self.sum_from(start).checksum()
    }

    /// The frame's offload, if it has one. It asks only for what the output [accepts](crate::OutputCapabilities::accepts).
    #[inline(always)]
    #[must_use]
    pub fn offload(&self) -> Option<&'b Offload> {
        self.entry.extras.offload().and_then(|place| self.batch.parts.offloads.get(place))
    }

    /// Returns true if the whole frame is in `head` and it has no offload.
    #[inline(always)]
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.entry.extras == Extras::NOTHING
    }
}

impl<'m> Batch<'m> {
    /// All frames, for delivery.
    #[inline(always)]
    pub(crate) fn frames(&self) -> AllFrames<'_, 'm> {
        AllFrames::of(self)
    }

    /// Frame `index`, for delivery.
    #[inline(always)]
    #[must_use]
    pub fn frame(&self, index: usize) -> Frame<'_, 'm> {
        Frame { batch: self, entry: &self.parts.entries[index], head: &self.parts.heads[index] }
    }
}
