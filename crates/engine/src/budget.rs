//! What a port costs its poller beyond what it may, and what follows from that.
//!
//! A poller's time is shared by weight: each active port has its batches a round, and a visit to it may take a time that grows
//! with what the visit moved. What a visit takes beyond is *excess*. It is charged to the port that caused it, which then sits
//! out for as long as the others need to get their shares of that time. A port that goes on is *slow*: each further excess
//! costs a pause of its own, twice as long as the one before. Good behaviour takes all of that back, step by step.
//!
//! Two kinds of excess differ in what is known about them. A *stall* came with a page fault in which the thread slept: the kernel
//! kept it waiting for the client's memory, for as long as the client arranges. It is charged at once. The second long one, and
//! a very long one at once, has the port served by a thread of its own (quarantine). *Work* is time that the thread computed:
//! bounded by the limits of a batch, and not always the port's doing, as a hypervisor that takes the processor away looks the
//! same. So work counts only where a good part of a port's visits is too long, and where the excess alone takes more than half
//! of the port's share of the time.
//!
//! Nothing here reads a clock or knows a thread: all times are values, in nanoseconds.

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;

/// What a visit may take, whatever it moves.
const VISIT: u64 = 200 * MICROSECOND;
/// What each frame and each byte may take besides, several times of what they take where memory is far and cold.
const FRAME: u64 = MICROSECOND;
const BYTE: u64 = 2;

/// Two stalls from this on, or one from [`VERY_LONG_STALL`] on, are a matter for quarantine.
const LONG_STALL: u64 = 2 * MILLISECOND;
const VERY_LONG_STALL: u64 = 50 * MILLISECOND;
/// Charges that a port may have without being slow: so many are remembered, and one is forgotten per [`FORGET`].
const CHARGES: u32 = 3;
const FORGET: u64 = SECOND;
/// More are not remembered: the pause is longest then.
const MOST_CHARGES: u32 = CHARGES + 7;
/// The pauses of a slow port: first and longest.
const FIRST_PAUSE: u64 = 10 * MILLISECOND;
const LONGEST_PAUSE: u64 = SECOND;
/// The longest time that a port sits out for others.
const LONGEST_DEBT: u64 = 10 * SECOND;
/// Good behaviour that ends a quarantine; twice as much after each further one, up to so many.
const QUARANTINE: u64 = 10 * SECOND;
const TERMS: u32 = 6;
/// A quarantine is forgotten after so much good behaviour.
const FORGET_TERM: u64 = 600 * SECOND;
/// Work is charged where more than one visit of so many is too long, for as many such visits in a row.
const ONE_OF: u64 = 8;
const IN_A_ROW: u64 = 8;
/// And where it is ahead of one of so many parts of the port's share of the time by so much. More than twice as much is not
/// remembered.
const PART: u64 = 2;
const AHEAD: u64 = 10 * MILLISECOND;

/// What a visit that moved so much may take.
pub(crate) fn allowance(frames: u64, bytes: u64) -> u64 {
    VISIT.saturating_add(frames.saturating_mul(FRAME)).saturating_add(bytes.saturating_mul(BYTE))
}

/// What a poller needs not look into: no visit may take less.
pub(crate) const LEAST_ALLOWANCE: u64 = VISIT;

/// Time beyond the allowance, as far as it was spent for the port: waiting for the processor is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    pub(crate) nanoseconds: u64,
    /// The thread slept in a page fault.
    pub(crate) stalled: bool,
    /// Visits of the port since its last excess.
    pub(crate) visits: u64,
}

/// A port's part of its poller: its weight, and the weights of all ports that have frames, its own included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) weight: u64,
    pub(crate) of: u64,
}

/// What follows from an excess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    GoesOn,
    /// The port is not to be served before this time.
    SetAside(u64),
    /// The port is to be served by a thread of its own kind, and not before this time.
    Quarantine(u64),
}

/// What became of a port's budget, for users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowReading {
    /// The port is slow now.
    pub slow: bool,
    /// It is served by a thread of its own kind.
    pub quarantined: bool,
    /// Times that it became slow.
    pub times: u64,
    /// Visits that were charged, and the time that was charged for them in nanoseconds.
    pub charged_visits: u64,
    /// See `charged_visits`.
    pub charged_ns: u64,
    /// The longest of them.
    pub longest_ns: u64,
}

/// One port's account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    /// Not to be served before.
    until: u64,
    /// Charges that are not forgotten, and since when they are being forgotten.
    charges: u32,
    since: u64,
    /// What visits that were too long add to, and all visits take from.
    work: u64,
    /// Work beyond a part of the port's share of the time, as of then.
    ahead: u64,
    ahead_since: u64,
    /// There was a long stall that is not forgotten.
    stalled_long: bool,
    quarantine: Option<Quarantine>,
    /// Quarantines that are not forgotten, and since when they are being forgotten; not while there is one.
    terms: u32,
    terms_since: u64,
    reading: SlowReading,
}

