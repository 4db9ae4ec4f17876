//! The record of a frame in a batch, besides its head.

use super::destination::{Destination, Packed};
use crate::frame::DropReason;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) len: u32,
    /// Index of the first view of its rest, if it has any.
    pub(super) first_rest: u32,
    pub(super) destination: Packed,
    pub(super) extras: Extras,
}

/// What most frames do not have, in one word: index of the offload plus one (16 bits, lowest), views behind the head
/// (8), bytes of the head (8). Zero: the frame is all in its head and has no offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extras(u32);

impl Extras {
    pub(super) const NOTHING: Extras = Extras(0);

    pub(super) fn new(head_len: usize, rests: usize, offload: Option<usize>) -> Extras {
        let offload = offload.map_or(0, |place| place as u32 + 1);
        match (rests, offload) {
            (0, 0) => Extras::NOTHING,
            _ => Extras(offload | (rests as u32) << 16 | (head_len as u32) << 24),
        }
    }

    #[inline(always)]
    pub(super) fn head_len(self, len: u32) -> usize {
        if self == Extras::NOTHING { len as usize } else { (self.0 >> 24) as usize }
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

/// Number of leading rows in which every frame has a head of `least` bytes or more.
#[inline(never)]
pub(super) fn leading_long<const N: usize>(rows: &[[Entry; N]], least: u32) -> usize {
    rows.iter().take_while(|row| are_long(row, least)).count()
}

#[inline(always)]
fn are_long<const N: usize>(row: &[Entry; N], least: u32) -> bool {
    // For frames of equal length the conjunction is that length.
    let (mut extras, mut bits) = (0, u32::MAX);
    for entry in row {
        extras |= entry.extras.0;
        bits &= entry.len;
    }
    extras == 0 && bits >= least || is_each_long(row, least)
}

#[inline(never)]
fn is_each_long(row: &[Entry], least: u32) -> bool {
    row.iter().all(|entry| entry.extras.head_len(entry.len) >= least as usize)
}

pub(super) const EMPTY: Entry = Entry {
    len: 0,
    first_rest: 0,
    destination: Packed::new(Destination::Drop(DropReason::NoDestination)),
    extras: Extras::NOTHING,
};
