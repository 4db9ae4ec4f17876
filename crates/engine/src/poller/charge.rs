//! Examined visits: the time of each port is measured, and a port that takes too long is charged.

use std::sync::Arc;

use ringway_memory::Mapping;
use ringway_runtime::Signal;
use ringway_runtime::clock;
use ringway_runtime::thread_usage::{Usage, moment};
use ringway_switch::{
    DetourRoom, Examined, FrameDirection, Input, Member, Passed, Switch, Time, TimeSpent, Workspace, pass,
};

use super::thread::{Poller, Served};
use crate::budget::{Excess, Share, Verdict};
use crate::meter::{excess, is_long, within};
use crate::quarantine::{self, PARTS};
use crate::schedule::Visit;
use crate::topology::Attached;

/// Runs one examined pass. Returns the time of the source; the times of the receivers are in the workspace.
#[cold]
pub(super) fn pass_examined(
    area: Option<&Mapping>,
    switch: &Switch,
    member: &Member,
    input: &mut dyn Input,
    work: &mut Workspace,
    now: &Time,
) -> (Passed, TimeSpent) {
    let Some(area) = area else { return (pass(switch, member, input, work, now), TimeSpent::default()) };
    let mut examined = Examined::new(input, area, moment);
    let passed = pass(switch, member, &mut examined, work, now);
    let mut spent = examined.spent();
    // A switch's program is at the cost of the ports whose frames it judges, and offloads at that of the ports that ask.
    spent.add(work.take_source_time(passed.work));
    (passed, spent)
}

/// Returns true if a port has frames. Adds the time of this check to `source`.
#[cold]
pub(super) fn is_pending_examined(input: &mut dyn Input, source: &mut TimeSpent) -> bool {
    let began = moment();
    let pending = input.pending();
    source.add(TimeSpent::between(began, moment()));
    pending
}

impl Poller {
    /// To be called after a long visit to a port that moved `frames` in `ticks`. The port's bytes were `bytes_before`
    /// before the visit.
    #[cold]
    pub(super) fn visit_took_long(&mut self, slot: usize, ticks: u64, frames: u64, bytes_before: u64) {
        let Some(served) = self.ports[slot].as_ref() else { return };
        let bytes = served.attached.port().map_or(0, |port| port.counters().in_bytes().wrapping_sub(bytes_before));
        self.meter.took_long(ticks, frames, bytes);
    }

    /// Checks, before the poller sleeps, the time since the last reading of the clock.
    #[inline]
    pub(super) fn lap_before_sleep(&mut self) {
        if !self.meter.examining
            && let Some(ticks) = self.meter.lap()
        {
            self.meter.took_long(ticks, 0, 0);
        }
    }

    /// Visits a port and charges each port that takes too long for it.
    #[cold]
    pub(super) fn serve_examined(&mut self, slot: usize) -> Visit {
        let mut source = TimeSpent::default();
        self.work.examine(Some(moment));
        let emptied = if self.is_quarantine_poller() { self.empty_detour(slot) } else { 0 };
        let (mut visit, _) = self.visit::<true>(slot, &mut source);
        self.charge_visit(slot, source);
        self.work.examine(None);
        visit.frames += emptied;
        visit.until = visit.until.max(self.schedule.set_aside_until(slot, self.now.nanoseconds));
        visit
    }

    /// Runs `work` for a port, other than a visit. While visits are examined, its time is charged to the port.
    #[inline]
    pub(super) fn time<T>(&mut self, slot: usize, work: impl FnOnce(&mut Poller) -> T) -> T {
        if !self.meter.examining {
            return work(self);
        }
        let began = moment();
        let done = work(self);
        self.charge_besides(slot, TimeSpent::between(began, moment()));
        done
    }

    /// Charges every port that took too long in an examined visit, and sets it aside.
    #[cold]
    fn charge_visit(&mut self, slot: usize, source: TimeSpent) {
        self.meter.mark();
        self.note_within(slot, source);
        if !is_long(source) && !self.work.given().iter().any(|given| is_long(given.spent)) {
            return;
        }
        let Some((now, seen)) = self.begin_charge() else { return };
        let Some(attached) = self.attached(slot) else { return };
        if let Some(until) = self.charge(&attached, FrameDirection::In, source, seen, now) {
            self.schedule.set_aside(slot, until);
        }
        let mut place = 0;
        while let Some(&given) = self.work.given().get(place) {
            place += 1;
            if !is_long(given.spent) {
                continue;
            }
            let is_it = |other: &&Attached| other.is_beside(&attached, given.port);
            let Some(other) = self.topology.ports.iter().find(is_it).cloned() else { continue };
            if let Some(until) = self.charge(&other, FrameDirection::Out, given.spent, seen, now)
                && let Some(port) = other.port()
                && other.source.is_slow(now)
            {
                port.set_aside(until);
            }
        }
    }

