//! What a batch keeps of each frame besides its head.

use super::destination::{Destination, Packed};
use crate::frame::DropReason;

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
