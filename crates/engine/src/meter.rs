//! How long a poller's visits take, and whose time that is.
//!
//! A visit that moved frames ends with one reading of the processor's counter, which is where the next one begins. One that took
//! no longer than any may is not looked into. After a longer one the poller asks what its thread went through ([`Witness`]): time
//! that it waited for the processor is nobody's. What is left cannot be blamed on anybody yet, as a copy touches the memory of
//! both its ends. So from then on the poller *examines* its visits for a while ([`ringway_switch::Examined`]): frames are copied
//! to memory of its own first, and the time of each port is taken apart. Who takes too long then is charged for it
//! ([`crate::budget`]).

use std::sync::Arc;

use ringway_memory::Mapping;
use ringway_switch::{Examined, Input, Member, Passed, Spent, Time, Workspace, pass};

use crate::budget::{self, Excess, LEAST_ALLOWANCE, Share, Verdict};
use crate::clock;
use crate::poller::Poller;
use crate::quarantine::ONE_OF as KEEPERS_ONE_OF;
use crate::source::{Attached, Side};
use crate::ticks::Ticks;
use crate::witness::{Account, Witness};

/// The witness looks at least so often while the poller is awake, so that what it sees is of the last visits; and so often while
/// visits are examined.
const LOOK_EVERY: u64 = 50_000_000;
const LOOK_EVERY_EXAMINED: u64 = 5_000_000;
/// How long visits are examined after one that took too long. Twice as long where that was so again soon after, up to a bound.
const EXAMINED: u64 = 10_000_000_000;
const EXAMINED_LONGEST: u64 = 3_600_000_000_000;
const SOON: u64 = 10;
/// Visits that computed for too long, without a sleep in a page fault: looked into where one of so many did, several times in a row.
const ONE_OF: u64 = 8;
const IN_A_ROW: u64 = 8;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Meter {
    ticks: Ticks,
    /// What no visit may take less than, in ticks.
    least: u64,
    /// Where the visit that is next began.
    mark: u64,
    witness: Witness,
    /// Visits are examined: until when, by how long, and where their frames are copied to.
    pub(crate) examining: bool,
    until: u64,
    term: u64,
    area: Option<Mapping>,
    /// Computed for too long: a count that other visits take down, and the visits until the last of them.
    work: u64,
    visits: u64,
}

impl Meter {
    /// For the thread that [enters](Meter::enter_thread).
    pub(crate) fn new() -> Meter {
        let ticks = Ticks::of_this_machine();
        Meter {
            ticks,
            least: ticks.of_nanoseconds(LEAST_ALLOWANCE),
            mark: ticks.read(),
            witness: Witness::new(clock::nanoseconds()),
            examining: false,
            until: 0,
            term: EXAMINED,
            area: None,
            work: 0,
            visits: 0,
        }
    }

    /// Every visit is examined.
    ///
    /// # Errors
    /// There is no memory for that.
    pub(crate) fn examine_always(&mut self) -> std::io::Result<()> {
        self.area = Some(Mapping::private(Examined::AREA)?);
        (self.examining, self.until) = (true, u64::MAX);
        Ok(())
    }

    /// The calling thread is the one that is looked at.
    pub(crate) fn enter_thread(&mut self) {
        self.witness = Witness::new(clock::nanoseconds());
        self.mark();
    }

    /// What was before is part of no visit.
    #[inline]
    pub(crate) fn mark(&mut self) {
        self.mark = self.ticks.read();
    }

    /// Ends a visit. Its ticks if it may have been too long.
    #[inline(always)]
    pub(crate) fn lap(&mut self) -> Option<u64> {
        let now = self.ticks.read();
        let took = now.wrapping_sub(self.mark);
        self.mark = now;
        (took > self.least).then_some(took)
    }

    /// The poller has read the clock.
    #[inline]
    pub(crate) fn look_at_clock(&mut self, now: u64) {
        let every = if self.examining { LOOK_EVERY_EXAMINED } else { LOOK_EVERY };
        if now.saturating_sub(self.witness.at()) > every {
            self.witness.since(now);
            if self.examining && now > self.until {
                self.examining = false;
            }
        }
    }

