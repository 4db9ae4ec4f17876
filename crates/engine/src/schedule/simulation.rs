//! A simulated poller without threads: simulated clients and a simulated clock, driven by the schedule like the real
//! poller.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lists::{Kind, Schedule, State};
use super::round::Visit;
use super::sleep::Arming;
use crate::settings::Idle;

/// A client, as the poller sees it through its port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) kind: Kind,
    /// Frames in its memory. A visit moves all of them.
    pub(super) frames: u64,
    /// Nanoseconds from a visit on for which a limit holds the frames back.
    pub(super) held: Option<u64>,
    pub(super) cannot_kick: bool,
    /// True if the poller does not have the input of this port.
    pub(super) has_no_input: bool,
    /// True if the poller asked for a kick.
    armed: bool,
}

/// The result of an attempt to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slept {
    /// The port in this slot has frames: the poller stays awake.
    Awake(usize),
    /// The poller sleeps, at most until this time.
    Until(Option<u64>),
}

pub(super) struct Simulation {
    pub(super) schedule: Schedule,
    pub(super) now: u64,
    /// The time of the last work.
    pub(super) worked: u64,
    /// By slot.
    pub(super) clients: BTreeMap<usize, Client>,
}

impl Simulation {
    pub(super) fn new(pacing: bool) -> Simulation {
        Simulation {
            schedule: Schedule::new(pacing),
            now: 1_000_000_000,
            worked: 1_000_000_000,
            clients: BTreeMap::new(),
        }
    }

    pub(super) fn admit(&mut self, kind: Kind) -> usize {
        let slot = self.schedule.admit(kind);
        let client = Client { kind, frames: 0, held: None, cannot_kick: false, has_no_input: false, armed: false };
        assert!(self.clients.insert(slot, client).is_none(), "slot {slot} is given out twice");
        slot
    }

    pub(super) fn admit_many(&mut self, count: usize) -> Vec<usize> {
        (0..count).map(|_| self.admit(Kind::Memory)).collect()
    }

    pub(super) fn remove(&mut self, slot: usize) {
        self.unpark(slot);
        self.disarm(slot);
        self.schedule.remove(slot);
        self.clients.remove(&slot).expect("a client");
    }

    pub(super) fn client(&mut self, slot: usize) -> &mut Client {
        self.clients.get_mut(&slot).expect("a client")
    }

    pub(super) fn state(&self, slot: usize) -> State {
        self.schedule.state(slot, self.now)
    }

    /// Returns true if polling the memory of a port finds frames.
    fn is_pending(&self, slot: usize) -> bool {
        let client = self.clients[&slot];
        client.kind == Kind::Memory && client.frames > 0 && !client.has_no_input
    }

    /// Simulates that the port's descriptor wakes the poller, or that polling finds frames.
    pub(super) fn unpark(&mut self, slot: usize) {
        if self.schedule.unpark(slot, self.now) {
            self.disarm(slot);
        }
    }

    pub(super) fn disarm(&mut self, slot: usize) {
        let was_armed = self.client(slot).armed;
        assert_eq!(self.schedule.disarm(slot), was_armed, "slot {slot}");
        self.client(slot).armed = false;
    }

    /// Runs one round. Returns the visited slots in order.
    pub(super) fn round(&mut self) -> Vec<usize> {
        while let Some(slot) = self.schedule.resume(self.now) {
            self.disarm(slot);
        }
        self.schedule.begin_round();
        let (mut visited, mut place) = (Vec::new(), 0);
        while let Some(slot) = self.schedule.next_active(&mut place, self.now) {
            visited.push(slot);
            let client = self.client(slot);
            let until = client.held.filter(|_| client.frames > 0 && !client.has_no_input);
            let moved = if until.is_some() || client.has_no_input { 0 } else { std::mem::take(&mut client.frames) };
            let visit = Visit { frames: moved, more: false, until: until.map(|held| self.now + held) };
            if moved > 0 {
                self.worked = self.now;
            }
            assert_eq!(self.schedule.visited(&mut place, slot, self.now, visit), moved > 0);
        }
        for _ in 0..self.schedule.polls() {
            let Some(slot) = self.schedule.next_parked() else { break };
            if self.is_pending(slot) {
                self.unpark(slot);
            } else {
                self.schedule.keep_parked();
            }
        }
        visited
    }

    /// Runs rounds until all ports without frames are parked.
    pub(super) fn park(&mut self) {
        (0..=257).for_each(|_| drop(self.round()));
    }

    /// Arms all ports, and sleeps or stays awake.
    pub(super) fn sleep(&mut self) -> Slept {
        let mut arming = Arming::default();
        while let Some(slot) = self.schedule.next_to_arm(&mut arming) {
            if self.clients[&slot].has_no_input || !self.schedule.arm(slot) {
                continue;
            }
            self.client(slot).armed = true;
            if self.clients[&slot].cannot_kick {
                self.schedule.poll(slot);
            }
            if self.is_pending(slot) {
                self.unpark(slot);
                for slot in self.schedule.active().collect::<Vec<_>>() {
                    self.disarm(slot);
                }
                return Slept::Awake(slot);
            }
        }
        self.schedule.park_all();
        Slept::Until(self.schedule.next_wake(self.now, Duration::from_nanos(self.now - self.worked)))
    }

    /// The poller wakes: polls the ports that cannot kick, if they are due. Returns the polled slots.
    pub(super) fn wake(&mut self) -> Vec<usize> {
        let polled = if self.schedule.is_poll_due(self.now) { self.schedule.polled().to_vec() } else { Vec::new() };
        for &slot in &polled {
            if self.is_pending(slot) {
                self.unpark(slot);
            }
        }
        polled
    }

    /// Puts a frame into a client's memory, and kicks if that was requested and the client can.
    pub(super) fn send(&mut self, slot: usize) {
        self.client(slot).frames += 1;
        let client = self.clients[&slot];
        if client.armed && !client.cannot_kick || client.kind == Kind::Device {
            self.unpark(slot);
        }
    }

    /// Puts a frame into a client's memory that may not pass for `time` nanoseconds from a visit on.
    pub(super) fn send_held(&mut self, slot: usize, time: u64) {
        let client = self.client(slot);
        (client.frames, client.held) = (client.frames + 1, Some(time));
    }

    pub(super) fn may_sleep(&self, idle: Idle) -> bool {
        self.schedule.may_sleep(idle, Duration::from_nanos(self.now - self.worked))
    }
}
