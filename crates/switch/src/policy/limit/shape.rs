//! Shaping: which frames of a source pass its limit, which wait, and which are dropped.
//!
//! TCP sends as fast as its limit allows if its frames wait a little, and if it loses some frames when too many wait. So the
//! frames beyond the limit stay in the source's ring, up to a *depth*. The oldest of more are dropped: their sender learns of
//! the loss before the frames behind them arrive, and these do not wait for long.
//!
//! Short frames are requests and acknowledgements. They pass on credit, so that they do not wait until a long frame in front of
//! them is paid: a segment of 64 KiB takes half a second at 1 Mbit/s.

use super::limiter::Grant;
use crate::batch::{Batch, Destination};
use crate::frame::{Cost, DropReason, WaitingPlace};

/// Longest frame that passes on credit, in bytes.
pub(crate) const SHORT: usize = 256;

/// What waits is looked at at least every so many nanoseconds.
pub(super) const LOOK_NS: u64 = 5_000_000;

/// What becomes of the frames of a batch.
pub(super) struct Shaped {
    /// The frames from this index on wait.
    pub(super) end: usize,
    /// Number of frames that pass.
    pub(super) passed: u64,
    /// Bytes by which the last frame of the grant goes beyond it.
    pub(super) overshoot: u64,
}

/// Lets the frames pass that `grant` covers, and short ones as far as `credit` goes, in bytes. Rejects the oldest of the others, so
/// that the rest, without its last frame, is within `depth`.
pub(super) fn shape(batch: &mut Batch<'_>, grant: &Grant, credit: u64, (depth, place): (Cost, WaitingPlace)) -> Shaped {
    let (mut index, mut passed) = (0, Cost::default());
    let (on_credit, mut overshoot) = (grant.bytes.saturating_add(credit), 0);
    let mut passes = |batch: &Batch<'_>, index: usize, passed: &mut Cost, is_granted: bool| {
        let most = on_credit.saturating_add(overshoot);
        let is_short = batch.frame_len(index) <= SHORT && passed.bytes < most && passed.frames < grant.frames;
        let is_covered = grant.covers(*passed);
        let passes = is_short || is_granted && is_covered;
        if passes {
            *passed += batch.cost_of(index);
            if is_covered {
                overshoot = passed.bytes.saturating_sub(grant.bytes);
            }
        }
        passes
    };
    while index < batch.len() && passes(batch, index, &mut passed, true) {
        index += 1;
    }
    let (count, mut dropped) = (index as u64, 0);
    let end = oldest_to_wait(batch, index, depth, place, None);
    for index in index..end {
        // What was admitted before is dropped now. What was rejected before counts as well, as far as the limit goes: otherwise a
        // flood of such frames would be charged without end.
        if !passes(batch, index, &mut passed, false) {
            batch.reject(index, DropReason::RateLimited);
            dropped += 1;
        }
    }
    Shaped { end, passed: count + (end - index) as u64 - dropped, overshoot }
}

/// Cost of the frames that were not rejected by [`shape`], and the number of those that were.
pub(super) fn cost(batch: &Batch<'_>) -> (Cost, u64) {
    let (mut cost, mut dropped) = (Cost::default(), 0);
    for index in 0..batch.len() {
        if batch.is_rejected(index) && batch.destination(index) == DROPPED {
            dropped += 1;
        } else {
            cost += batch.cost_of(index);
        }
    }
    (cost, dropped)
}

const DROPPED: Destination = Destination::Drop(DropReason::RateLimited);

/// Most frames for other receivers behind those that wait. With more, the receiver's limit would be one of the others as well.
const MOST_OTHERS: usize = 16;

/// Index of the oldest frame from `first` on that may wait at this place, or the length of the batch: a frame to this destination, or any if
/// there is none. If the source may have more frames, and those that wait are a good part of the depth, at most half of the batch's may.
pub(crate) fn oldest_to_wait(
    batch: &Batch<'_>,
    first: usize,
    depth: Cost,
    place: WaitingPlace,
    to: Option<Destination>,
) -> usize {
    let depth = depth.at(place);
    let is_its = |index: usize| to.is_none_or(|to| batch.destination(index) == to);
    let (mut oldest, mut sum, mut others) = (batch.len(), Cost::default(), 0);
    for index in (first..batch.len()).rev() {
        // What a client keeps waits there, unless it is in front of frames for others.
        let is_bounded = place != WaitingPlace::Connection || others > 0;
        let is_full = sum.bytes >= depth.bytes || sum.frames >= depth.frames;
        if is_bounded && is_full || others > MOST_OTHERS {
            break;
        }
        if is_its(index) {
            oldest = index;
            sum += batch.cost_of(index);
        } else {
            others += 1;
        }
    }
    let is_bounded = place != WaitingPlace::Connection || others > 0;
    let has_more = is_bounded && (batch.room() == 0 || batch.may_be_more());
    let is_much = sum.bytes >= depth.bytes / 4 || sum.frames >= depth.frames / 4;
    if !(has_more && is_much) {
        return oldest;
    }
    let half = oldest.max(first + (batch.len() - first) / 2);
    (half..batch.len()).find(|&index| is_its(index)).unwrap_or(batch.len())
}
