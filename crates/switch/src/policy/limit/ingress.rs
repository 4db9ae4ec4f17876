//! The stage of a pass at the ingress limit of its source: from before frames are collected until the remaining frames
//! are dropped or wait.

use super::limiter::{Excess, Grant, Limit};
use super::shape;
use super::tally::Cause;
use crate::batch::Batch;
use crate::frame::{Cost, WaitingPlace};
use crate::port::{Input, InputCapabilities};

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
    /// With [`Excess::Shape`]: how much may wait, and where.
    depth: Option<(Cost, WaitingPlace)>,
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

    /// Begins a turn at the time `now`, in nanoseconds, if the source has a limit. A limit that shapes is one that drops
    /// if frames cannot stay in their `input`.
    ///
    /// # Errors
    /// The limit grants nothing, and does not shape: all frames of the source are beyond it.
    #[inline(always)]
    pub(crate) fn begin(&mut self, limit: Option<&'l Limit>, input: &dyn Input, now: u64) -> Result<(), OverLimit<'l>> {
        if let Some(limit) = limit {
            self.0 = Some(match limit.excess {
                Excess::Shape => Granted::shape(limit, input.capabilities(), now)?,
                Excess::Drop | Excess::Wait => Granted::begin(limit, now)?,
            });
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

    /// With a limit that shapes: decides which frames pass. Rejects the oldest of the others if too many wait. Returns
    /// where the batch ends and until when the frames behind wait, if any wait.
    #[inline(always)]
    pub(crate) fn shape(&self, batch: &mut Batch<'_>, now: u64) -> Option<(usize, u64)> {
        let granted = self.0.as_ref()?;
        granted.depth.and_then(|depth| granted.wait(batch, depth, now))
    }

    /// Charges the frames that stay in the batch, and counts those that the limit rejected. Must be called once for every turn. Returns true if the grant is used
    /// up.
    #[inline(always)]
    pub(crate) fn charge(&self, batch: &Batch<'_>) -> bool {
        self.0.as_ref().is_some_and(|granted| granted.charge(batch))
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
            return Ok(Granted { limit, grant, depth: None });
        }
        limit.settle(&grant, 0, 0);
        let until = (limit.excess == Excess::Wait).then(|| limit.resume_at(now));
        Err(OverLimit { limit, cause: grant.cause(0), until })
    }

    /// Begins a turn that looks at all frames of the source, also at those that have to wait.
    #[inline(never)]
    fn shape(limit: &'l Limit, input: InputCapabilities, now: u64) -> Result<Granted<'l>, OverLimit<'l>> {
        if !input.rewind {
            return Granted::begin(limit, now);
        }
        Ok(Granted { limit, grant: limit.open(now), depth: Some((limit.depth(), input.waiting)) })
    }

    #[inline(never)]
    fn wait(&self, batch: &mut Batch<'_>, depth: (Cost, WaitingPlace), now: u64) -> Option<(usize, u64)> {
        if self.grant.bytes > 0 {
            self.limit.note_overshoot(0);
        }
        let shaped = shape::shape(batch, &self.grant, self.limit.credit(depth.0), depth);
        if self.grant.bytes > 0 {
            self.limit.note_overshoot(shaped.overshoot);
        }
        let waited = self.limit.waiting().end(now);
        if waited > 0 && shaped.passed > 0 {
            self.limit.count_wait(waited, self.limit.waiting().is_shared());
        }
        if shaped.end == batch.len() {
            return None;
        }
        let until = self.limit.resume_at(now).min(now + shape::LOOK_NS);
        self.limit.waiting().begin(now, until, self.grant.cause(shaped.passed).is_shared());
        Some((shaped.end, until))
    }

    fn bound(&self, batch: &mut Batch<'_>, may_hold: bool) {
        if self.depth.is_some() {
            return;
        }
        if self.limit.excess != Excess::Wait && !may_hold {
            return batch.bound(u64::MAX, self.limit.frames_in(&self.grant));
        }
        batch.bound(self.grant.bytes, self.grant.frames);
        if self.grant.waited >= FAR {
            batch.note_waited();
        }
    }

    fn cut(&self, batch: &Batch<'_>) -> Option<usize> {
        if self.depth.is_some() && batch.refused_frames() == 0 {
            return None;
        }
        let (kept, cost) = covered(batch, &self.grant);
        let refused = batch.len() - kept;
        (refused > 0).then(|| {
            self.limit.refuse(self.grant.cause(cost.frames), refused as u64);
            kept
        })
    }

    fn charge(&self, batch: &Batch<'_>) -> bool {
        let cost = match self.depth {
            None => batch.cost(),
            Some(_) => self.count_shaped(batch),
        };
        self.limit.settle(&self.grant, cost.bytes, cost.frames);
        if self.grant.waited > 0 && cost.frames > 0 {
            self.limit.count_wait(self.grant.waited, self.limit.waiting().is_shared());
        }
        self.depth.is_none() && !self.grant.covers(cost)
    }

    /// Counts the frames that were rejected, once each: of those that stay in their ring, a later pass decides anew. Returns the cost of the
    /// others.
    #[cold]
    fn count_shaped(&self, batch: &Batch<'_>) -> Cost {
        let (cost, dropped) = shape::cost(batch);
        if dropped > 0 {
            self.limit.refuse(self.grant.cause(cost.frames), dropped);
        }
        cost
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
