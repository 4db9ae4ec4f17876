//! Ports that are not visited before some time.

use std::cmp::Reverse;

use super::lists::{List, Schedule};

impl Schedule {
    /// Whether any port waits.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Has an active or parked port wait until this time.
    pub(crate) fn wait(&mut self, slot: usize, until: u64) {
        match self.ports[slot].list {
            List::Active => self.leave_active(slot),
            List::Parked => self.leave_parked(slot),
            List::Vacant | List::Waiting => return,
        }
        self.enter_waiting(slot, until);
    }

    /// Sets a port aside: from now on it becomes active no earlier than this time. An active port stays active until it is
    /// visited, a parked one is parked until it has frames.
    pub(crate) fn set_aside(&mut self, slot: usize, until: u64) {
        let port = &mut self.ports[slot];
        port.not_before = port.not_before.max(until);
    }

    /// The time until which a port is set aside at `now`.
    pub(crate) fn set_aside_until(&self, slot: usize, now: u64) -> Option<u64> {
        Some(self.ports[slot].not_before).filter(|&until| until > now)
    }

    /// Makes one port active whose time has come, and returns it. `None`: there is no further one.
    pub(crate) fn resume(&mut self, now: u64) -> Option<usize> {
        while let Some(&Reverse((until, slot))) = self.waiting.peek()
            && until <= now
        {
            self.waiting.pop();
            // A port that was set aside meanwhile waits on.
            if self.enter(slot, now) {
                return Some(slot);
            }
        }
        None
    }

    /// Makes every waiting port active, whatever its time, except those that are set aside. Returns the active ones.
    pub(crate) fn resume_all(&mut self, now: u64) -> Vec<usize> {
        let waiting = std::mem::take(&mut self.waiting).into_sorted_vec();
        let slots = waiting.into_iter().rev().map(|Reverse((_, slot))| slot);
        slots.filter(|&slot| self.enter(slot, now)).collect()
    }

    /// One of the waiting ports, each in turn: the poller checks it for events that are not frames.
    pub(crate) fn next_waiting(&mut self) -> Option<usize> {
        self.last_checked = (self.last_checked + 1) % self.waiting.len().max(1);
        self.waiting(self.last_checked)
    }

    /// The waiting port at a place, from 0 on, in no particular order.
    pub(crate) fn waiting(&self, place: usize) -> Option<usize> {
        self.waiting.as_slice().get(place).map(|&Reverse((_, slot))| slot)
    }
}
