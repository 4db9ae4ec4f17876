//! Delivery: a list of frames per destination, each destination served once (VALE §3.3.2).

mod queues;

use std::sync::MutexGuard;

use crate::batch::{AllFrames, Batch, BatchStorage, Destination, Frame, InTurn};
use crate::counters::{Counters, DropReason};
use crate::detour::Taken;
use crate::examine::{Given, Spent};
use crate::offload::{Accepts, Finisher};
use crate::policy::{self, Class, Cost, Excess, Exhausted, Retagger, Room};
use crate::port::{Output, PortFault};
use crate::switch::{MAX_PORTS, Member, Switch};
use crate::time::Time;
use crate::watch::{Watch, Watchers};

const NONE: u16 = u16::MAX;

/// The frames for one destination, in the order in which they came.
#[derive(Clone, Debug)]
pub struct Frames<'b, 'm> {
    all: AllFrames<'b, 'm>,
    /// Ascending.
    order: std::slice::Iter<'b, u16>,
}

impl<'b, 'm> Frames<'b, 'm> {
    /// The frames of a batch that `order` names, in that order.
    pub(crate) fn of(batch: &'b Batch<'m>, order: &'b [u16]) -> Self {
        Self { all: batch.frames(), order: order.iter() }
    }

    /// The same frames, if they are all of the batch from its first on: taking them then needs no list.
    #[inline(always)]
    #[must_use]
    pub fn in_turn(&self) -> Option<InTurn<'b, 'm>> {
        let order = self.order.as_slice();
        order.last().filter(|&&last| usize::from(last) + 1 == order.len()).map(|_| self.all.in_turn(order.len()))
    }

    /// The frame, if there is only one.
    #[inline(always)]
    #[must_use]
    pub fn single(&self) -> Option<Frame<'b, 'm>> {
        match self.order.as_slice() {
            [index] => Some(self.all.get(usize::from(*index))),
            _ => None,
        }
    }

    /// The next frame, as frames that are only this one.
    pub(crate) fn next_alone(&mut self) -> Option<Self> {
        let (alone, others) = self.order.as_slice().split_at_checked(1)?;
        self.order = others.iter();
        Some(Self { all: self.all, order: alone.iter() })
    }

    /// The first so many of them.
    fn first(&self, count: usize) -> Self {
        Self { all: self.all, order: self.order.as_slice()[..count].iter() }
    }

    /// The batch that they are of.
    pub(crate) fn all(&self) -> AllFrames<'b, 'm> {
        self.all
    }

    /// Each with its VLAN.
    pub(crate) fn classed(self) -> impl Iterator<Item = (Frame<'b, 'm>, Class)> {
        let all = self.all;
        self.order.map(move |&index| (all.get(index.into()), all.class(index.into())))
    }
}

impl<'b, 'm> Iterator for Frames<'b, 'm> {
    type Item = Frame<'b, 'm>;

    #[inline(always)]
    fn next(&mut self) -> Option<Frame<'b, 'm>> {
        self.order.next().map(|&index| self.all.get(usize::from(index)))
    }

    #[inline(always)]
    fn nth(&mut self, n: usize) -> Option<Frame<'b, 'm>> {
        self.order.nth(n).map(|&index| self.all.get(usize::from(index)))
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.order.size_hint()
    }
}

impl ExactSizeIterator for Frames<'_, '_> {}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u16,
    last: u16,
    count: u16,
}

const EMPTY: List = List { first: NONE, last: NONE, count: 0 };

