//! The ports of a schedule: the state of each, and one list for each state.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pacing::Pacing;

/// Empty visits after which an active port is parked.
const PARK_AFTER: u32 = 256;
/// Empty visits after which an active device is parked. Each visit to a device is a system call. A device is parked only after
/// a visit that found nothing, and whatever comes after that visit is an event of its descriptor.
const PARK_DEVICE_AFTER: u32 = 16;

/// How a port announces frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In memory that the poller reads.
    Memory,
    /// By a descriptor only.
    Device,
}

/// The state of a port in the schedule.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Each round visits the port.
    Active,
    /// Rounds skip the port until this time, then visit it.
    Resting(u64),
    /// Rounds poll the port in rotation with the other parked ports.
    Parked,
    /// Parked and armed, but its client cannot kick: a sleeping poller polls the port at intervals.
    Polled,
    /// The port is not visited before this time.
    Waiting(u64),
}

/// The list that a port is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// No port has this slot.
    Vacant,
    Active,
    Parked,
    Waiting,
}

/// An active port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) slot: usize,
    /// Rounds skip the port before this time.
    pub(super) rests_until: u64,
}

/// One port.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) list: List,
    /// Index in `active` or `parked`, whichever the port is in.
    place: usize,
    /// While the port is parked and in `unarmed` or `polled`: the index there.
    side_place: usize,
    /// True if the poller asked the client for a kick.
    pub(super) armed: bool,
    /// True if the client cannot kick, although the port is armed.
    pub(super) needs_polling: bool,
    /// Consecutive visits that found nothing.
    pub(super) empty_visits: u32,
    pub(super) park_after: u32,
    pub(super) is_paced: bool,
    pub(super) pacing: Pacing,
    /// While the port is in `waiting`: its time there.
    pub(super) until: u64,
    /// The port was set aside: it becomes active no earlier than this.
    pub(super) not_before: u64,
}

/// The schedule of one poller (see the module's comment).
#[derive(Debug)]
pub(crate) struct Schedule {
    /// True if active ports in memory rest.
    pacing: bool,
    /// By slot.
    pub(super) ports: Vec<Entry>,
    vacant: Vec<usize>,
    pub(super) active: Vec<Turn>,
    pub(super) parked: Vec<usize>,
    /// The parked ports that are not armed.
    pub(super) unarmed: Vec<usize>,
    /// The parked ports that are armed and need polling.
    pub(super) polled: Vec<usize>,
    /// The time of the next poll of `polled`, once the poller has slept with such ports.
    pub(super) next_poll: Option<u64>,
    /// The ports that wait, earliest first.
    pub(super) waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Index in `parked` of the port that is polled next. Those before it have been polled in this turn.
    pub(super) next_parked: usize,
    /// Index in `waiting` of the port whose events were checked last.
    pub(super) last_checked: usize,
    /// True if the last round skipped a resting port.
    pub(super) is_resting: bool,
}

impl Schedule {
    /// A schedule without ports. With `pacing`, an active port in memory rests if its driver sends more that way.
    pub(crate) fn new(pacing: bool) -> Schedule {
        Schedule {
            pacing,
            ports: Vec::new(),
            vacant: Vec::new(),
            active: Vec::new(),
            parked: Vec::new(),
            unarmed: Vec::new(),
            polled: Vec::new(),
            next_poll: None,
            waiting: BinaryHeap::new(),
            next_parked: 0,
            last_checked: 0,
            is_resting: false,
        }
    }

