//! A round: visits to the ports that the schedule selects.

use ringway_switch::{TimeSpent, VISIT_WORK, handle_event, pass};

use super::charge::{is_pending_examined, pass_examined};
use super::thread::{NO_PORT, Poller, Served};
use crate::schedule::Visit;
use crate::topology::{Attached, Place};

impl Poller {
    /// Visits every active port once and polls a few of the parked ones. Returns the frames that were moved.
    #[inline]
    pub(super) fn round(&mut self) -> u64 {
        let now = self.now.nanoseconds;
        if self.schedule.has_waiting() {
            self.resume();
            if let Some(slot) = self.schedule.next_waiting() {
                self.handle_events(slot);
            }
        }
        self.schedule.begin_round();
        let (mut moved, mut place) = (0, 0);
        while let Some(slot) = self.schedule.next_active(&mut place, now) {
            let visit = self.serve(slot);
            moved += visit.frames;
            if self.schedule.visited(&mut place, slot, now, visit) {
                self.has_worked = true;
            }
        }
        for _ in 0..self.schedule.polls() {
            let Some(slot) = self.schedule.next_parked() else { break };
            let is_pending = self.time(slot, |poller| poller.is_pending(slot));
            if self.meter.examining
                && let Some(until) = self.schedule.set_aside_until(slot, now)
            {
                // The port took too long and waits now.
                self.schedule.wait(slot, until);
            } else if is_pending {
                self.unpark(slot);
            } else {
                self.schedule.keep_parked();
            }
        }
        moved
    }

    /// Activates the waiting ports that are due.
    #[cold]
    fn resume(&mut self) {
        while let Some(slot) = self.schedule.resume(self.now.nanoseconds) {
            self.disarm(slot);
        }
    }

    /// Handles a port's events other than frames, if there are any.
    #[cold]
    pub(super) fn handle_events(&mut self, slot: usize) {
        self.time(slot, |poller| {
            let Some(Served { attached, .. }) = poller.ports[slot].as_ref() else { return };
            poller.note.serve(attached.source.id());
            if let Some(mut custody) = attached.source.hold(&poller.shift)
                && let Some(input) = custody.input()
                && let Some((_, member)) = attached.member()
                && handle_event(member, input, &mut poller.work, &poller.now)
            {
                poller.shared.report_fault();
            }
            poller.note.serve(NO_PORT);
        });
    }

    /// Activates and disarms a parked port that has frames or whose descriptor woke the poller.
    pub(super) fn unpark(&mut self, slot: usize) {
        if self.schedule.unpark(slot, self.now.nanoseconds) {
            self.disarm(slot);
        }
    }

    /// Returns true if a port has frames in its memory or its detour.
    #[inline]
    pub(super) fn is_pending(&mut self, slot: usize) -> bool {
        let Some(Served { attached, .. }) = self.ports[slot].as_ref() else { return false };
        self.note.serve(attached.source.id());
        let pending = attached.source.hold(&self.shift).is_some_and(|mut custody| custody.pending());
        self.note.serve(NO_PORT);
        pending || self.is_quarantine_poller() && self.has_detoured(slot)
    }

    /// Visits a port.
    #[inline]
    fn serve(&mut self, slot: usize) -> Visit {
        if self.meter.examining {
            return self.serve_examined(slot);
        }
        let (visit, bytes) = self.visit::<false>(slot, &mut TimeSpent::default());
        if visit.frames > 0
            && let Some(ticks) = self.meter.lap()
        {
            self.visit_took_long(slot, ticks, visit.frames, bytes);
        }
        visit
    }

    /// Visits a port or a mover. Also returns the bytes that had come from it before. The time of an examined visit is added to
    /// `source`.
    #[inline(always)]
    pub(super) fn visit<const EXAMINED: bool>(&mut self, slot: usize, source: &mut TimeSpent) -> (Visit, u64) {
        let mut visit = Visit::default();
        let Some(Served { attached: attached @ Attached { place: Place::Port(switch, index), .. }, .. }) =
            self.ports[slot].as_ref()
        else {
            return self.visit_mover(slot, EXAMINED.then_some(source));
        };
        let Some(mut custody) = attached.source.hold(&self.shift) else { return (visit, 0) };
        let Some(input) = custody.input() else { return (visit, 0) };
        let Some(member) = switch.member(*index) else { return (visit, 0) };
        let in_memory = attached.source.signal().in_memory();
        let batch = self.batch as u64;
        let bytes = member.port.counters().in_bytes();
        self.note.serve(attached.source.id());
        let mut done = 0u64;
        // A port with a short ring gets its turn in several passes.
        while visit.frames < u64::from(attached.weight) * batch {
            if in_memory && !if EXAMINED { is_pending_examined(input, source) } else { input.pending() } {
                break;
            }
            let (work, now) = (&mut self.work, &self.now);
            let passed = if EXAMINED {
                let (passed, spent) = pass_examined(self.meter.area(), switch, member, input, work, now);
                source.add(spent);
                passed
            } else {
                pass(switch, member, input, work, now)
            };
            visit.frames += passed.frames;
            visit.until = passed.until;
            if passed.fault.is_some() || passed.receiver_fault {
                if let Some(fault) = passed.fault {
                    member.port.fail(fault);
                    custody.end();
                }
                self.shared.report_fault();
                break;
            }
            visit.more = passed.more || passed.frames >= batch;
            // Another thread may hold what the input needs: the other ports go on meanwhile.
            if !visit.more || passed.is_exhausted || passed.frames == 0 || passed.until.is_some() {
                break;
            }
            // A client can make passes of few frames that take long.
            done = done.saturating_add(passed.work);
            if done > u64::from(attached.weight) * VISIT_WORK || self.shift.is_relieved() {
                break;
            }
        }
        self.note.serve(NO_PORT);
        (visit, bytes)
    }
}
