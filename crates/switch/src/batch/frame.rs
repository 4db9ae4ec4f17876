//! One frame of a batch.

use std::iter::Zip;
use std::slice;

use ringway_memory::{Head, View};

use super::cursor::Cursor;
use super::entry::{Entry, More};
use super::storage::Batch;
use crate::frame::{Class, DropReason, Offload, Sum};

/// All frames of a batch, by number.
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
    pub(crate) fn get(&self, index: usize) -> Frame<'b, 'm> {
        Frame { batch: self.batch, entry: &self.entries[index], head: &self.heads[index] }
    }

    /// The first `count` of them, which there are.
    #[inline(always)]
    pub(crate) fn in_turn(&self, count: usize) -> InTurn<'b, 'm> {
        InTurn { batch: self.batch, parts: self.entries[..count].iter().zip(&self.heads[..count]) }
    }

    /// From now on it is noted which of them their receiver loses.
    pub(crate) fn begin_losses(&self) {
        self.batch.parts.losses.begin();
    }

    /// It is noted no longer.
    pub(crate) fn end_losses(&self) {
        self.batch.parts.losses.end();
    }

    /// The VLAN of a frame, as [`Batch::class`].
    #[inline]
    pub(crate) fn class(&self, index: usize) -> Class {
        self.batch.class(index)
    }
}

/// Frames of a batch from its first on, without a gap.
#[derive(Clone, Debug)]
pub struct InTurn<'b, 'm> {
    batch: &'b Batch<'m>,
    parts: Zip<slice::Iter<'b, Entry>, slice::Iter<'b, Head>>,
}

impl<'b, 'm> Iterator for InTurn<'b, 'm> {
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
    /// Bytes of the whole.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.entry.len as usize
    }

    /// Begins with the first bytes, the ones that were judged.
    #[inline(always)]
    #[must_use]
    pub fn head(&self) -> &'b Head {
        self.head
    }

    /// Whether its sender waits for a limit with most of its frames: then neither this frame nor the buffers of its receiver are
    /// near.
    #[inline(always)]
    #[must_use]
    pub fn has_waited(&self) -> bool {
        self.batch.parts.waited
    }

    /// Notes that its receiver has lost it, for those that are shown the receiver's frames. Each output says so that says that it
    /// does ([`crate::Output::names_losses`]), besides counting it.
    #[inline]
    pub fn lose(&self, reason: DropReason) {
        self.batch.parts.losses.note(self.head, reason);
    }

    /// Why its receiver has lost it, if that was noted since [`AllFrames::begin_losses`].
    #[inline]
    pub(crate) fn loss(&self) -> Option<DropReason> {
        self.batch.parts.losses.of(self.head)
    }

    /// How many bytes of `head` are the frame's: at most 128.
    #[inline(always)]
    #[must_use]
    pub fn head_len(&self) -> usize {
        self.entry.more.head_len(self.entry.len)
    }

    /// These bytes of `head`.
    #[inline]
    #[must_use]
    pub fn first_bytes(&self) -> &'b [u8] {
        self.head.0.get(..self.head_len()).unwrap_or(&self.head.0)
    }

    /// The others, in the source's memory.
    #[inline(always)]
    #[must_use]
    pub fn rest(&self) -> &'b [View<'m>] {
        let first = self.entry.first_rest as usize;
        &self.batch.rests[first..first + self.entry.more.rests()]
    }

    /// The sum of the bytes from `start` on.
    pub(crate) fn sum_from(&self, start: usize) -> Sum {
        let mut sum = Sum::default();
        let head = self.first_bytes();
        sum.add(head.get(start..).unwrap_or(&[]));
        let mut cursor = Cursor::default();
        cursor.take(self.rest(), start.saturating_sub(head.len()), drop);
        cursor.take(self.rest(), self.len(), |view| sum.add_view(view));
        sum
    }

    /// The internet checksum of the bytes from `start` on, never zero (RFC 768).
    #[must_use]
    pub fn checksum_from(&self, start: usize) -> [u8; 2] {
        self.sum_from(start).checksum()
    }

    /// What is left to do: only what the output [accepts](crate::Output::accepts).
    #[inline(always)]
    #[must_use]
    pub fn offload(&self) -> Option<&'b Offload> {
        self.entry.more.offload().and_then(|place| self.batch.parts.offloads.get(place))
    }

    /// Whether all of it is in `head`, and nothing is left to do.
    #[inline(always)]
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.entry.more == More::NOTHING
    }
}

impl<'m> Batch<'m> {
    /// All of them, to deliver them.
    #[inline(always)]
    pub(crate) fn frames(&self) -> AllFrames<'_, 'm> {
        AllFrames::of(self)
    }

    /// Frame `index`, to deliver it.
    #[inline(always)]
    #[must_use]
    pub fn frame(&self, index: usize) -> Frame<'_, 'm> {
        Frame { batch: self, entry: &self.parts.entries[index], head: &self.parts.heads[index] }
    }
}
