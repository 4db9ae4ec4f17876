//! The stage of a pass at the ingress limit of its source: from before frames are collected until the remaining frames
//! are dropped or wait.

use super::limiter::{Excess, Grant, Limit};
use super::tally::Cause;
use crate::batch::Batch;
use crate::frame::Cost;

/// After this many nanoseconds of waiting, a frame is no longer in the cache.
const FAR: u64 = 1_000_000;

/// A pass's turn at the ingress limit: the bytes and frames that the limit grants to the pass. Without a limit,
/// everything is granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<'l>(Option<Granted<'l>>);

#[derive(Clone, Copy, Debug)]
struct Granted<'l> {
    limit: &'l Limit,
    grant: Grant,
}

/// The outcome for frames beyond the limit: they are dropped or wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverLimit<'l> {
    limit: &'l Limit,
    cause: Cause,
    /// Time until which the frames wait, in nanoseconds. `None`: they are dropped.
    pub(crate) until: Option<u64>,
}

impl<'l> Turn<'l> {
    /// Returns a turn without a limit.
    #[inline(always)]
    pub(crate) fn without_limit() -> Turn<'l> {
        Turn(None)
    }

    /// Begins a turn at the time `now`, in nanoseconds, if the source has a limit.
    ///
    /// # Errors
    /// The limit grants nothing: all frames of the source are beyond it.
    #[inline(always)]
    pub(crate) fn begin(&mut self, limit: Option<&'l Limit>, now: u64) -> Result<(), OverLimit<'l>> {
        if let Some(limit) = limit {
            self.0 = Some(Granted::begin(limit, now)?);
        }
        Ok(())
    }

    /// Ends the batch near the grant. If frames beyond the limit wait, or if frames of the batch may have to wait for a
    /// receiver, the batch goes beyond the grant by one frame at most.
    #[inline(always)]
    pub(crate) fn bound(&self, batch: &mut Batch<'_>, may_hold: bool) {
        if let Some(granted) = &self.0 {
            granted.bound(batch, may_hold);
        }
    }

    /// Counts the frames of the batch beyond the grant. Returns the index of the first, from which the caller truncates
    /// the batch. Frames that were rejected before count as well: otherwise the limit would not bound the cost of a
    /// flood of such frames.
    #[inline(always)]
    pub(crate) fn cut(&self, batch: &Batch<'_>) -> Option<usize> {
        self.0.as_ref()?.cut(batch)
    }

    /// Charges the frames that stay in the batch. Must be called once for every turn. Returns true if the grant is used
    /// up.
    #[inline(always)]
    pub(crate) fn charge(&self, batch: &Batch<'_>) -> bool {
        self.0.as_ref().is_some_and(|granted| granted.charge(batch.cost()))
    }

    /// Ends a turn whose grant is used up. Returns `None` if the remaining frames get another turn.
    #[inline(always)]
    pub(crate) fn end(&self, now: u64) -> Option<OverLimit<'l>> {
        self.0.as_ref()?.end(now)
    }
}

impl<'l> Granted<'l> {
    #[inline]
    fn begin(limit: &'l Limit, now: u64) -> Result<Granted<'l>, OverLimit<'l>> {
        let mut grant = limit.open(now);
        if !grant.is_nothing() {
            if limit.excess == Excess::Wait {
                grant.waited = limit.waiting().end(now);
            }
            return Ok(Granted { limit, grant });
        }
        limit.settle(&grant, 0, 0);
        let until = match limit.excess {
            Excess::Drop => None,
            Excess::Wait => Some(limit.resume_at(now)),
        };
        Err(OverLimit { limit, cause: grant.cause(0), until })
    }

    fn bound(&self, batch: &mut Batch<'_>, may_hold: bool) {
        if self.limit.excess == Excess::Drop && !may_hold {
            return batch.bound(u64::MAX, self.limit.frames_in(&self.grant));
        }
        batch.bound(self.grant.bytes, self.grant.frames);
        if self.grant.waited >= FAR {
            batch.note_waited();
        }
    }

    fn cut(&self, batch: &Batch<'_>) -> Option<usize> {
        let (kept, cost) = covered(batch, &self.grant);
        let refused = batch.len() - kept;
        (refused > 0).then(|| {
            self.limit.refuse(self.grant.cause(cost.frames), refused as u64);
            kept
        })
    }

    fn charge(&self, cost: Cost) -> bool {
        self.limit.settle(&self.grant, cost.bytes, cost.frames);
        if self.grant.waited > 0 && cost.frames > 0 {
            self.limit.count_wait(self.grant.waited, self.limit.waiting().is_shared());
        }
        !self.grant.covers(cost)
    }

    fn end(&self, now: u64) -> Option<OverLimit<'l>> {
        match Granted::begin(self.limit, now) {
            Ok(next) => {
                self.limit.settle(&next.grant, 0, 0);
                None
            }
            Err(beyond) => Some(beyond),
        }
    }
}

impl OverLimit<'_> {
    /// Counts frames that were dropped because of the limit.
    pub(crate) fn refuse(&self, frames: u64) {
        self.limit.refuse(self.cause, frames);
    }

    /// Notes that frames wait from `now` until the given time.
    pub(crate) fn begin_wait(&self, now: u64, until: u64) {
        self.limit.waiting().begin(now, until, self.cause.is_shared());
    }
}

/// Number of leading frames of the batch that `most` covers, and their cost.
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
