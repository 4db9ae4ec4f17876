//! Delivery: a list of frames per destination, each destination served once (VALE §3.3.2).

use std::sync::MutexGuard;

use super::capture::Watchers;
use super::offload::{Finisher, finish, hand_over};
use super::tag::{self, Retagger};
use crate::batch::{Batch, BatchStorage, Destination, Frames, Lists};
use crate::forward::{may_hear, receiver};
use crate::frame::{Class, Cost, DropReason, MAX_PORTS};
use crate::policy::{self, Cause, Excess, Room};
use crate::port::{Counters, Given, Output, PortFault, Spent, Taken, Watch};
use crate::time::Time;
use crate::topology::{Member, Switch};

/// Lists by destination, kept between passes; only those that were used are reset.
#[derive(Debug)]
pub(crate) struct Delivery {
    lists: Lists,
    /// All frames of a batch in their order: 0, 1, 2, ...
    all: Box<[u16]>,
    /// The list that is being served, as an array.
    order: Vec<u16>,
    /// The frames for a port with several queues, with the queue of each; and those of one queue.
    pub(super) queued: Vec<(u8, u16)>,
    pub(super) own: Vec<u16>,
    finisher: Finisher,
    retagger: Retagger,
    /// Ports that were given frames in this pass.
    pub(crate) served: Vec<u16>,
    watchers: Watchers,
    /// Frames of the batch that is being delivered; 0: none is.
    delivering: usize,
    /// Of the port that is being given frames: how many, and how many it had been given before.
    giving: usize,
    given_before: u64,
    /// Of the port that is being given what was left for it: how many frames, and how many it had been given or had lost before.
    left: usize,
    left_before: u64,
    /// What the batch has for ports whose senders wait was found to have room there.
    pub(crate) room_found: bool,
    /// The last pass ended with frames that their receiver's limit refused.
    pub(crate) exhausted: Option<Exhausted>,
    /// What receivers took of passes, while these are examined.
    pub(crate) given: Option<Vec<Given>>,
}

impl Delivery {
    pub(crate) fn new(batch_limit: usize) -> Delivery {
        Delivery {
            lists: Lists::new(batch_limit),
            all: (0..batch_limit as u16).collect(),
            order: Vec::with_capacity(batch_limit),
            queued: Vec::with_capacity(batch_limit),
            own: Vec::with_capacity(batch_limit),
            finisher: Finisher::new(),
            retagger: Retagger::new(),
            served: Vec::with_capacity(MAX_PORTS),
            watchers: Watchers::new(batch_limit.max(Finisher::CHUNK)),
            delivering: 0,
            giving: 0,
            given_before: 0,
            left: 0,
            left_before: 0,
            room_found: false,
            exhausted: None,
            given: None,
        }
    }

    /// Links every frame to its destination; counts the ones that have none at the source. Frames that follow each other
    /// to one destination are linked in one go.
    #[inline]
    fn sort(&mut self, batch: &Batch<'_>, from: &Member, switch: &Switch) {
        let mut first = 0;
        while let Some((destination, end)) = batch.run(first) {
            match destination {
                Destination::Port(port) => match receiver(port, from, switch) {
                    Ok(_) => self.lists.link(port, first, end),
                    Err(reason) => from.port.counters().drop_in(reason, (end - first) as u64),
                },
                Destination::Flood => self.lists.link_flooded(first, end),
                Destination::Drop(reason) => from.port.counters().drop_in(reason, (end - first) as u64),
            }
            first = end;
        }
    }

