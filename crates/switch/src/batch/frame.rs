//! One frame of a batch.

use std::iter::Zip;
use std::slice;

use ringway_memory::{Head, View};

use super::Batch;
use super::place::{Destination, Packed};
use crate::counters::DropReason;
use crate::offload::{self, Offload};
use crate::policy::Class;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) len: u32,
    /// The first of its rests, if it has any.
    pub(super) first_rest: u32,
    pub(super) destination: Packed,
    pub(super) more: More,
}

/// What most frames do not have, in one word: from the lowest bits up the place of the offload and one, pieces behind the
/// head, and bytes of the head. Zero: the head is all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct More(u32);

impl More {
    pub(super) const NOTHING: More = More(0);

    pub(super) fn new(head_len: usize, rests: usize, offload: Option<usize>) -> More {
        let offload = offload.map_or(0, |place| place as u32 + 1);
        match (rests, offload) {
            (0, 0) => More::NOTHING,
            _ => More(offload | (rests as u32) << 16 | (head_len as u32) << 24),
        }
    }

    #[inline(always)]
    pub(super) fn head_len(self, len: u32) -> usize {
        if self == More::NOTHING { len as usize } else { (self.0 >> 24) as usize }
    }

    #[inline(always)]
    pub(super) fn rests(self) -> usize {
        (self.0 >> 16 & 0xff) as usize
    }

    #[inline(always)]
    pub(super) fn offload(self) -> Option<usize> {
        (self.0 & 0xffff).checked_sub(1).map(|place| place as usize)
    }
}

/// How many rows of frames have heads of `least` bytes or more, from the first row on.
#[inline(never)]
pub(super) fn leading_long<const N: usize>(rows: &[[Entry; N]], least: u32) -> usize {
    rows.iter().take_while(|row| are_long(row, least)).count()
}

#[inline(always)]
fn are_long<const N: usize>(row: &[Entry; N], least: u32) -> bool {
    // Of frames with one length the bits of all are that.
    let (mut more, mut bits) = (0, u32::MAX);
    for entry in row {
        more |= entry.more.0;
        bits &= entry.len;
    }
    more == 0 && bits >= least || is_each_long(row, least)
}

#[inline(never)]
fn is_each_long(row: &[Entry], least: u32) -> bool {
    row.iter().all(|entry| entry.more.head_len(entry.len) >= least as usize)
}

pub(super) const EMPTY: Entry = Entry {
    len: 0,
    first_rest: 0,
    destination: Packed::new(Destination::Drop(DropReason::NoDestination)),
    more: More::NOTHING,
};

/// All frames of a batch, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllFrames<'b, 'm> {
    batch: &'b Batch<'m>,
    entries: &'b [Entry],
    heads: &'b [Head],
}

impl<'b, 'm> AllFrames<'b, 'm> {
    #[inline(always)]
    pub(super) fn of(batch: &'b Batch<'m>) -> Self {
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
    pub(super) batch: &'b Batch<'m>,
    pub(super) entry: &'b Entry,
    pub(super) head: &'b Head,
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

    /// The internet checksum of the bytes from `start` on, never zero (RFC 768).
    #[must_use]
    pub fn checksum_from(&self, start: usize) -> [u8; 2] {
        offload::sum_from(self, start).checksum()
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
