//! What a port may send now, by its limit, before, in and after a pass.

use super::{Cause, Excess, Grant, Policy};
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
    /// Nothing: what there is waits until this time.
    Wait(u64),
}

impl Policy {
    /// What may be taken from the port now.
    #[inline]
    pub(crate) fn turn(&self, now: &Time) -> Turn {
        let Some(limit) = &self.ingress else { return Turn::Free };
        let mut grant = limit.open(now.nanoseconds);
        if !grant.is_nothing() {
            if limit.excess == Excess::Wait {
                grant.waited = limit.end_wait(now.nanoseconds);
            }
            return Turn::Limited(grant);
        }
        limit.settle(&grant, 0, 0);
        match limit.excess {
            Excess::Drop => Turn::Drop(grant.cause(0)),
            Excess::Wait => {
                limit.begin_wait(now.nanoseconds);
                let until = limit.resume_at(now.nanoseconds);
                limit.wait(grant.cause(0), until.saturating_sub(now.nanoseconds));
                Turn::Wait(until)
            }
        }
    }

    /// Has the batch end near what was granted: where the rest waits, never beyond it by more than a frame.
    pub(crate) fn bound(&self, batch: &mut Batch<'_>, grant: &Grant) {
        let Some(limit) = &self.ingress else { return };
        match limit.excess {
            Excess::Drop => batch.bound(u64::MAX, limit.frames_in(grant)),
            Excess::Wait => {
                batch.bound(grant.bytes, grant.frames);
                if grant.waited >= FAR {
                    batch.note_waited();
                }
            }
        }
    }

    /// Takes the frames beyond what was granted out of the batch. What was rejected before costs nothing.
    pub(crate) fn keep_to(&self, turn: &Turn, batch: &mut Batch<'_>, from: &Member, watch: Option<&Watch>) {
        let Turn::Limited(grant) = turn else { return };
        let (kept, _, frames) = measure(batch, Some(grant));
        if kept < batch.len() {
            self.refuse(grant.cause(frames), (batch.len() - kept) as u64, from);
            watch.inspect(|watch| watch.show_refused(batch, kept));
            batch.truncate(kept);
        }
    }

    /// After forwarding, once for every turn: what is left of the batch goes out, as far as it is not a storm. Whether what was
    /// granted is used up.
    pub(crate) fn charge(&self, batch: &mut Batch<'_>, turn: &Turn, switch: &Switch, now: &Time) -> bool {
        let mut is_used_up = false;
        if let Turn::Limited(grant) = turn {
            let (_, bytes, frames) = measure(batch, None);
            self.settle(grant, bytes, frames);
            is_used_up = !grant.covers(bytes, frames);
        }
        if let Some(storm) = &self.storm {
            storm.limit(batch, switch.spreads().direct_groups(), now);
        }
        is_used_up
    }

    fn settle(&self, grant: &Grant, bytes: u64, frames: u64) {
        if let Some(limit) = &self.ingress {
            limit.settle(grant, bytes, frames);
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
                self.settle(&grant, 0, 0);
                Turn::Free
            }
            other => other,
        }
    }
}

/// The first frames of the batch that `most` covers: up to which, and their bytes and frames. Those that were rejected do
/// not count.
fn measure(batch: &Batch<'_>, most: Option<&Grant>) -> (usize, u64, u64) {
    let (mut bytes, mut frames) = (batch.bytes(), batch.len() as u64);
    if !batch.has_rejected() && most.is_none_or(|most| bytes <= most.bytes && frames <= most.frames) {
        return (batch.len(), bytes, frames);
    }
    (bytes, frames) = (0, 0);
    for index in 0..batch.len() {
        if batch.is_rejected(index) {
            continue;
        }
        if most.is_some_and(|most| !most.covers(bytes, frames)) {
            return (index, bytes, frames);
        }
        bytes += batch.frame_len(index) as u64;
        frames += 1;
    }
    (batch.len(), bytes, frames)
}
