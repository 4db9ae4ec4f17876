//! Sleep: the ports that the poller arms before it sleeps, the time at which it wakes, and the activation of parked
//! ports.

use std::cmp::Reverse;
use std::time::Duration;

use super::lists::{List, Schedule};
use super::poll_interval::poll_interval;
use crate::settings::Idle;

/// Progress of arming the ports: the number of active and of unarmed ports that are done.
#[derive(Debug, Default)]
pub(crate) struct Arming {
    active: usize,
    unarmed: usize,
    last: Option<usize>,
}

impl Schedule {
    /// Returns true if a poller with this idle policy may sleep, after `quiet` without work.
    #[inline]
    pub(crate) fn may_sleep(&self, idle: Idle, quiet: Duration) -> bool {
        match idle {
            // A resting port is due within microseconds.
            _ if self.is_resting => false,
            Idle::Spin => false,
            Idle::Adaptive(time) => quiet >= time,
            Idle::Sleep => true,
        }
    }

    /// The time at which a sleeping poller wakes, after `quiet` without work: when the first waiting port is due, or
    /// when the polled ports are. `None`: only a descriptor wakes it.
    pub(crate) fn next_wake(&mut self, now: u64, quiet: Duration) -> Option<u64> {
        let resumed = self.waiting.peek().map(|&Reverse((until, _))| until);
        // A poll that is planned already stays, so that events of other ports do not put it off.
        self.next_poll = (!self.polled.is_empty()).then(|| {
            let at = now + poll_interval(quiet).as_nanos() as u64;
            self.next_poll.map_or(at, |planned| planned.min(at))
        });
        resumed.into_iter().chain(self.next_poll).min()
    }

    /// Returns true if the polled ports are due at `now`: the poller then polls each of [`Schedule::polled`]. A poller that an
    /// event wakes earlier does not poll them, so an event costs the same however many such ports there are.
    pub(crate) fn is_poll_due(&mut self, now: u64) -> bool {
        self.next_poll.take_if(|at| *at <= now).is_some()
    }

    /// The next port that the poller arms before it sleeps: each active one, then each parked one that is not armed. A port that
    /// the poller cannot arm is returned once. When a port turns out to have frames, the poller stops arming, calls
    /// [`Schedule::unpark`] for it and disarms all active ports.
    pub(crate) fn next_to_arm(&mut self, arming: &mut Arming) -> Option<usize> {
        if let Some(slot) = self.active_at(arming.active) {
            arming.active += 1;
            return Some(slot);
        }
        // If the last port was armed, it has left the list.
        if arming.last.is_some() && self.unarmed.get(arming.unarmed).copied() == arming.last {
            arming.unarmed += 1;
        }
        arming.last = self.unarmed.get(arming.unarmed).copied();
        arming.last
    }

    /// Returns true if a port is armed.
    #[cfg(test)]
    pub(super) fn is_armed(&self, slot: usize) -> bool {
        self.ports[slot].armed
    }

    /// Notes that the poller arms an active or parked port. Returns false if it is armed already.
    #[inline]
    pub(crate) fn arm(&mut self, slot: usize) -> bool {
        let port = &mut self.ports[slot];
        if port.armed {
            return false;
        }
        if port.list == List::Parked {
            self.leave_side(slot);
        }
        self.ports[slot].armed = true;
        true
    }

    /// Notes that the client of a port that was just armed cannot kick.
    #[cold]
    pub(crate) fn poll(&mut self, slot: usize) {
        let port = &mut self.ports[slot];
        port.needs_polling = true;
        if port.list == List::Parked {
            self.enter_side(slot);
        }
    }

    /// Notes that the poller disarms a port that is not parked. Returns true if the port was armed.
    #[inline]
    pub(crate) fn disarm(&mut self, slot: usize) -> bool {
        let port = &mut self.ports[slot];
        debug_assert!(port.list != List::Parked, "slot {slot} is parked");
        port.needs_polling = false;
        std::mem::take(&mut port.armed)
    }

    /// Parks the active ports. To be called when all ports are armed, before the poller sleeps.
    pub(crate) fn park_all(&mut self) {
        for place in 0..self.active.len() {
            self.enter_parked(self.active[place].slot);
        }
        self.active.clear();
    }

    /// Activates a parked port that has frames or whose descriptor woke the poller; while the port is set aside, it
    /// waits instead. Returns true if it became active: the poller disarms it then.
    #[inline]
    pub(crate) fn unpark(&mut self, slot: usize, now: u64) -> bool {
        if self.ports.get(slot).is_none_or(|port| port.list != List::Parked) {
            return false;
        }
        self.leave_parked(slot);
        self.enter(slot, now)
    }

    /// The parked ports that are armed and whose clients cannot kick.
    pub(crate) fn polled(&self) -> &[usize] {
        &self.polled
    }
}