    /// The poller slept: that was no stall.
    #[inline]
    pub(crate) fn slept(&mut self) {
        if self.examining {
            self.witness.since(clock::nanoseconds());
        }
        self.mark();
    }

    /// A visit that moved so much took so many ticks. Notes whether visits are to be looked into.
    #[cold]
    fn took_long(&mut self, ticks: u64, frames: u64, bytes: u64, visits: u64) {
        let took = self.ticks.nanoseconds(ticks);
        let now = clock::nanoseconds();
        let seen = self.witness.since(now);
        let spent = Spent { nanoseconds: took, frames, bytes };
        if excess(spent, seen).is_none() {
            return;
        }
        if !seen.stalled() {
            self.work = self.work.saturating_sub(visits.wrapping_sub(self.visits)) + ONE_OF;
            self.visits = visits;
            if self.work <= ONE_OF * (IN_A_ROW - 1) {
                return;
            }
            self.work = 0;
        }
        self.examine(now);
    }

    #[cold]
    fn examine(&mut self, now: u64) {
        let again = self.until > 0 && now.saturating_sub(self.until) < SOON * self.term;
        self.term = if again { (2 * self.term).min(EXAMINED_LONGEST) } else { EXAMINED };
        if self.area.is_none() {
            self.area = Mapping::private(Examined::AREA).ok();
        }
        // Without memory nothing can be told apart; the next long visit finds some.
        self.examining = self.area.is_some();
        self.until = now.saturating_add(self.term);
    }
}

/// What of `spent` was too much, while the thread went through `seen`.
fn excess(spent: Spent, seen: Account) -> Option<u64> {
    let beyond = spent.nanoseconds.saturating_sub(budget::allowance(spent.frames, spent.bytes));
    let own = beyond.saturating_sub(seen.waited);
    // If it did not sleep in a fault it computed, at most for as long as it ran.
    let own = if seen.stalled() { own } else { own.min(seen.ran) };
    (own > 0).then_some(own)
}

impl Poller {
    /// After a visit to a port that moved `frames`, which took `ticks`.
    #[cold]
    pub(crate) fn visit_took_long(&mut self, index: usize, ticks: u64, frames: u64, bytes_before: u64) {
        let visits = self.passes();
        let Some(served) = self.served[index].as_ref() else { return };
        let member = served.attached.switch.member(served.attached.index);
        let bytes = member.map_or(0, |member| member.port.counters().in_bytes().wrapping_sub(bytes_before));
        self.meter.took_long(ticks, frames, bytes, visits);
    }

    /// Before the poller sleeps: what it did since it read the clock may have taken long, too.
    #[inline]
    pub(crate) fn look_before_sleep(&mut self) {
        if !self.meter.examining
            && let Some(ticks) = self.meter.lap()
        {
            let visits = self.passes();
            self.meter.took_long(ticks, 0, 0, visits);
        }
    }

    /// One pass, examined; notes what each port took.
    #[cold]
    pub(crate) fn pass_examined(
        meter: &Meter,
        attached: &Attached,
        member: &Member,
        input: &mut dyn Input,
        work: &mut Workspace,
        now: &Time,
        source: &mut Spent,
    ) -> Passed {
        let Some(area) = &meter.area else { return pass(&attached.switch, member, input, work, now) };
        let mut examined = Examined::new(input, area, now.read);
        let passed = pass(&attached.switch, member, &mut examined, work, now);
        let spent = examined.spent();
        source.nanoseconds = source.nanoseconds.saturating_add(spent.nanoseconds);
        source.frames = source.frames.saturating_add(spent.frames);
        source.bytes = source.bytes.saturating_add(spent.bytes);
        passed
    }

    /// Whether a port has frames, and how long it took to find that out.
    #[cold]
    pub(crate) fn is_pending_examined(input: &mut dyn Input, source: &mut Spent) -> bool {
        let began = clock::nanoseconds();
        let pending = input.pending();
        source.nanoseconds = source.nanoseconds.saturating_add(clock::nanoseconds().saturating_sub(began));
        pending
    }

