//! The frames of a batch that go to one destination.

use super::destination::Destination;
use super::frame::{AllFrames, Contiguous, Frame};
use super::storage::Batch;
use crate::frame::{Accepts, Class, Cost};

/// The frames for one destination, in the order in which they came.
#[derive(Clone, Debug)]
pub struct Frames<'b, 'm> {
    all: AllFrames<'b, 'm>,
    /// Ascending.
    order: std::slice::Iter<'b, u16>,
}

impl<'b, 'm> Frames<'b, 'm> {
    /// The frames of a batch with these indices, in this order.
    #[inline(always)]
    pub(crate) fn of(batch: &'b Batch<'m>, order: &'b [u16]) -> Self {
        Self { all: batch.frames(), order: order.iter() }
    }

    /// Returns the same frames without a list of indices, if they are the first frames of the batch without a gap.
    #[inline(always)]
    #[must_use]
    pub fn as_contiguous(&self) -> Option<Contiguous<'b, 'm>> {
        let order = self.order.as_slice();
        order.last().filter(|&&last| usize::from(last) + 1 == order.len()).map(|_| self.all.as_contiguous(order.len()))
    }

    /// The frame, if there is only one.
    #[inline(always)]
    #[must_use]
    pub fn single(&self) -> Option<Frame<'b, 'm>> {
        match self.order.as_slice() {
            [index] => Some(self.all.get(usize::from(*index))),
            _ => None,
        }
    }

    /// Takes the next frame, as a list of one.
    pub(crate) fn next_alone(&mut self) -> Option<Self> {
        let (alone, others) = self.order.as_slice().split_at_checked(1)?;
        self.order = others.iter();
        Some(Self { all: self.all, order: alone.iter() })
    }

    /// The first `count` frames.
    #[inline]
    pub(crate) fn first(&self, count: usize) -> Self {
        Self { all: self.all, order: self.order.as_slice()[..count].iter() }
    }

    /// Other frames of the same batch.
    pub(crate) fn named(&self, order: &'b [u16]) -> Self {
        Self { all: self.all, order: order.iter() }
    }

    /// What each takes of a limit.
    pub(crate) fn costs(&self) -> impl ExactSizeIterator<Item = Cost> + Clone + use<'b, 'm> {
        let batch = self.all.batch();
        self.order.as_slice().iter().map(|&index| batch.cost_of(index.into()))
    }

    /// How many frames the batch has, and what they take of a limit together; `None` if these are not all of them.
    pub(crate) fn cost_of_batch(&self) -> Option<(usize, Cost)> {
        let batch = self.all.batch();
        (self.order.len() == batch.len()).then(|| (batch.len(), batch.cost()))
    }

    /// Where each goes.
    pub(crate) fn destinations(
        &self,
    ) -> impl DoubleEndedIterator<Item = Destination> + ExactSizeIterator + use<'b, 'm> {
        let batch = self.all.batch();
        self.order.as_slice().iter().map(|&index| batch.destination(index.into()))
    }

    /// Returns true if no frame of their batch has an offload.
    #[inline(always)]
    pub(crate) fn are_plain(&self) -> bool {
        self.all.batch().needs() == Accepts::NOTHING
    }

    /// Returns true if most frames of their sender wait for a limit.
    pub(crate) fn has_waited(&self) -> bool {
        self.all.batch().parts.source_waits
    }

    /// Returns true if all frames of their batch are in their heads.
    #[inline(always)]
    pub(crate) fn are_short(&self) -> bool {
        self.all.batch().rests.is_empty()
    }

    /// Returns true if the frames need no other offload than these. An output whose client may change what it accepts asks this
    /// once more when frames are delivered.
    #[inline(always)]
    #[must_use]
    pub fn need_only(&self, accepts: Accepts) -> bool {
        self.are_plain() || self.each_needs_only(accepts)
    }

    #[inline(never)]
    fn each_needs_only(&self, accepts: Accepts) -> bool {
        let covers = |frame: Frame<'_, '_>| frame.offload().is_none_or(|offload| accepts.covers(offload));
        accepts.contains(self.all.batch().needs()) || Iterator::all(&mut self.clone(), covers)
    }

    /// All frames of the batch.
    pub(crate) fn all(&self) -> AllFrames<'b, 'm> {
        self.all
    }

    /// The indices of the frames in the batch.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u16> + use<'b> {
        self.order.as_slice().iter().copied()
    }

    /// Each frame with its class.
    pub(crate) fn classed(self) -> impl Iterator<Item = (Frame<'b, 'm>, Class)> {
        let all = self.all;
        self.order.map(move |&index| (all.get(index.into()), all.class(index.into())))
    }
}

impl<'b, 'm> Iterator for Frames<'b, 'm> {
    type Item = Frame<'b, 'm>;

    #[inline(always)]
    fn next(&mut self) -> Option<Frame<'b, 'm>> {
        self.order.next().map(|&index| self.all.get(usize::from(index)))
    }

    #[inline(always)]
    fn nth(&mut self, n: usize) -> Option<Frame<'b, 'm>> {
        self.order.nth(n).map(|&index| self.all.get(usize::from(index)))
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.order.size_hint()
    }
}

impl ExactSizeIterator for Frames<'_, '_> {}
