//! A budget of poller time for each port: what a port costs its poller beyond its allowance, and what follows.
//!
//! A client controls how long an access to its memory takes: a page fault in a file that is being punched, or read from
//! a disk, waits in the kernel. A poller's time is shared by weight: each active port has its batches a round, and a
//! visit may take 200 us, 1 us a frame and 2 ns a byte. Time beyond that is *excess*. Excess is charged to the port
//! that caused it, and the port then pauses until the others had their shares of that time. The third charge within
//! some seconds makes a port *slow* (`slow_client`): each further charge costs a pause of its own, 10 ms at first,
//! twice as long each time, 1 s at most. One charge expires per second. A source is not served in its pauses; frames
//! for a slow receiver are lost as `receiver_slow`.
//!
//! Two kinds of excess differ in what is known about them:
//!
//! - A *stall* is an access to the port's memory with a page fault in which the thread slept (voluntary context switches tell): the
//!   kernel kept the thread waiting for the client's memory, for as long as the client arranges. A stall is charged at once. Long stalls cannot be
//!   paid off with pauses, because the next one is as long: at the second stall of 2 ms or more, or at one of 50 ms, the port
//!   is served by a quarantine poller ([`crate::quarantine`]).
//! - *Work* is time that the thread computed. It is bounded by the limits of a batch and not always the port's doing. A
//!   hypervisor that takes the processor away leaves time that nothing explains, which is nobody's ([`crate::meter`]); it
//!   may also do so in the middle of work. So work is charged only where the excess takes more than
//!   half of the port's share of the time, and more than half as much time as the port takes within its allowance. Only
//!   time counts: a client chooses the number of its visits, and how many frames each has.
//!
//! Nothing here reads a clock or knows a thread: all times are values, in nanoseconds.

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;

/// Nanoseconds that any visit may take.
const VISIT: u64 = 200 * MICROSECOND;
/// Additional nanoseconds for each frame of a visit: several times the cost of a frame in far, uncached memory.
const FRAME: u64 = MICROSECOND;
/// Additional nanoseconds for each byte: several times the cost of a byte in far, uncached memory.
const BYTE: u64 = 2;

/// Two stalls of at least this length, or one of [`VERY_LONG_STALL`], bring quarantine.
const LONG_STALL: u64 = 2 * MILLISECOND;
const VERY_LONG_STALL: u64 = 50 * MILLISECOND;
/// A port with this many charges is slow.
const CHARGES: u32 = 3;
/// Time after which one charge expires.
const CHARGE_EXPIRY: u64 = SECOND;
/// Most charges that count. At this number the pause has reached its maximum.
const MOST_CHARGES: u32 = CHARGES + 7;
/// The first pause of a slow port.
const FIRST_PAUSE: u64 = 10 * MILLISECOND;
/// The longest pause of a slow port.
const LONGEST_PAUSE: u64 = SECOND;
/// The longest pause for the shares of others.
const LONGEST_DEBT: u64 = 10 * SECOND;
/// Time without an excess that ends a quarantine. It doubles with each further quarantine, [`TERMS`] times at most.
const QUARANTINE: u64 = 10 * SECOND;
/// See [`QUARANTINE`].
const TERMS: u32 = 6;
/// Time without another quarantine after which one no longer counts.
const TERM_EXPIRY: u64 = 600 * SECOND;
/// Work is charged where it exceeds the port's share of the time, divided by this...
const PART: u64 = 2;
/// ...and the port's time within its allowance, divided by this...
const WITHIN: u64 = 2;
/// ...by this much. The recorded value of the former is capped at twice as much.
const AHEAD: u64 = 10 * MILLISECOND;
/// Long visits in a row after which work counts: a processor that is taken away once counts for nobody.
const IN_A_ROW: u64 = 8;
/// Most nanoseconds of a visit's work that count for that. More than the limits of a batch permit.
const LONGEST_WORK: u64 = 50 * MILLISECOND;

/// Returns the nanoseconds that a visit may take that moved `frames` and `bytes`.
pub(crate) fn allowance(frames: u64, bytes: u64) -> u64 {
    VISIT.saturating_add(frames.saturating_mul(FRAME)).saturating_add(bytes.saturating_mul(BYTE))
}

/// The least allowance of any visit. A poller does not examine shorter visits.
pub(crate) const LEAST_ALLOWANCE: u64 = VISIT;

/// Time of a visit beyond its allowance, without the time that the thread waited for its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    pub(crate) nanoseconds: u64,
    /// The thread slept in page faults at the port's memory.
    pub(crate) stalled: bool,
    /// Time that the port took within its allowances since its last excess.
    pub(crate) within: u64,
}

/// Work beyond what the time allows, where each excess is compared with other time: of the port, or of the poller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overwork {
    ahead: u64,
    /// Long visits since `ahead` was zero.
    visits: u64,
}

impl Overwork {
    /// Notes a visit's work, after time that allows `allowed` of it. Returns true if the work of many visits exceeds what is allowed.
    pub(crate) fn note(&mut self, nanoseconds: u64, allowed: u64) -> bool {
        self.ahead = self.ahead.saturating_sub(allowed);
        if self.ahead == 0 {
            self.visits = 0;
        }
        // Capped, so that it soon falls again.
        self.ahead = (self.ahead + nanoseconds.min(LONGEST_WORK)).min(IN_A_ROW * LONGEST_WORK);
        self.visits += 1;
        self.visits >= IN_A_ROW && self.ahead > AHEAD
    }
}