    /// Stage "deliver": sorts the batch and serves every destination once. True when some receiver broke the rules.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, batch: &Batch<'_>, from: &Member, switch: &Switch, now: &Time) -> bool {
        self.served.clear();
        self.exhausted = None;
        (self.delivering, self.giving) = (batch.len(), 0);
        let fault = if let Some((Destination::Port(port), end)) = batch.run(0)
            && end == batch.len()
            && !switch.is_watched()
            && let Some(retag) = keep_all(batch, from, switch, port)
        {
            self.deliver_all(batch, from, switch, port, retag, now)
        } else {
            self.deliver_lists(batch, from, switch, now)
        };
        self.delivering = 0;
        fault
    }

    /// After a panic: frames of the batch that no port counted. First those that `filled` was being given, then those that
    /// were still to be given to others. A flooded frame that some have and others not is lost once.
    #[cold]
    pub(crate) fn lost(&self, filled: Option<&Member>) -> (u64, u64) {
        if self.delivering == 0 {
            return (0, 0);
        }
        let given = |to: &Member| to.port.counters().out_frames().wrapping_sub(self.given_before);
        let filling = filled.map_or(0, |to| (self.giving as u64).saturating_sub(given(to)));
        let (used, filled) = (self.lists.used(), filled.map(|to| to.owner.index()));
        let begun = self.served.iter().copied().chain(filled);
        let begun = begun.filter_map(|port| used.iter().position(|&used| used == port));
        let left = match (used.is_empty(), self.lists.has_flood()) {
            // All of one destination, or not sorted yet.
            (true, false) if self.giving == 0 => self.delivering as u64,
            (true, false) => 0,
            _ => {
                let left = &used[begun.max().map_or(0, |place| place + 1).min(used.len())..];
                let own = left.iter().map(|&port| self.lists.count(port)).sum::<usize>();
                (own + self.lists.flooded().count()) as u64
            }
        };
        (filling, left)
    }

    /// After a panic: whether a batch was being delivered.
    #[cold]
    pub(crate) fn is_delivering(&self) -> bool {
        self.delivering > 0
    }

    /// After a panic: frames that were left for a port, and that it neither was given nor counted.
    #[cold]
    pub(crate) fn lost_of_left(&self, to: &Member) -> u64 {
        (self.left as u64).saturating_sub(to.port.counters().given_or_lost().wrapping_sub(self.left_before))
    }

    /// Ports that were given frames in this pass, or are mirrors that were.
    #[cold]
    pub(crate) fn take_served(&mut self) -> Vec<u16> {
        self.watchers.add_mirrors(&mut self.served);
        std::mem::take(&mut self.served)
    }

    /// All frames go to one port, as most batches do.
    #[inline]
    fn deliver_all(
        &mut self,
        batch: &Batch<'_>,
        from: &Member,
        switch: &Switch,
        port: u16,
        retag: bool,
        now: &Time,
    ) -> bool {
        let member = match receiver(port, from, switch) {
            Ok(member) => member,
            Err(reason) => {
                from.port.counters().drop_in(reason, batch.len() as u64);
                return false;
            }
        };
        let all = std::mem::take(&mut self.all);
        let fault = self.give(batch, &all[..batch.len()], from, switch, member, retag, now);
        self.all = all;
        fault
    }

    fn deliver_lists(&mut self, batch: &Batch<'_>, from: &Member, switch: &Switch, now: &Time) -> bool {
        self.sort(batch, from, switch);
        let mut fault = false;
        let mut heard = false;
        let floods = self.lists.has_flood();
        // The VLAN of the flood, where it has one; none: each port finds its own frames in it.
        let vlan = if floods && switch.has_vlans() { self.flooded_vlan(batch) } else { None };
        let hears_flood = |port: u16| {
            floods && switch.member(port).is_some_and(|to| may_hear(to, from, vlan.map(Class::untagged)).is_ok())
        };
        for place in 0..self.lists.used().len() {
            let port = self.lists.used()[place];
            let hears = hears_flood(port);
            heard |= hears;
            fault |= self.serve(batch, from, switch, port, hears, now);
        }
        if floods {
            for &port in switch.flooded() {
                if !self.lists.has(port) && hears_flood(port) {
                    fault |= self.serve(batch, from, switch, port, true, now);
                    heard = true;
                }
            }
            if vlan.is_none() && switch.has_vlans() {
                self.count_unheard_in(batch, from, switch);
            } else if !heard {
                self.count_unheard(from);
            }
        }
        self.lists.clear();
        if switch.is_watched() {
            let all = switch.watch(from.owner.index()).map_or(&[][..], |watch| &watch.mirrors_in);
            fault |= self.watchers.finish(batch, all, switch, &mut self.finisher, &mut self.served);
        }
        fault
    }

    /// Wakes whoever waits for what was seen in this pass.
    #[cold]
    pub(crate) fn ring_watchers(&self, from: &Member, switch: &Switch) {
        let seen = self.served.iter().copied().chain([from.owner.index()]);
        seen.filter_map(|port| switch.watch(port)).for_each(Watch::ring);
    }

    #[inline]
    fn serve(
        &mut self,
        batch: &Batch<'_>,
        from: &Member,
        switch: &Switch,
        port: u16,
        floods: bool,
        now: &Time,
    ) -> bool {
        let Some(member) = switch.member(port) else { return false };
        self.lists.order(&mut self.order, port, floods);
        let mut retag = false;
        if switch.has_vlans() {
            retag = tag::keep_own(&mut self.order, batch, from, member);
            if self.order.is_empty() {
                return false;
            }
        }
        let order = std::mem::take(&mut self.order);
        let fault = self.give(batch, &order, from, switch, member, retag, now);
        self.order = order;
        fault
    }

    /// Gives the frames that `order` names to a port.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn give(
        &mut self,
        batch: &Batch<'_>,
        order: &[u16],
        from: &Member,
        switch: &Switch,
        member: &Member,
        retag: bool,
        now: &Time,
    ) -> bool {
        let port = member.owner.index();
        let mut frames = Frames::of(batch, order);
        let is_slow = member.port.congestion().is_on(now.nanoseconds);
        // Before its output is locked: the thread that serves it may have that for long.
        if is_slow && member.port.detour().is_on() && self.leave(batch, order, from, switch, member, retag, now) {
            return false;
        }
        let output = member.port.output();
        if let Some(egress) = member.policy.as_ref().and_then(|policy| policy.egress.as_ref()) {
            let sum = (order.len() == batch.len()).then(|| (batch.len(), batch.cost()));
            let costs = order.iter().map(|&index| batch.cost_of(usize::from(index)));
            let sure = if self.room_found && egress.limit().excess == Excess::Wait { sure(batch, order) } else { 0 };
            let turn = egress.admit(from.sender(), costs, sum, sure, now.nanoseconds);
            if turn.refused > 0 {
                refuse(&frames, turn.given, DropReason::EgressLimited, member, switch.watch(port));
                if order.len() == batch.len() && !self.lists.has_flood() {
                    self.exhausted = Some(exhausted(batch, port, turn.given, turn.cause));
                }
                if turn.given == 0 {
                    return false;
                }
                frames = Frames::of(batch, &order[..turn.given]);
            }
        }
        (self.giving, self.given_before) = (frames.len(), member.port.counters().out_frames());
        if is_slow {
            return self.give_in_shares(batch, frames, from, switch, member, retag, output, now);
        }
        self.hand(batch, frames, None, from, switch, member, retag, output, now)
    }

    /// Gives an output what was left for it.
    pub(crate) fn give_taken(
        &mut self,
        taken: &Taken,
        storage: BatchStorage,
        output: &mut dyn Output,
        counters: &Counters,
    ) -> (BatchStorage, Result<(), PortFault>) {
        (self.left, self.left_before) = (taken.frames(), counters.given_or_lost());
        let (mut storage, mut given, mut next) = (storage, Ok(()), 0);
        // All frames, also those behind such as the output failed at: each is then in one of its counters.
        while next < taken.frames() {
            let mut batch = storage.into_batch();
            next = taken.fill(next, self.all.len(), &mut batch);
            let frames = Frames::of(&batch, &self.all[..batch.len()]);
            given = given.and(finish(&batch, frames, output, &mut self.finisher, counters));
            storage = batch.into_storage();
        }
        self.left = 0;
        (storage, given)
    }

    /// Leaves the frames that `order` names for the thread that serves a port. False when the port has no detour any more.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn leave(
        &mut self,
        batch: &Batch<'_>,
        order: &[u16],
        from: &Member,
        switch: &Switch,
        member: &Member,
        retag: bool,
        now: &Time,
    ) -> bool {
        let (detour, watch) = (member.port.detour(), switch.watch(member.owner.index()));
        let mut given = order.len();
        let is_on = detour.leave(|_| {
            let Some(egress) = member.policy.as_ref().and_then(|policy| policy.egress.as_ref()) else { return };
            let costs = order.iter().map(|&index| batch.cost_of(usize::from(index)));
            let sure = if self.room_found && egress.limit().excess == Excess::Wait { sure(batch, order) } else { 0 };
            let turn = egress.admit(from.sender(), costs, None, sure, now.nanoseconds);
            if turn.refused > 0 {
                refuse(&Frames::of(batch, order), turn.given, DropReason::EgressLimited, member, watch);
            }
            given = turn.given;
        });
        if !is_on {
            return false;
        }
        let frames = Frames::of(batch, &order[..given]);
        let (watchers, finisher) = (&mut self.watchers, &mut self.finisher);
        if retag {
            let mut leave = |chunk: &Batch<'_>, frames: Frames<'_, '_>| {
                watchers.leave(chunk, frames, member, watch, switch, finisher);
            };
            self.retagger.deliver(frames, member, |chunk, frames| leave(chunk, frames));
        } else {
            watchers.leave(batch, frames, member, watch, switch, finisher);
        }
        true
    }

    /// Hands a port frames that all go to that queue of it, in shares; where it keeps up, `None`.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn hand(
        &mut self,
        batch: &Batch<'_>,
        mut frames: Frames<'_, '_>,
        queue: Option<u8>,
        from: &Member,
        switch: &Switch,
        member: &Member,
        retag: bool,
        mut output: MutexGuard<'_, Box<dyn Output>>,
        now: &Time,
    ) -> bool {
        if self.given.is_some() {
            return self.hand_examined(batch, frames, queue, from, switch, member, retag, output, now);
        }
        let port = member.owner.index();
        let (congestion, mut asked, mut refused) = (member.port.congestion(), 0, false);
        if let Some(queue) = queue {
            let room = output.room(frames.clone());
            let room = room.map(|(free, of)| Room { free, of, adds_up: false, frame: 1 });
            // One that stands still costs the others as little as may be.
            let (bytes, most) = match room {
                Some(Room { free: 0, .. }) => (0, 0),
                _ => congestion.most(from.sender(), queue, room, now.nanoseconds),
            };
            let turn = policy::first(frames.clone().map(|frame| Cost::of_one(frame.len())), bytes, most);
            if turn.refused > 0 {
                refuse(&frames, turn.given, DropReason::ReceiverFull, member, switch.watch(port));
                if turn.given == 0 {
                    congestion.served(from.sender(), queue, 0, true, now.nanoseconds);
                    return false;
                }
                frames = frames.first(turn.given);
            }
            (asked, refused) = (turn.cost.bytes, turn.refused > 0);
        }
        let before = member.port.counters().given_and_lost();
        self.served.push(port);
        let (watch, mut fault) = (switch.watch(port), false);
        let broke = match (retag, watch) {
            (false, None) => hand_over(batch, frames, member, &mut **output, &mut self.finisher),
            (false, Some(watch)) => {
                self.watchers.serve(batch, frames, member, output, watch, switch, &mut self.finisher)
            }
            (true, None) => {
                self.retagger.deliver(frames, member, |chunk, frames| {
                    fault |= hand_over(chunk, frames, member, &mut **output, &mut self.finisher);
                });
                fault
            }
            (true, Some(watch)) => {
                drop(output);
                let (watchers, finisher) = (&mut self.watchers, &mut self.finisher);
                self.retagger.deliver(frames, member, |chunk, frames| {
                    fault |= watchers.serve(chunk, frames, member, member.port.output(), watch, switch, finisher);
                });
                fault
            }
        };
        let after = member.port.counters().given_and_lost();
        if queue.is_some() || after.1 != before.1 {
            let (bytes, full) = (after.0.wrapping_sub(before.0), after.1 != before.1);
            // What was lost for other reasons than want of room is as good as given: there was room for it.
            let had = if full { bytes } else { bytes.max(asked) };
            match queue {
                Some(queue) => congestion.served(from.sender(), queue, had, full || refused, now.nanoseconds),
                None => congestion.begin(from.sender(), bytes, now.nanoseconds),
            }
        }
        broke
    }

    /// As [`Delivery::hand`], and notes how long it took.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn hand_examined(
        &mut self,
        batch: &Batch<'_>,
        frames: Frames<'_, '_>,
        queue: Option<u8>,
        from: &Member,
        switch: &Switch,
        member: &Member,
        retag: bool,
        output: MutexGuard<'_, Box<dyn Output>>,
        now: &Time,
    ) -> bool {
        let given = self.given.take();
        let (count, bytes) = (frames.len() as u64, frames.clone().map(|frame| frame.len() as u64).sum());
        let began = (now.read)();
        let broke = self.hand(batch, frames, queue, from, switch, member, retag, output, now);
        self.given = given;
        self.note_given(member.owner.index(), began, count, bytes, now);
        broke
    }

    /// A receiver took the time since `began`.
    #[cold]
    pub(crate) fn note_given(&mut self, port: u16, began: u64, frames: u64, bytes: u64, now: &Time) {
        let Some(given) = &mut self.given else { return };
        let place = given.iter().position(|given| given.port == port).unwrap_or_else(|| {
            given.push(Given { port, spent: Spent::default() });
            given.len() - 1
        });
        given[place].spent.add(now.read, began, frames, bytes);
    }

    /// The VLAN of all flooded frames, if it is one.
    fn flooded_vlan(&self, batch: &Batch<'_>) -> Option<u16> {
        if let Some(class) = batch.only_class() {
            return Some(class.vlan());
        }
        let mut vlans = self.lists.flooded().map(|index| batch.class(index).vlan());
        let vlan = vlans.next()?;
        vlans.all(|other| other == vlan).then_some(vlan)
    }

    /// Flooded frames of several VLANs that no port could hear.
    #[cold]
    fn count_unheard_in(&self, batch: &Batch<'_>, from: &Member, switch: &Switch) {
        let mut last = (0, false);
        for index in self.lists.flooded() {
            let vlan = batch.class(index).vlan();
            if vlan != last.0 {
                let mut ports = switch.flooded().iter().filter_map(|&port| switch.member(port));
                last = (vlan, ports.any(|to| may_hear(to, from, Some(Class::untagged(vlan))).is_ok()));
            }
            if !last.1 {
                from.port.counters().drop_in(DropReason::NoDestination, 1);
            }
        }
    }

    /// Flooded frames that no port could hear.
    #[cold]
    fn count_unheard(&self, from: &Member) {
        from.port.counters().drop_in(DropReason::NoDestination, self.lists.flooded().count() as u64);
    }
}