/// Lists by destination, kept between passes; only those that were used are reset.
#[derive(Debug)]
pub(crate) struct Lists {
    next: Vec<u16>,
    /// All frames of a batch in their order: 0, 1, 2, ...
    all: Box<[u16]>,
    /// The list that is being served, as an array.
    order: Vec<u16>,
    ports: Vec<List>,
    used: Vec<u16>,
    /// The frames for a port with several queues, with the queue of each; and those of one queue.
    queued: Vec<(u8, u16)>,
    own: Vec<u16>,
    flood: List,
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

impl Lists {
    pub(crate) fn new(batch_limit: usize) -> Lists {
        Lists {
            next: vec![NONE; batch_limit],
            all: (0..batch_limit as u16).collect(),
            order: Vec::with_capacity(batch_limit),
            ports: vec![EMPTY; MAX_PORTS],
            used: Vec::with_capacity(batch_limit),
            queued: Vec::with_capacity(batch_limit),
            own: Vec::with_capacity(batch_limit),
            flood: EMPTY,
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

    /// Appends frames `first` up to `end` to a list.
    #[inline]
    fn link(next: &mut [u16], list: &mut List, first: usize, end: usize) {
        for (index, link) in next[first..end].iter_mut().enumerate() {
            *link = (first + index + 1) as u16;
        }
        next[end - 1] = NONE;
        if list.first == NONE {
            list.first = first as u16;
        } else {
            next[usize::from(list.last)] = first as u16;
        }
        list.last = (end - 1) as u16;
        list.count += (end - first) as u16;
    }

    /// Links every frame to its destination; counts the ones that have none at the source. Frames that follow each other
    /// to one destination are linked in one go.
    #[inline]
    fn sort(&mut self, batch: &Batch<'_>, from: &Member, switch: &Switch) {
        let mut first = 0;
        while let Some((destination, end)) = batch.run(first) {
            match destination {
                Destination::Port(port) => match self.admit(port, from, switch) {
                    Ok(()) => Self::link(&mut self.next, &mut self.ports[usize::from(port)], first, end),
                    Err(reason) => from.port.counters().drop_in(reason, (end - first) as u64),
                },
                Destination::Flood => Self::link(&mut self.next, &mut self.flood, first, end),
                Destination::Drop(reason) => from.port.counters().drop_in(reason, (end - first) as u64),
            }
            first = end;
        }
    }

    /// Whether frames from `from` may go to `port`, which is then noted as used.
    #[inline]
    fn admit(&mut self, port: u16, from: &Member, switch: &Switch) -> Result<(), DropReason> {
        reach(port, from, switch)?;
        if self.ports[usize::from(port)].first == NONE {
            self.used.push(port);
        }
        Ok(())
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
            && let Some(retag) = keep_all(batch, switch, port)
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
        let (first, filled) = (self.used.first(), filled.map(|to| to.owner.index()));
        let begun = self.served.iter().copied().chain(filled);
        let begun = begun.filter_map(|port| self.used.iter().position(|&used| used == port));
        let left = match (first, self.flood.first) {
            // All of one destination, or not sorted yet.
            (None, NONE) if self.giving == 0 => self.delivering as u64,
            (None, NONE) => 0,
            _ => {
                let left = &self.used[begun.max().map_or(0, |place| place + 1).min(self.used.len())..];
                let own = left.iter().map(|&port| u64::from(self.ports[usize::from(port)].count)).sum::<u64>();
                own + u64::from(self.flood.count)
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
        let member = match reach(port, from, switch) {
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
        let flood = self.flood.first;
        // The VLAN of the flood, where it has one; none: each port finds its own frames in it.
        let vlan = if flood != NONE && switch.has_vlans() { self.flooded_vlan(batch) } else { None };
        let may_flood = |port: u16| {
            let hears = |to: &Member| vlan.is_none_or(|vlan| to.vlans.contains(vlan));
            flood != NONE && switch.member(port).is_some_and(|to| hears(to) && may_flood(to, from))
        };
        for place in 0..self.used.len() {
            let port = self.used[place];
            let flood_too = if may_flood(port) { flood } else { NONE };
            heard |= flood_too != NONE;
            fault |= self.serve(batch, from, switch, port, flood_too, now);
        }
        if flood != NONE {
            for &port in switch.flooded() {
                if self.ports[usize::from(port)].first == NONE && may_flood(port) {
                    fault |= self.serve(batch, from, switch, port, flood, now);
                    heard = true;
                }
            }
            if vlan.is_none() && switch.has_vlans() {
                self.count_unheard_in(batch, from, switch);
            } else if !heard {
                self.count_unheard(from);
            }
            self.flood = EMPTY;
        }
        for &port in &self.used {
            self.ports[usize::from(port)] = EMPTY;
        }
        self.used.clear();
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
    fn serve(&mut self, batch: &Batch<'_>, from: &Member, switch: &Switch, port: u16, flood: u16, now: &Time) -> bool {
        let Some(member) = switch.member(port) else { return false };
        order(&mut self.order, &self.next, self.ports[usize::from(port)], flood);
        let mut retag = false;
        if switch.has_vlans() {
            retag = policy::keep_own(&mut self.order, batch, from, member);
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
            let turn = egress.admit(from, costs, sum, sure, now.nanoseconds);
            if turn.refused > 0 {
                refuse(&frames, turn.given, DropReason::EgressLimited, member, switch.watch(port));
                // Where senders wait, what could not is no sign of what may follow.
                let drops = egress.limit().excess == Excess::Drop;
                if drops && order.len() == batch.len() && self.flood.first == NONE {
                    self.exhausted = Some(batch.exhausted(port, turn.given, turn.cause));
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
        let given = taken.give(storage, &self.all, output, &mut self.finisher, counters);
        self.left = 0;
        given
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
            let turn = egress.admit(from, costs, None, sure, now.nanoseconds);
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
    fn hand(
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
                _ => congestion.most(from, queue, room, now.nanoseconds),
            };
            let turn = policy::first(frames.clone().map(|frame| Cost::of_one(frame.len())), bytes, most);
            if turn.refused > 0 {
                refuse(&frames, turn.given, DropReason::ReceiverFull, member, switch.watch(port));
                if turn.given == 0 {
                    congestion.served(from, queue, 0, true, now.nanoseconds);
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
                Some(queue) => congestion.served(from, queue, had, full || refused, now.nanoseconds),
                None => congestion.begin(from, bytes, now.nanoseconds),
            }
        }
        broke
    }

    /// As [`Lists::hand`], and notes how long it took.
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
        let vlan = batch.class(usize::from(self.flood.first)).vlan();
        self.flooded().all(|index| batch.class(index).vlan() == vlan).then_some(vlan)
    }

    fn flooded(&self) -> impl Iterator<Item = usize> + '_ {
        let there = |index: u16| (index != NONE).then_some(index);
        std::iter::successors(there(self.flood.first), move |index| there(self.next[usize::from(*index)]))
            .map(usize::from)
    }

    /// Flooded frames of several VLANs that no port could hear.
    #[cold]
    fn count_unheard_in(&self, batch: &Batch<'_>, from: &Member, switch: &Switch) {
        let mut last = (0, false);
        for index in self.flooded() {
            let vlan = batch.class(index).vlan();
            if vlan != last.0 {
                let mut ports = switch.flooded().iter().filter_map(|&port| switch.member(port));
                last = (vlan, ports.any(|to| to.vlans.contains(vlan) && may_flood(to, from)));
            }
            if !last.1 {
                from.port.counters().drop_in(DropReason::NoDestination, 1);
            }
        }
    }

    /// Flooded frames that no port could hear.
    #[cold]
    fn count_unheard(&self, from: &Member) {
        from.port.counters().drop_in(DropReason::NoDestination, self.flooded().count() as u64);
    }
}

/// Whether `port` wants tags put on or taken off, where it may be given the whole batch; `None`: each frame has to be looked at.
#[inline]
fn keep_all(batch: &Batch<'_>, switch: &Switch, port: u16) -> Option<bool> {
    if !switch.has_vlans() {
        return Some(false);
    }
    policy::keep_all(batch, switch.member(port)?)
}

/// How many of these frames a port gets in any case: all up to the last that waited for room there, or would have.
#[cold]
fn sure(batch: &Batch<'_>, order: &[u16]) -> usize {
    let waits = |&index: &u16| batch.destination(index.into()) != Destination::Flood;
    order.iter().rposition(waits).map_or(0, |place| place + 1)
}

/// Counts and shows all frames but the first `given` as lost.
#[cold]
fn refuse(frames: &Frames<'_, '_>, given: usize, reason: DropReason, member: &Member, watch: Option<&Watch>) {
    let refused = frames.clone().skip(given);
    member.port.counters().drop_out(reason, refused.clone().count() as u64);
    if let Some(watch) = watch {
        watch.lose(refused, reason);
    }
}

/// Puts the frames of a list, and those of the flood's that begins with `flood`, into the order in which they came.
#[inline]
fn order(order: &mut Vec<u16>, next: &[u16], own: List, flood: u16) {
    order.clear();
    if flood == NONE && own.count == own.last.wrapping_sub(own.first).wrapping_add(1) {
        order.extend(own.first..=own.last);
        return;
    }
    // NONE is the largest number, so the smaller of the two heads is the frame that came first.
    let (mut own, mut flood) = (own.first, flood);
    while own != NONE || flood != NONE {
        let head = if own <= flood { &mut own } else { &mut flood };
        order.push(*head);
        *head = next[usize::from(*head)];
    }
}

/// Whether frames from `from` may go to `port`.
#[inline]
pub(crate) fn reach<'s>(port: u16, from: &Member, switch: &'s Switch) -> Result<&'s Member, DropReason> {
    let member = switch.member(port).ok_or(DropReason::NoDestination)?;
    if member.owner == from.owner {
        return Err(DropReason::SamePort);
    }
    policy::may_pass(from, member)?;
    Ok(member)
}

/// Gives frames of the batch to a port whose output is `output`. True when it broke the rules.
#[inline]
pub(crate) fn hand_over(
    batch: &Batch<'_>,
    frames: Frames<'_, '_>,
    member: &Member,
    output: &mut dyn Output,
    finisher: &mut Finisher,
) -> bool {
    let delivered = if output_takes_all(batch, output) {
        output.deliver(frames, member.port.counters())
    } else {
        finisher.deliver(frames, output, member.port.counters())
    };
    match delivered {
        Ok(()) => false,
        Err(fault) => {
            member.port.fail(fault);
            true
        }
    }
}

/// Whether no frame of the batch has to be finished for this output.
#[inline]
fn output_takes_all(batch: &Batch<'_>, output: &dyn Output) -> bool {
    batch.needs() == Accepts::NOTHING || output.accepts().contains(batch.needs())
}

/// Whether `to` hears what `from` floods, where both are in its VLAN.
#[inline]
pub(crate) fn may_flood(to: &Member, from: &Member) -> bool {
    to.owner != from.owner && policy::may_pass(from, to).is_ok()
}
