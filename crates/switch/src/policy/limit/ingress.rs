//! The turn of a pass at the limit of its source: one stage, from before frames are collected until it is known what becomes of
//! those that are left.

use super::limiter::{Excess, Grant, Limit};
use super::tally::Cause;
use crate::batch::Batch;
use crate::frame::Cost;

/// What has waited for so long, in nanoseconds, is near no more.
const FAR: u64 = 1_000_000;

/// A turn, while it lasts: what the limit granted to one pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<'l> {
    limit: &'l Limit,
    grant: Grant,
}

/// Frames beyond the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond<'l> {
    limit: &'l Limit,
    cause: Cause,
    /// They wait until this time (nanoseconds); none: they are dropped.
    pub(crate) until: Option<u64>,
}

impl<'l> Turn<'l> {
    /// Begins a turn at `now` (nanoseconds).
    ///
    /// # Errors
    /// Nothing may pass: all frames of the source are beyond the limit.
    #[inline]
    pub(crate) fn begin(limit: &'l Limit, now: u64) -> Result<Turn<'l>, Beyond<'l>> {
        let mut grant = limit.open(now);
        if !grant.is_nothing() {
            if limit.excess == Excess::Wait {
                grant.waited = limit.waiting().end(now);
            }
            return Ok(Turn { limit, grant });
        }
        limit.settle(&grant, 0, 0);
        let until = match limit.excess {
            Excess::Drop => None,
            Excess::Wait => Some(limit.resume_at(now)),
        };
        Err(Beyond { limit, cause: grant.cause(0), until })
    }

    /// Has the batch end near what was granted: where the rest waits, or what is in the batch may have to wait for a receiver, never
    /// beyond it by more than a frame.
    pub(crate) fn bound(&self, batch: &mut Batch<'_>, may_hold: bool) {
        if self.limit.excess == Excess::Drop && !may_hold {
            return batch.bound(u64::MAX, self.limit.frames_in(&self.grant));
        }
        batch.bound(self.grant.bytes, self.grant.frames);
        if self.grant.waited >= FAR {
            batch.note_waited();
        }
    }

    /// Counts the frames of the batch that are beyond what was granted, and returns the number of the first of them, which is to be
    /// taken out with all behind it. Frames that were rejected before count as well: otherwise a flood of such frames would cost as
    /// much as one that is forwarded, whatever the limit.
    pub(crate) fn cut(&self, batch: &Batch<'_>) -> Option<usize> {
        let (kept, cost) = covered(batch, &self.grant);
        let refused = batch.len() - kept;
        (refused > 0).then(|| {
            self.limit.refuse(self.grant.cause(cost.frames), refused as u64);
            kept
        })
    }

    /// Charges what goes on of the batch, once for every turn. Returns true if what was granted is used up.
    pub(crate) fn charge(&self, cost: Cost) -> bool {
        self.limit.settle(&self.grant, cost.bytes, cost.frames);
        if self.grant.waited > 0 && cost.frames > 0 {
            self.limit.count_wait(self.grant.waited, self.limit.waiting().is_shared());
        }
        !self.grant.covers(cost)
    }

    /// Ends a turn whose grant is used up. Returns what becomes of the frames that are left; none: they have another turn.
    pub(crate) fn end(&self, now: u64) -> Option<Beyond<'l>> {
        match Turn::begin(self.limit, now) {
            Ok(next) => {
                self.limit.settle(&next.grant, 0, 0);
                None
            }
            Err(beyond) => Some(beyond),
        }
    }
}

impl Beyond<'_> {
    /// Counts frames that were dropped.
    pub(crate) fn refuse(&self, frames: u64) {
        self.limit.refuse(self.cause, frames);
    }

    /// Notes that there are frames, which wait from `now` until the given time.
    pub(crate) fn begin_wait(&self, now: u64, until: u64) {
        self.limit.waiting().begin(now, until, self.cause.is_shared());
    }
}

/// How many frames of the batch `most` covers, and what these take.
fn covered(batch: &Batch<'_>, most: &Grant) -> (usize, Cost) {
    let all = batch.cost();
    if all.bytes <= most.bytes && all.frames <= most.frames {
        return (batch.len(), all);
    }
    let mut cost = Cost::default();
    for index in 0..batch.len() {
        if !most.covers(cost) {
            return (index, cost);
        }
        cost += batch.cost_of(index);
    }
    (batch.len(), cost)
}