/// A batch that went whole to a port whose limit refused its last frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exhausted {
    /// Where it went.
    pub(crate) port: u16,
    /// Both addresses of its last frame.
    pub(crate) addresses: [u8; 12],
    /// Whether its first frame has the same.
    pub(crate) alike: bool,
    /// Frames that were given.
    pub(crate) given: usize,
    /// Why there were no more.
    pub(crate) cause: Cause,
}

/// Whether `port` wants tags put on or taken off, where it may be given the whole batch; `None`: each frame has to be looked at.
#[inline]
fn keep_all(batch: &Batch<'_>, from: &Member, switch: &Switch, port: u16) -> Option<bool> {
    if !switch.has_vlans() {
        return Some(false);
    }
    tag::keep_all(batch, from, switch.member(port)?)
}

/// How many of these frames a port gets in any case: all up to the last that waited for room there, or would have.
#[cold]
fn sure(batch: &Batch<'_>, order: &[u16]) -> usize {
    let waits = |&index: &u16| batch.destination(index.into()) != Destination::Flood;
    order.iter().rposition(waits).map_or(0, |place| place + 1)
}

/// Counts and shows all frames but the first `given` as lost.
#[cold]
pub(super) fn refuse(
    frames: &Frames<'_, '_>,
    given: usize,
    reason: DropReason,
    member: &Member,
    watch: Option<&Watch>,
) {
    let refused = frames.clone().skip(given);
    member.port.counters().drop_out(reason, refused.clone().count() as u64);
    if let Some(watch) = watch {
        watch.lose(refused, reason);
    }
}

/// All of a batch went to a port that was given so many frames and refused the others.
#[cold]
fn exhausted(batch: &Batch<'_>, port: u16, given: usize, cause: Cause) -> Exhausted {
    let both = |index: usize| batch.head(index)[..12].try_into().unwrap_or_default();
    let addresses: [u8; 12] = both(batch.len() - 1);
    Exhausted { port, addresses, alike: addresses == both(0), given, cause }
}
