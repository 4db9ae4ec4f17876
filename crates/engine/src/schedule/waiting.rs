//! Waiting ports, which are not visited before a given time.

use std::cmp::Reverse;

use super::lists::{List, Schedule};

impl Schedule {
    /// Returns true if any port is waiting.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Makes an active or parked port wait until this time.
    pub(crate) fn wait(&mut self, slot: usize, until: u64) {
        match self.ports[slot].list {
            List::Active => self.leave_active(slot),
            List::Parked => self.leave_parked(slot),
            List::Vacant | List::Waiting => return,
        }
        self.enter_waiting(slot, until);
    }

    /// Sets a port aside: from now on it becomes active no earlier than this time. An active port stays active until
    /// its next visit; a parked port stays parked until it has frames.
    pub(crate) fn set_aside(&mut self, slot: usize, until: u64) {
        let port = &mut self.ports[slot];
        port.not_before = port.not_before.max(until);
    }

    /// The time until which a port is set aside at `now`.
    pub(crate) fn set_aside_until(&self, slot: usize, now: u64) -> Option<u64> {
        Some(self.ports[slot].not_before).filter(|&until| until > now)
    }

    /// Activates one waiting port that is due at `now` and returns it. Returns `None` if no further one is due.
    pub(crate) fn resume(&mut self, now: u64) -> Option<usize> {
        while let Some(&Reverse((until, slot))) = self.waiting.peek()
            && until <= now
        {
            self.waiting.pop();
            // A port that was set aside meanwhile keeps waiting.
            if self.enter(slot, now) {
                return Some(slot);
            }
        }
        None
    }

    /// Activates every waiting port, whatever its time, except those that are set aside. Returns the activated ports.
    pub(crate) fn resume_all(&mut self, now: u64) -> Vec<usize> {
        let waiting = std::mem::take(&mut self.waiting).into_sorted_vec();
        let slots = waiting.into_iter().rev().map(|Reverse((_, slot))| slot);
        let active = slots.filter(|&slot| self.enter(slot, now)).collect();
        self.reserve_lists();
        active
    }

    /// The next of the waiting ports, in rotation: the poller checks it for events other than frames.
    pub(crate) fn next_waiting(&mut self) -> Option<usize> {
        self.last_checked = (self.last_checked + 1) % self.waiting.len().max(1);
        self.waiting(self.last_checked)
    }

    /// The waiting port at position `place` (from 0), in no particular order.
    pub(crate) fn waiting(&self, place: usize) -> Option<usize> {
        self.waiting.as_slice().get(place).map(|&Reverse((_, slot))| slot)
    }
}