    /// After a visit that was examined: charges whoever took too long.
    #[cold]
    pub(crate) fn charge_visit(&mut self, index: usize, source: Spent) {
        self.meter.mark();
        let given: Vec<_> = self.work.given().iter().filter(|given| is_long(given.spent)).copied().collect();
        if !is_long(source) && given.is_empty() {
            return;
        }
        let now = clock::nanoseconds();
        let seen = self.meter.witness.since(now);
        let Some(attached) = self.served[index].as_ref().map(|served| served.attached.clone()) else { return };
        if let Some(until) = self.charge(&attached, Side::In, source, seen, now) {
            self.set_aside(index, until, now);
        }
        for given in given {
            let is_it = |other: &&Attached| other.index == given.port && Arc::ptr_eq(&other.switch, &attached.switch);
            let Some(other) = self.topology().ports.iter().find(is_it).cloned() else { continue };
            let until = self.charge(&other, Side::Out, given.spent, seen, now);
            if let Some(until) = until
                && let Some(member) = other.switch.member(other.index)
                && other.source.is_slow(now)
            {
                member.port.set_aside(until);
            }
        }
    }

    /// A keeper gave a port what was left for it.
    pub(crate) fn charge_emptied(&mut self, index: usize, spent: Spent) {
        if !is_long(spent) {
            return;
        }
        let now = clock::nanoseconds();
        let seen = self.meter.witness.since(now);
        let Some(attached) = self.served[index].as_ref().map(|served| served.attached.clone()) else { return };
        if let Some(until) = self.charge(&attached, Side::Out, spent, seen, now) {
            self.set_aside(index, until, now);
        }
    }

    /// What was done with a port besides serving it took so long. Where that is too much it is set aside when it is active next.
    #[cold]
    pub(crate) fn charge_besides(&mut self, index: usize, nanoseconds: u64) {
        let spent = Spent { nanoseconds, ..Spent::default() };
        if !is_long(spent) {
            return;
        }
        let now = clock::nanoseconds();
        let seen = self.meter.witness.since(now);
        let Some(attached) = self.served[index].as_ref().map(|served| served.attached.clone()) else { return };
        if let Some(until) = self.charge(&attached, Side::In, spent, seen, now)
            && let Some(served) = self.served[index].as_mut()
        {
            served.aside = served.aside.max(until);
        }
    }

    /// Charges the port whose pending call took longest of those that were made.
    #[cold]
    pub(crate) fn charge_calls(&mut self) {
        let Some((port, nanoseconds)) = self.work.calls.take_longest() else { return };
        let spent = Spent { nanoseconds, ..Spent::default() };
        let Some(port) = port.upgrade().filter(|_| is_long(spent)) else { return };
        let now = clock::nanoseconds();
        let seen = self.meter.witness.since(now);
        let is_it = |attached: &&Attached| {
            attached.switch.member(attached.index).is_some_and(|member| Arc::ptr_eq(&member.port, &port))
        };
        let Some(attached) = self.topology().ports.iter().find(is_it).cloned() else { return };
        if let Some(until) = self.charge(&attached, Side::Out, spent, seen, now)
            && attached.source.is_slow(now)
        {
            port.set_aside(until);
        }
    }

    /// Charges a port for what was too much of `spent`. Until when it is set aside for that.
    fn charge(&mut self, attached: &Attached, side: Side, spent: Spent, seen: Account, now: u64) -> Option<u64> {
        let nanoseconds = excess(spent, seen)?;
        let counters = attached.switch.member(attached.index)?.port.counters();
        let visits = attached.source.conduct().visits(side, spent.frames, counters);
        let weight = u64::from(attached.weight);
        let of = if self.is_keeper() { KEEPERS_ONE_OF * weight } else { self.active_weight().max(weight) };
        let share = Share { weight, of };
        let excess = Excess { nanoseconds, stalled: seen.stalled(), visits };
        let (verdict, became_slow) = attached.source.conduct().charge(now, excess, share);
        if verdict != Verdict::GoesOn {
            self.meter.until = self.meter.until.max(now.saturating_add(EXAMINED));
        }
        if became_slow {
            self.report_fault();
        }
        match verdict {
            Verdict::GoesOn => None,
            // A keeper begins with it at once.
            Verdict::Quarantine(_) if self.quarantine(attached) => None,
            Verdict::SetAside(until) | Verdict::Quarantine(until) => Some(until).filter(|&until| until > now),
        }
    }

