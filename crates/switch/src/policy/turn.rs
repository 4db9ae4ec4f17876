//! What a port may send now, by its limit, before, in and after a pass.

use super::{Cause, Cost, Excess, Grant, Policy};
use crate::batch::Batch;
use crate::counters::DropReason;
use crate::switch::{Member, Switch};
use crate::time::Time;
use crate::watch::Watch;

/// What has waited for so long, in nanoseconds, is near no more.
const FAR: u64 = 1_000_000;

/// What a pass may take from a port.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    /// As much as fits into a batch.
    Free,
    /// This much.
    Limited(Grant),
    /// Nothing, as this was used up: what there is is dropped.
    Drop(Cause),
    /// Nothing, as this was used up: what there is waits until this time.
    Wait(u64, Cause),
}

impl Policy {
    /// What may be taken from the port now.
    #[inline]
    pub(crate) fn turn(&self, now: &Time) -> Turn {
        let Some(limit) = &self.ingress else { return Turn::Free };
        let mut grant = limit.open(now.nanoseconds);
        if !grant.is_nothing() {
            if limit.excess == Excess::Wait {
                grant.waited = limit.waiting().end(now.nanoseconds);
            }
            return Turn::Limited(grant);
        }
        limit.settle(&grant, 0, 0);
        match limit.excess {
            Excess::Drop => Turn::Drop(grant.cause(0)),
            Excess::Wait => Turn::Wait(limit.resume_at(now.nanoseconds), grant.cause(0)),
        }
    }

    /// There are frames that wait until this time.
    pub(crate) fn begin_wait(&self, until: u64, cause: Cause, now: &Time) {
        if let Some(limit) = &self.ingress {
            limit.waiting().begin(now.nanoseconds, until, cause.is_shared());
        }
    }

    /// Has the batch end near what was granted: where the rest waits, or what is in it may have to wait for a receiver, never beyond
    /// it by more than a frame.
    pub(crate) fn bound(&self, batch: &mut Batch<'_>, grant: &Grant, may_hold: bool) {
        let Some(limit) = &self.ingress else { return };
        if limit.excess == Excess::Drop && !may_hold {
            return batch.bound(u64::MAX, limit.frames_in(grant));
        }
        batch.bound(grant.bytes, grant.frames);
        if grant.waited >= FAR {
            batch.note_waited();
        }
    }

    /// Takes the frames beyond what was granted out of the batch. What was rejected before counts as well: otherwise a flood of such
    /// frames would cost as much as one that is forwarded, whatever the limit.
    pub(crate) fn keep_to(&self, turn: &Turn, batch: &mut Batch<'_>, from: &Member, watch: Option<&Watch>) {
        let Turn::Limited(grant) = turn else { return };
        let (kept, cost) = measure(batch, grant);
        if kept < batch.len() {
            self.refuse(grant.cause(cost.frames), (batch.len() - kept) as u64, from);
            watch.inspect(|watch| watch.show_refused(batch, kept));
            batch.truncate(kept);
        }
    }

    /// After forwarding, once for every turn: what is left of the batch goes out, as far as it is not a storm. Whether what was
    /// granted is used up.
    pub(crate) fn charge(&self, batch: &mut Batch<'_>, turn: &Turn, switch: &Switch, now: &Time) -> bool {
        let mut is_used_up = false;
        if let Turn::Limited(grant) = turn {
            let cost = batch.cost();
            self.settle(grant, cost);
            is_used_up = !grant.covers(cost);
            if grant.waited > 0 && cost.frames > 0 {
                self.count_wait(grant.waited);
            }
        }
        if let Some(storm) = &self.storm {
            storm.limit(batch, switch.spreads().direct_groups(), now);
        }
        is_used_up
    }

    fn settle(&self, grant: &Grant, cost: Cost) {
        if let Some(limit) = &self.ingress {
            limit.settle(grant, cost.bytes, cost.frames);
        }
    }

    #[cold]
    fn count_wait(&self, time: u64) {
        if let Some(limit) = &self.ingress {
            limit.count_wait(time, limit.waiting().is_shared());
        }
    }

    /// Counts frames that `from` may not send.
    pub(crate) fn refuse(&self, cause: Cause, frames: u64, from: &Member) {
        from.port.counters().drop_in(DropReason::RateLimited, frames);
        if let Some(limit) = &self.ingress {
            limit.refuse(cause, frames);
        }
    }

    /// What is to come of frames that are still there after what was granted is used up.
    pub(crate) fn turn_after(&self, now: &Time) -> Turn {
        match self.turn(now) {
            Turn::Limited(grant) => {
                self.settle(&grant, Cost::default());
                Turn::Free
            }
            other => other,
        }
    }
}

/// The first frames of the batch that `most` covers: up to which, and what they take.
fn measure(batch: &Batch<'_>, most: &Grant) -> (usize, Cost) {
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