    /// Adds a port, active, so that the next round visits it. Returns its slot.
    pub(crate) fn admit(&mut self, kind: Kind) -> usize {
        let entry = Entry {
            list: List::Vacant,
            place: 0,
            side_place: 0,
            armed: false,
            needs_polling: false,
            empty_visits: 0,
            park_after: if kind == Kind::Memory { PARK_AFTER } else { PARK_DEVICE_AFTER },
            is_paced: self.pacing && kind == Kind::Memory,
            pacing: Pacing::new(),
            until: 0,
            not_before: 0,
        };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.ports[slot] = entry;
                slot
            }
            None => {
                self.ports.push(entry);
                self.reserve_lists();
                self.ports.len() - 1
            }
        };
        self.enter_active(slot);
        slot
    }

    /// Gives every list room for all ports: while frames move, a port's change of state allocates nothing.
    pub(super) fn reserve_lists(&mut self) {
        let ports = self.ports.len();
        self.active.reserve(ports.saturating_sub(self.active.len()));
        for list in [&mut self.vacant, &mut self.parked, &mut self.unarmed, &mut self.polled] {
            list.reserve(ports.saturating_sub(list.len()));
        }
        self.waiting.reserve(ports.saturating_sub(self.waiting.len()));
    }

    /// Removes a port. Its slot may be given to another.
    pub(crate) fn remove(&mut self, slot: usize) {
        match self.ports[slot].list {
            List::Vacant => return,
            List::Active => self.leave_active(slot),
            List::Parked => self.leave_parked(slot),
            List::Waiting => self.waiting.retain(|&Reverse((_, waiting))| waiting != slot),
        }
        self.ports[slot].list = List::Vacant;
        self.vacant.push(slot);
    }

    /// Rebuilds the lists after a panic, which may have left any list half changed. Waiting ports keep waiting, all
    /// others become active. The poller disarms these.
    pub(crate) fn rebuild(&mut self) {
        self.vacant.clear();
        self.active.clear();
        self.parked.clear();
        self.unarmed.clear();
        self.polled.clear();
        self.waiting.clear();
        (self.next_parked, self.last_checked, self.next_poll) = (0, 0, None);
        for slot in 0..self.ports.len() {
            match self.ports[slot].list {
                List::Vacant => self.vacant.push(slot),
                List::Waiting => self.waiting.push(Reverse((self.ports[slot].until, slot))),
                List::Active | List::Parked => self.enter_active(slot),
            }
        }
    }

    /// The number of slots, vacant ones included.
    pub(crate) fn slots(&self) -> usize {
        self.ports.len()
    }

    /// Returns true if a port is active.
    pub(crate) fn is_active(&self, slot: usize) -> bool {
        self.ports[slot].list == List::Active
    }

    /// The active ports, resting ones included.
    #[inline]
    pub(crate) fn active(&self) -> impl Iterator<Item = usize> {
        self.active.iter().map(|turn| turn.slot)
    }

    /// The active port at position `place` (from 0), in no particular order.
    #[inline]
    pub(crate) fn active_at(&self, place: usize) -> Option<usize> {
        self.active.get(place).map(|turn| turn.slot)
    }

    /// The parked ports.
    pub(crate) fn parked(&self) -> &[usize] {
        &self.parked
    }

    /// Puts a port that is in no list among the active ones.
    pub(super) fn enter_active(&mut self, slot: usize) {
        let port = &mut self.ports[slot];
        (port.list, port.place, port.empty_visits) = (List::Active, self.active.len(), 0);
        self.active.push(Turn { slot, rests_until: 0 });
    }

    /// Takes an active port out of its list. The last active port moves to its position.
    pub(super) fn leave_active(&mut self, slot: usize) {
        let place = self.ports[slot].place;
        self.active.swap_remove(place);
        if let Some(&Turn { slot: moved, .. }) = self.active.get(place) {
            self.ports[moved].place = place;
        }
    }

    /// Puts a port that is in no list among the parked ones, behind all others.
    pub(super) fn enter_parked(&mut self, slot: usize) {
        let port = &mut self.ports[slot];
        (port.list, port.place) = (List::Parked, self.parked.len());
        self.parked.push(slot);
        self.enter_side(slot);
    }

    /// Takes a parked port out of its list. Ports that have not been polled in this turn stay behind `next_parked`.
    pub(super) fn leave_parked(&mut self, slot: usize) {
        self.leave_side(slot);
        let mut place = self.ports[slot].place;
        if place < self.next_parked {
            // A port that has been polled fills the gap.
            self.next_parked -= 1;
            let moved = self.parked[self.next_parked];
            self.parked[place] = moved;
            self.ports[moved].place = place;
            place = self.next_parked;
        }
        self.parked.swap_remove(place);
        if let Some(&moved) = self.parked.get(place) {
            self.ports[moved].place = place;
        }
    }

    /// The list of a parked port besides `parked`: `unarmed`, `polled` or none.
    fn side(&mut self, slot: usize) -> Option<&mut Vec<usize>> {
        match &self.ports[slot] {
            Entry { armed: false, .. } => Some(&mut self.unarmed),
            Entry { needs_polling: true, .. } => Some(&mut self.polled),
            _ => None,
        }
    }

    /// Puts a parked port into the list that `armed` and `needs_polling` say.
    pub(super) fn enter_side(&mut self, slot: usize) {
        if let Some(list) = self.side(slot) {
            list.push(slot);
            let place = list.len() - 1;
            self.ports[slot].side_place = place;
        }
    }

    /// Takes a parked port out of that list, before `armed` or `needs_polling` change.
    pub(super) fn leave_side(&mut self, slot: usize) {
        let place = self.ports[slot].side_place;
        if let Some(list) = self.side(slot) {
            list.swap_remove(place);
            if let Some(&moved) = list.get(place) {
                self.ports[moved].side_place = place;
            }
        }
    }

    /// Puts a port that is in no list among the waiting ones.
    pub(super) fn enter_waiting(&mut self, slot: usize, until: u64) {
        let port = &mut self.ports[slot];
        (port.list, port.until) = (List::Waiting, until);
        self.waiting.push(Reverse((until, slot)));
    }

    /// Puts a port that is in no list among the active ones, or among the waiting ones while it is set aside. Returns
    /// true if it is active.
    pub(super) fn enter(&mut self, slot: usize, now: u64) -> bool {
        let not_before = self.ports[slot].not_before;
        if not_before > now {
            self.enter_waiting(slot, not_before);
            return false;
        }
        self.enter_active(slot);
        true
    }

    /// The state of a port at `now`.
    ///
    /// # Panics
    /// No port has the slot.
    #[cfg(test)]
    pub(super) fn state(&self, slot: usize, now: u64) -> State {
        let port = &self.ports[slot];
        match port.list {
            List::Vacant => panic!("no port has slot {slot}"),
            List::Active => match self.active[port.place].rests_until {
                until if until > now => State::Resting(until),
                _ => State::Active,
            },
            List::Parked if port.armed && port.needs_polling => State::Polled,
            List::Parked => State::Parked,
            List::Waiting => State::Waiting(port.until),
        }
    }

    /// Checks that each port is in the lists of its state, once, and in no other, and that each list has room for all ports.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let slots = [&self.vacant, &self.parked, &self.unarmed, &self.polled].map(Vec::capacity);
        let room = slots.into_iter().chain([self.active.capacity(), self.waiting.capacity()]).min();
        assert!(room >= Some(self.ports.len()), "a list has room for {room:?} of {} ports", self.ports.len());
        let active = self.active().collect();
        let lists = [&self.vacant, &active, &self.parked, &self.unarmed, &self.polled];
        let waiting: Vec<usize> = self.waiting.iter().map(|&Reverse((_, slot))| slot).collect();
        for (slot, port) in self.ports.iter().enumerate() {
            let parked = port.list == List::Parked;
            let expected = [
                port.list == List::Vacant,
                port.list == List::Active,
                parked,
                parked && !port.armed,
                parked && port.armed && port.needs_polling,
                port.list == List::Waiting,
            ];
            let counts = lists.into_iter().chain([&waiting]).map(|list| list.iter().filter(|&&at| at == slot).count());
            assert_eq!(counts.collect::<Vec<_>>(), expected.map(usize::from), "slot {slot}: {port:?}");
            match port.list {
                List::Active => assert_eq!(active[port.place], slot),
                List::Parked => assert_eq!(self.parked[port.place], slot),
                List::Waiting => assert!(self.waiting.iter().any(|&Reverse(entry)| entry == (port.until, slot))),
                List::Vacant => {}
            }
        }
        assert!(self.next_parked <= self.parked.len());
    }
}
