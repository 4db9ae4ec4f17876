//! Sleep: which ports the poller arms before, when it wakes, and what wakes a port.

use std::cmp::Reverse;
use std::time::Duration;

use super::lists::{List, Schedule};
use super::poll_interval::poll_interval;
use crate::settings::Idle;

/// How far the poller is in arming its ports: the number of active and of unarmed ports that are done.
#[derive(Debug, Default)]
pub(crate) struct Arming {
    active: usize,
    unarmed: usize,
    last: Option<usize>,
}

impl Schedule {
    /// Whether a poller with this idle policy may sleep, after `quiet` without work.
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

    /// The time at which a sleeping poller wakes: when the first waiting port is due, or when the polled ones are, after `quiet`
    /// without work. `None`: it sleeps until a descriptor wakes it.
    pub(crate) fn next_wake(&self, now: u64, quiet: Duration) -> Option<u64> {
        let resumed = self.waiting.peek().map(|&Reverse((until, _))| until);
        let poll = (!self.polled.is_empty()).then(|| now + poll_interval(quiet).as_nanos() as u64);
        resumed.into_iter().chain(poll).min()
    }

    /// The next port that the poller arms before it sleeps: each active one, then each parked one that is not armed. A port that
    /// the poller cannot arm is returned once. When a port turns out to have frames, the poller stops arming, calls
    /// [`Schedule::unpark`] for it and disarms all active ports.
    pub(crate) fn next_to_arm(&mut self, arming: &mut Arming) -> Option<usize> {
        if let Some(slot) = self.active_at(arming.active) {
            arming.active += 1;
            return Some(slot);
        }
        // The last one, where it was armed, has left the list.
        if arming.last.is_some() && self.unarmed.get(arming.unarmed).copied() == arming.last {
            arming.unarmed += 1;
        }
        arming.last = self.unarmed.get(arming.unarmed).copied();
        arming.last
    }

    /// Whether a port is armed.
    #[cfg(test)]
    pub(super) fn is_armed(&self, slot: usize) -> bool {
        self.ports[slot].armed
    }

    /// The poller arms an active or parked port. Returns false if it is armed already.
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

    /// A port that has just been armed cannot kick.
    #[cold]
    pub(crate) fn poll(&mut self, slot: usize) {
        let port = &mut self.ports[slot];
        port.needs_polling = true;
        if port.list == List::Parked {
            self.enter_side(slot);
        }
    }

    /// The poller is not to be kicked by a port that is not parked. Returns whether the port was armed.
    #[inline]
    pub(crate) fn disarm(&mut self, slot: usize) -> bool {
        let port = &mut self.ports[slot];
        debug_assert!(port.list != List::Parked, "slot {slot} is parked");
        port.needs_polling = false;
        std::mem::take(&mut port.armed)
    }

    /// All ports are armed, so that the poller sleeps: parks the active ones.
    pub(crate) fn park_all(&mut self) {
        for place in 0..self.active.len() {
            self.enter_parked(self.active[place].slot);
        }
        self.active.clear();
    }

    /// A port has frames, or its descriptor woke the poller. A parked one becomes active, or waits while it is set aside. Returns
    /// true if it became active: the poller disarms it then.
    #[inline]
    pub(crate) fn unpark(&mut self, slot: usize, now: u64) -> bool {
        if self.ports.get(slot).is_none_or(|port| port.list != List::Parked) {
            return false;
        }
        self.leave_parked(slot);
        self.enter(slot, now)
    }

    /// The parked ports that are armed and cannot kick. A poller that wakes polls each.
    pub(crate) fn polled(&self) -> &[usize] {
        &self.polled
    }
}