    /// Returns the present time and the thread's usage until now. `None`: the thread was kept, and the one that had it relieved charges for that.
    fn begin_charge(&mut self) -> Option<(u64, Usage)> {
        if !self.shift.charging.begin() {
            return None;
        }
        let now = clock::nanoseconds();
        Some((now, self.meter.read_usage(now)))
    }

    /// Notes the time within their allowances that the visited port and the receivers took in an examined visit.
    fn note_within(&self, slot: usize, source: TimeSpent) {
        let Some(Served { attached, .. }) = self.ports[slot].as_ref() else { return };
        if let Some(port) = attached.port() {
            port.add_time_within(FrameDirection::In, within(source));
        }
        let Some((switch, _)) = attached.member() else { return };
        for given in self.work.given() {
            if let Some(member) = switch.member(given.port) {
                member.port.add_time_within(FrameDirection::Out, within(given.spent));
            }
        }
    }

    /// Charges a port for the delivery of its detour by a quarantine poller, which took `spent`.
    pub(super) fn charge_emptied(&mut self, slot: usize, spent: TimeSpent) {
        self.charge_served(slot, FrameDirection::Out, spent);
    }

    /// Charges a port for work other than a visit. If it took too long, the port is set aside when it is next active.
    #[cold]
    fn charge_besides(&mut self, slot: usize, spent: TimeSpent) {
        self.charge_served(slot, FrameDirection::In, spent);
    }

    /// Charges a port of this poller and sets it aside.
    fn charge_served(&mut self, slot: usize, direction: FrameDirection, spent: TimeSpent) {
        if let Some(port) = self.ports[slot].as_ref().and_then(|served| served.attached.port()) {
            port.add_time_within(direction, within(spent));
        }
        if !is_long(spent) {
            return;
        }
        let Some((now, seen)) = self.begin_charge() else { return };
        let Some(attached) = self.attached(slot) else { return };
        if let Some(until) = self.charge(&attached, direction, spent, seen, now) {
            self.schedule.set_aside(slot, until);
        }
    }

    /// Charges the port whose pending call took longest among those just made.
    #[cold]
    pub(super) fn charge_calls(&mut self) {
        let Some((port, spent)) = self.work.calls.take_longest() else { return };
        if !is_long(spent) {
            return;
        }
        let Some((now, seen)) = self.begin_charge() else { return };
        // Compared, and not upgraded: this thread must not become the port's last owner.
        let is_it = |attached: &&Attached| attached.port().is_some_and(|other| Arc::as_ptr(other) == port.as_ptr());
        let Some(attached) = self.topology.ports.iter().find(is_it).cloned() else { return };
        if let Some(until) = self.charge(&attached, FrameDirection::Out, spent, seen, now)
            && attached.source.is_slow(now)
            && let Some(port) = attached.port()
        {
            port.set_aside(until);
        }
    }

    /// Charges a port for the part of `spent` beyond the allowance. Returns the time until which the port is set aside
    /// for that.
    fn charge(
        &mut self,
        attached: &Attached,
        direction: FrameDirection,
        spent: TimeSpent,
        seen: Usage,
        now: u64,
    ) -> Option<u64> {
        let is_of_kernel = !matches!(attached.source.signal(), Signal::Kick(_));
        let (nanoseconds, stalled) = excess(spent, seen, is_of_kernel)?;
        let within = attached.source.time().within(direction, attached.port()?);
        let weight = u64::from(attached.weight);
        let of = if self.is_quarantine_poller() { PARTS * weight } else { self.active_weight().max(weight) };
        let share = Share { weight, of };
        let excess = Excess { nanoseconds, stalled, within };
        let (verdict, became_slow) = attached.source.time().charge(now, excess, share);
        if verdict != Verdict::NoAction {
            self.meter.extend(now);
        }
        if became_slow {
            self.shared.report_fault();
        }
        let (Verdict::SetAside(until) | Verdict::Quarantine(until)) = verdict else { return None };
        // There may have been no memory for its detour when the quarantine began.
        let has_none = attached.source.quarantine_poller().is_none() && attached.source.is_quarantined(now);
        // A quarantine poller begins with the port at once.
        let is_given = has_none && quarantine::begin(&self.shared, attached, DetourRoom::Prepared);
        Some(until).filter(|&until| !is_given && until > now)
    }

    /// The port in a slot, from the poller's topology.
    fn attached(&self, slot: usize) -> Option<Attached> {
        self.ports[slot].as_ref().map(|served| served.attached.clone())
    }

    /// The sum of the weights of all active ports.
    fn active_weight(&self) -> u64 {
        let weight = |slot: usize| self.ports[slot].as_ref().map_or(0, |served| served.attached.weight.into());
        self.schedule.active().map(weight).sum()
    }
}