    /// The port is not served before `until`.
    fn set_aside(&mut self, index: usize, until: u64, now: u64) {
        if let Some(served) = self.served[index].as_mut().filter(|_| until > now) {
            served.aside = until;
            served.waits = Some(served.waits.map_or(until, |waits| waits.max(until)));
        }
    }
}

/// Whether it may be too much.
fn is_long(spent: Spent) -> bool {
    spent.nanoseconds > budget::allowance(spent.frames, spent.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn spent(milliseconds: u64) -> Spent {
        Spent { nanoseconds: milliseconds * MILLISECOND + LEAST_ALLOWANCE, frames: 0, bytes: 0 }
    }

    #[test]
    fn time_that_the_poller_waited_for_its_processor_is_nobodys() {
        // Milliseconds of the visit beyond what it may take; ran, waited, faults, sleeps since the last look; charged.
        let table = [
            // It slept in a page fault.
            (100, (1, 0, 1, 1), Some(100)),
            (100, (1, 30, 1, 1), Some(70)),
            // Another had the processor for all that time, or for longer, in other visits, too.
            (100, (1, 100, 3, 1), None),
            (100, (1, 500, 0, 0), None),
            // It computed; what it ran before does not count.
            (5, (5, 0, 0, 0), Some(5)),
            (5, (50, 0, 0, 0), Some(5)),
            (5, (5, 3, 0, 0), Some(2)),
            // There was a fault in which it did not sleep, or a sleep without a fault: what it ran is work.
            (5, (3, 0, 1, 0), Some(3)),
            (5, (3, 0, 0, 1), Some(3)),
            // It neither ran nor waited, nor slept in a fault: the machine stood still.
            (5, (0, 0, 0, 0), None),
            (5, (0, 0, 7, 0), None),
            (0, (5, 0, 1, 1), None),
        ];
        for (took, (ran, waited, faults, sleeps), charged) in table {
            let seen = Account { ran: ran * MILLISECOND, waited: waited * MILLISECOND, faults, sleeps };
            let charged = charged.map(|charged: u64| charged * MILLISECOND);
            assert_eq!(excess(spent(took), seen), charged, "{took} ms, {seen:?}");
        }
        let unknown = Account { ran: u64::MAX, waited: u64::MAX, faults: 1, sleeps: 1 };
        assert_eq!(excess(spent(100), unknown), None, "a kernel that does not tell how long it waited");
    }

    #[test]
    fn a_long_stall_has_visits_examined_and_many_long_computations_do() {
        let took_long = |meter: &mut Meter, visits| {
            // As if there were a fault or none: what this thread really does is in there, too.
            let ticks = meter.ticks.of_nanoseconds(60_000 * MILLISECOND);
            meter.took_long(ticks, 1, 60, visits);
        };
        let mut meter = Meter::new();
        let page = Mapping::private(4096).expect("memory");
        assert!(page.whole().write(&[1; 64]));
        std::thread::sleep(std::time::Duration::from_millis(1));
        took_long(&mut meter, 1);
        assert!(meter.examining);
        let (first, term) = (meter.until, meter.term);
        assert_eq!(term, EXAMINED);
        meter.look_at_clock(first + LOOK_EVERY + 1);
        assert!(!meter.examining, "it behaved meanwhile");
        // Again, soon after.
        meter.examine(first + 1);
        assert_eq!((meter.examining, meter.term), (true, 2 * EXAMINED));
        meter.examine(meter.until + SOON * meter.term + 1);
        assert_eq!(meter.term, EXAMINED);
    }
}
