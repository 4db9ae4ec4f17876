//! The frames of a batch that go to one destination.

use super::frame::{AllFrames, Frame, InTurn};
use super::storage::Batch;
use crate::frame::Class;

/// The frames for one destination, in the order in which they came.
#[derive(Clone, Debug)]
pub struct Frames<'b, 'm> {
    all: AllFrames<'b, 'm>,
    /// Ascending.
    order: std::slice::Iter<'b, u16>,
}

impl<'b, 'm> Frames<'b, 'm> {
    /// The frames of a batch that `order` names, in that order.
    pub(crate) fn of(batch: &'b Batch<'m>, order: &'b [u16]) -> Self {
        Self { all: batch.frames(), order: order.iter() }
    }

    /// The same frames, if they are all of the batch from its first on: taking them then needs no list.
    #[inline(always)]
    #[must_use]
    pub fn in_turn(&self) -> Option<InTurn<'b, 'm>> {
        let order = self.order.as_slice();
        order.last().filter(|&&last| usize::from(last) + 1 == order.len()).map(|_| self.all.in_turn(order.len()))
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

    /// The next frame, as frames that are only this one.
    pub(crate) fn next_alone(&mut self) -> Option<Self> {
        let (alone, others) = self.order.as_slice().split_at_checked(1)?;
        self.order = others.iter();
        Some(Self { all: self.all, order: alone.iter() })
    }

    /// The first so many of them.
    pub(crate) fn first(&self, count: usize) -> Self {
        Self { all: self.all, order: self.order.as_slice()[..count].iter() }
    }

    /// The batch that they are of.
    pub(crate) fn all(&self) -> AllFrames<'b, 'm> {
        self.all
    }

    /// Their numbers in the batch.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u16> + use<'b> {
        self.order.as_slice().iter().copied()
    }

    /// Each with its VLAN.
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