/// A port's part of its poller's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The weight of the port.
    pub(crate) weight: u64,
    /// The weights of all active ports of the poller together.
    pub(crate) of: u64,
}

/// What follows from an excess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    NoAction,
    /// The port is not visited before this time.
    SetAside(u64),
    /// The port is served by a quarantine poller, and not before this time.
    Quarantine(u64),
}

/// The state of a port's budget, for users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowReading {
    /// The port is slow now.
    pub slow: bool,
    /// A quarantine poller serves the port.
    pub quarantined: bool,
    /// Times that the port became slow.
    pub times: u64,
    /// Visits that were charged.
    pub charged_visits: u64,
    /// Time that was charged for these visits, in nanoseconds.
    pub charged_ns: u64,
    /// The longest time that was charged for one visit, in nanoseconds.
    pub longest_ns: u64,
}

/// The budget of one port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    /// The port is not visited before this time.
    until: u64,
    /// Charges that have not expired.
    charges: u32,
    /// Start of the time after which the next charge expires.
    since: u64,
    /// Work beyond a part of the time within the allowances.
    work: Overwork,
    /// Work beyond a part of the port's share of the time, at `ahead_since`.
    ahead: u64,
    ahead_since: u64,
    /// True while a long stall counts.
    stalled_long: bool,
    quarantine: Option<Quarantine>,
    /// Quarantines that count for the length of the next.
    terms: u32,
    /// Start of the time after which the next quarantine no longer counts. Stopped during a quarantine.
    terms_since: u64,
    reading: SlowReading,
}

#[derive(Clone, Copy, Debug)]
struct Quarantine {
    /// The time of the last excess.
    since: u64,
    /// Time without an excess that ends the quarantine.
    term: u64,
}

impl Budget {
    /// Charges the port for an excess at `now`.
    pub(crate) fn charge(&mut self, now: u64, excess: Excess, share: Share) -> Verdict {
        self.expire(now);
        if !excess.stalled {
            let is_habit = self.work.note(excess.nanoseconds, excess.within / WITHIN);
            let is_excessive = self.is_excessive(now, excess.nanoseconds, share);
            if !is_habit || !is_excessive {
                return Verdict::NoAction;
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
        } else if excess.stalled && self.is_long_stall(excess.nanoseconds) {
            self.become_slow();
            self.quarantine = Some(Quarantine { since: now, term: QUARANTINE << self.terms });
            self.terms = (self.terms + 1).min(TERMS);
            self.reading.quarantined = true;
            return Verdict::Quarantine(self.until);
        }
        Verdict::SetAside(self.until)
    }

    /// Notes work at `now`. Returns true if the port's work exceeds the permitted part of its share of the time.
    fn is_excessive(&mut self, now: u64, nanoseconds: u64, share: Share) -> bool {
        let passed = u128::from(now.saturating_sub(std::mem::replace(&mut self.ahead_since, now)));
        let weight = u128::from(share.weight.max(1));
        let part = passed * weight / (u128::from(share.of).max(weight) * u128::from(PART));
        let ahead = u128::from(self.ahead.saturating_add(nanoseconds)).saturating_sub(part);
        self.ahead = u64::try_from(ahead).unwrap_or(u64::MAX).min(2 * AHEAD);
        self.ahead > AHEAD
    }

    /// Notes a stall. Returns true if it leads to quarantine.
    fn is_long_stall(&mut self, nanoseconds: u64) -> bool {
        let second = self.stalled_long;
        self.stalled_long |= nanoseconds >= LONG_STALL;
        nanoseconds >= VERY_LONG_STALL || second && nanoseconds >= LONG_STALL
    }

    fn become_slow(&mut self) {
        if !std::mem::replace(&mut self.reading.slow, true) {
            self.reading.times += 1;
        }
    }

    fn expire(&mut self, now: u64) {
        let steps = now.saturating_sub(self.since) / CHARGE_EXPIRY;
        self.charges = self.charges.saturating_sub(u32::try_from(steps).unwrap_or(u32::MAX));
        self.since += steps * CHARGE_EXPIRY;
        match self.quarantined_until() {
            Some(until) if now < until => return,
            Some(until) => (self.quarantine, self.terms_since) = (None, until),
            None => {}
        }
        self.reading.quarantined = false;
        let steps = now.saturating_sub(self.terms_since) / TERM_EXPIRY;
        self.terms = self.terms.saturating_sub(u32::try_from(steps).unwrap_or(u32::MAX));
        self.terms_since += steps * TERM_EXPIRY;
        // The port is slow until all its charges have expired.
        if self.charges == 0 {
            (self.reading.slow, self.stalled_long) = (false, false);
        }
    }

    /// Returns when the quarantine ends, if there is no excess until then.
    pub(crate) fn quarantined_until(&self) -> Option<u64> {
        self.quarantine.map(|quarantine| quarantine.since.max(self.until).saturating_add(quarantine.term))
    }

    /// Returns the state of the budget at `now`.
    pub(crate) fn read(&mut self, now: u64) -> SlowReading {
        self.expire(now);
        self.reading
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