#[derive(Clone, Copy, Debug)]
struct Quarantine {
    /// Behaved since then.
    since: u64,
    term: u64,
}

impl Budget {
    /// The port cost `excess` at `now`.
    pub(crate) fn charge(&mut self, now: u64, excess: Excess, share: Share) -> Verdict {
        self.forget(now);
        if !excess.stalled {
            let (often, much) = (self.is_often(excess.visits), self.is_much(now, excess.nanoseconds, share));
            if !often || !much {
                return Verdict::GoesOn;
            }
        }
        let (weight, others) = (share.weight.max(1), share.of.saturating_sub(share.weight));
        self.charges = (self.charges + 1).min(MOST_CHARGES);
        self.since = now;
        self.reading.charged_visits += 1;
        self.reading.charged_ns = self.reading.charged_ns.saturating_add(excess.nanoseconds);
        self.reading.longest_ns = self.reading.longest_ns.max(excess.nanoseconds);

        let debt = (u128::from(excess.nanoseconds) * u128::from(others) / u128::from(weight)) as u64;
        let mut pause = debt.min(LONGEST_DEBT);
        if let Some(further) = self.charges.checked_sub(CHARGES) {
            self.become_slow();
            pause = pause.max((FIRST_PAUSE << further).min(LONGEST_PAUSE));
        }
        self.until = self.until.max(now).saturating_add(pause);
        if let Some(quarantine) = &mut self.quarantine {
            quarantine.since = now;
        } else if excess.stalled && self.is_long(excess.nanoseconds) {
            self.become_slow();
            self.quarantine = Some(Quarantine { since: now, term: QUARANTINE << self.terms });
            self.terms = (self.terms + 1).min(TERMS);
            self.reading.quarantined = true;
            return Verdict::Quarantine(self.until);
        }
        Verdict::SetAside(self.until)
    }

    /// Whether a good part of the visits is too long, after one more that was.
    fn is_often(&mut self, visits: u64) -> bool {
        self.work = self.work.saturating_sub(visits) + ONE_OF;
        // No more than that is remembered, so that a port that behaves is rid of it soon.
        let often = self.work > ONE_OF * (IN_A_ROW - 1);
        self.work = self.work.min(ONE_OF * IN_A_ROW);
        often
    }

    /// Whether the work is more than a part of the port's share of the time, after so much more at `now`.
    fn is_much(&mut self, now: u64, nanoseconds: u64, share: Share) -> bool {
        let passed = u128::from(now.saturating_sub(std::mem::replace(&mut self.ahead_since, now)));
        let weight = u128::from(share.weight.max(1));
        let part = passed * weight / (u128::from(share.of).max(weight) * u128::from(PART));
        let ahead = u128::from(self.ahead.saturating_add(nanoseconds)).saturating_sub(part);
        self.ahead = u64::try_from(ahead).unwrap_or(u64::MAX).min(2 * AHEAD);
        self.ahead > AHEAD
    }

    /// Whether a stall is a matter for quarantine.
    fn is_long(&mut self, nanoseconds: u64) -> bool {
        let second = self.stalled_long;
        self.stalled_long |= nanoseconds >= LONG_STALL;
        nanoseconds >= VERY_LONG_STALL || second && nanoseconds >= LONG_STALL
    }

    fn become_slow(&mut self) {
        if !std::mem::replace(&mut self.reading.slow, true) {
            self.reading.times += 1;
        }
    }

    fn forget(&mut self, now: u64) {
        let steps = now.saturating_sub(self.since) / FORGET;
        self.charges = self.charges.saturating_sub(u32::try_from(steps).unwrap_or(u32::MAX));
        self.since += steps * FORGET;
        match self.quarantined_until() {
            Some(until) if now < until => return,
            Some(until) => (self.quarantine, self.terms_since) = (None, until),
            None => {}
        }
        self.reading.quarantined = false;
        let steps = now.saturating_sub(self.terms_since) / FORGET_TERM;
        self.terms = self.terms.saturating_sub(u32::try_from(steps).unwrap_or(u32::MAX));
        self.terms_since += steps * FORGET_TERM;
        // Slow until it has behaved for as long as all that takes.
        if self.charges == 0 {
            (self.reading.slow, self.stalled_long) = (false, false);
        }
    }

    /// When its quarantine ends, if it behaves until then.
    pub(crate) fn quarantined_until(&self) -> Option<u64> {
        self.quarantine.map(|quarantine| quarantine.since.max(self.until).saturating_add(quarantine.term))
    }

    /// The account as of `now`.
    pub(crate) fn read(&mut self, now: u64) -> SlowReading {
        self.forget(now);
        self.reading
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
