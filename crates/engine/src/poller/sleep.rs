//! Sleep: arming the ports, waiting for their descriptors, and polling those that cannot kick.
//!
//! The order against lost wake-ups: the poller arms every port. A port in memory asks its client for a kick then,
//! passes a full fence and looks for frames once more ([`ringway_switch::Input::arm`]). The poller sleeps only if no
//! port has any. A client that publishes frames after that check finds the request and kicks. A device needs no
//! request: epoll reports frames that arrive after the visit that found nothing. Last, the poller checks for a new
//! topology and for the engine's end: the thread that publishes either writes to the wake descriptor afterwards.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ringway_runtime::Signal;
use ringway_switch::{Armed, WakeOn};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::thread::{NO_PORT, Poller, Served, TIMER_TOKEN};

/// Most events that one wait returns.
const EVENTS: usize = 64;

impl Poller {
    /// Arms every port that is not armed yet. Returns false if the poller may not sleep: a port has frames or an event, there is a
    /// new topology, or the engine ends.
    pub(super) fn prepare_to_sleep(&mut self) -> bool {
        if !self.arm_waiting() {
            return false;
        }
        if let Some(slot) = self.find_detoured().or_else(|| self.arm_all()) {
            self.unpark(slot);
            self.disarm_active();
            return false;
        }
        self.schedule.park_all();
        let stops = self.shared.stop.load(Ordering::Relaxed) || self.shift.is_relieved();
        self.shared.topology.version() == self.version && !stops
    }

    /// Asks the clients of waiting ports for a kick at events other than frames. Returns false if there was such an
    /// event.
    fn arm_waiting(&mut self) -> bool {
        let (mut place, mut may_sleep) = (0, true);
        while let Some(slot) = self.schedule.waiting(place) {
            let has_event = self.time(slot, |poller| {
                let Some(Served { attached, .. }) = poller.ports[slot].as_ref() else { return false };
                poller.note.serve(attached.source.id());
                let custody = attached.source.hold(&poller.shift);
                let armed = custody.and_then(|mut custody| custody.arm(WakeOn::Events));
                poller.note.serve(NO_PORT);
                armed == Some(Armed::Pending)
            });
            if has_event {
                self.handle_events(slot);
                may_sleep = false;
            }
            place += 1;
        }
        may_sleep
    }

    /// Arms the ports that are not armed, until one has frames. Returns that port.
    fn arm_all(&mut self) -> Option<usize> {
        let mut arming = Default::default();
        while let Some(slot) = self.schedule.next_to_arm(&mut arming) {
            if self.time(slot, |poller| poller.arm(slot)) {
                return Some(slot);
            }
        }
        None
    }

    /// Asks the client of a port for a kick. Returns true if the port has frames already.
    fn arm(&mut self, slot: usize) -> bool {
        let Some(served) = self.ports[slot].as_ref() else { return false };
        // A successor may take the input away at this moment. This thread then stays awake and ends; it must not sleep on a port that it could
        // not arm.
        let Some(mut custody) = served.attached.source.hold(&self.shift) else { return served.has_input };
        if custody.work.is_none() || !self.schedule.arm(slot) {
            return false;
        }
        self.note.serve(served.attached.source.id());
        let armed = custody.arm(WakeOn::Frames);
        self.note.serve(NO_PORT);
        if armed == Some(Armed::Silent) {
            self.schedule.poll(slot);
        }
        armed == Some(Armed::Pending)
    }

    /// Tells the port's client that no kick is needed.
    pub(super) fn disarm(&mut self, slot: usize) {
        self.time(slot, |poller| {
            if !poller.schedule.disarm(slot) {
                return;
            }
            let Some(Served { attached, .. }) = poller.ports[slot].as_ref() else { return };
            poller.note.serve(attached.source.id());
            let custody = attached.source.hold(&poller.shift);
            custody.into_iter().for_each(|mut custody| custody.disarm());
            poller.note.serve(NO_PORT);
        });
    }

    /// Disarms the active ports, as the poller stays awake. A port that stayed armed would not be armed again before
    /// the next sleep, although its kick may have been consumed meanwhile.
    fn disarm_active(&mut self) {
        let mut place = 0;
        while let Some(slot) = self.schedule.active_at(place) {
            self.disarm(slot);
            place += 1;
        }
    }

    /// Polls the armed ports whose clients cannot kick, if they are due. Returns true if one has frames.
    pub(super) fn poll_silent(&mut self) -> bool {
        if !self.schedule.is_poll_due(self.now.nanoseconds) {
            return false;
        }
        let (mut place, mut found) = (0, false);
        while let Some(&slot) = self.schedule.polled().get(place) {
            if self.time(slot, |poller| poller.is_pending(slot)) {
                found = true;
                // `unpark` moves another port to this place.
                self.unpark(slot);
            } else {
                place += 1;
            }
        }
        found
    }

    /// Waits for events of descriptors and makes their ports active. Without a timeout the wait lasts until there is an
    /// event. Returns true if the only event was the timer's.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let mut events = [const { epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; EVENTS];
        let timeout = timeout.map(|t| Timespec { tv_sec: 0, tv_nsec: t.subsec_nanos().into() });
        // An interrupted wait counts as one without events.
        let count = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()).unwrap_or(0);
        let mut by_timer = false;
        for event in &events[..count] {
            let token = event.data.u64();
            if token == TIMER_TOKEN {
                by_timer = true;
                self.timer.expired();
            }
            let slot = token as usize;
            let Some(served) = self.ports.get(slot).and_then(Option::as_ref) else { continue };
            if matches!(served.attached.source.signal(), Signal::Kick(_))
                && let Some(port) = served.attached.port()
            {
                port.counters().add_kick();
            }
            self.unpark(slot);
        }
        by_timer && count == 1
    }
}
