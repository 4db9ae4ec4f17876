//! The path of a frame.

use std::sync::atomic::{Ordering, fence};

use crate::batch::BatchStorage;
use crate::calls::PendingCalls;
use crate::counters::DropReason;
use crate::defect::{Defect, Place, Role, giving, take_giving};
use crate::deliver::Lists;
use crate::examine::Given;
use crate::policy::exhausted::drop_alike;
use crate::policy::hold::hold;
use crate::policy::{self, Turn};
use crate::port::{Discarded, Input, News, Port, PortFault};
use crate::switch::{Member, Switch};
use crate::time::Time;

/// Frames of a pass, when some of them are beyond a limit and dropped: while more were, the poller's other ports would wait.
const MOST_DROPPED: usize = 128;

/// No port of a switch.
const NOBODY: u16 = u16::MAX;

/// What a poller needs for passing frames, allocated once, and the calls that its passes left pending.
#[derive(Debug)]
pub struct Workspace {
    batch: Option<BatchStorage>,
    lists: Lists,
    limit: usize,
    /// The port that is being called, after a batch was delivered; [`NOBODY`].
    calling: u16,
    /// After a panic: ports with news of which they were not told.
    untold: Vec<(u16, News)>,
    /// To be made when they are due, by whoever has the workspace.
    pub calls: PendingCalls,
}

impl Workspace {
    /// For batches of up to `batch` frames (1 to [`crate::MAX_BATCH`]).
    #[must_use]
    pub fn new(batch: usize) -> Workspace {
        let limit = batch.clamp(1, crate::MAX_BATCH);
        let (batch, lists) = (Some(BatchStorage::new(limit)), Lists::new(limit));
        Workspace { batch, lists, limit, calling: NOBODY, untold: Vec::new(), calls: PendingCalls::new() }
    }

    /// After a panic in [`pass`], [`see_news`], [`empty`] or [`Workspace::tell_rest`] for `from`: what was half done is thrown
    /// away, and whose it was is retired: the port that was being called, or else `from` and every port that was being given
    /// frames. Their frames of the batch are counted as lost. True when `from` is retired: its input is of no use any more.
    ///
    /// `from` is a [`Role::Source`] only where nobody else chose what was read: while frames are delivered it is a
    /// [`Role::Sender`], and while it is given what others left for it, a [`Role::Receiver`].
    ///
    /// Ports that have their frames of the batch are to be told by [`Workspace::tell_rest`].
    #[cold]
    pub fn blame(&mut self, switch: &Switch, from: &Member, place: Place) -> bool {
        let lists = std::mem::replace(&mut self.lists, Lists::new(self.limit));
        self.batch = None;
        let is_given = take_giving();
        let retire = |port: &Port, role, lost| port.retire(Defect { role, place }, lost);
        let calling = std::mem::replace(&mut self.calling, NOBODY);
        self.untold.push((from.owner.index(), News::Room));
        if let Some(called) = switch.member(calling).filter(|called| called.owner != from.owner) {
            // All frames are where they belong, and the input has its own back.
            let served = lists.served.iter().skip_while(|&&port| port != calling).skip(1);
            self.untold.extend(served.map(|&port| (port, News::Frames)));
            retire(&called.port, Role::Receiver, 0);
            return false;
        }
        let mut filled = None;
        for to in switch.members().filter(|to| to.owner != from.owner && to.port.is_output_broken()) {
            retire(&to.port, Role::Receiver, lists.lost(Some(to)).0);
            filled = Some(to);
        }
        from.port.counters().drop_in(DropReason::InternalError, lists.lost(filled).1);
        let role = match (is_given, lists.is_delivering()) {
            (true, _) => Role::Receiver,
            (false, true) => Role::Sender,
            (false, false) => Role::Source,
        };
        retire(&from.port, role, lists.lost_of_left(from));
        if is_given {
            // Nobody empties it any more.
            from.port.abandon_detour();
        }
        self.untold.extend({ lists }.take_served().into_iter().map(|port| (port, News::Frames)));
        true
    }

    /// After [`Workspace::blame`]: calls the clients of the ports that have news since the batch. True when that cost a port its
    /// place, as [`Passed::receiver_fault`].
    #[cold]
    pub fn tell_rest(&mut self, switch: &Switch, now: &Time) -> bool {
        fence(Ordering::SeqCst);
        let mut fault = false;
        while let Some((port, news)) = self.untold.pop() {
            let Some(member) = switch.member(port) else { continue };
            self.calling = port;
            fault |= self.calls.ring(&member.port, news, now);
            switch.watch(port).inspect(|watch| watch.ring());
            self.calling = NOBODY;
        }
        fault
    }
}

impl Workspace {
    /// Has it noted from now on what each receiver takes of the passes, or noted no longer.
    pub fn examine(&mut self, on: bool) {
        match (&mut self.lists.given, on) {
            (Some(given), true) => given.clear(),
            (given, true) => *given = Some(Vec::new()),
            (given, false) => *given = None,
        }
    }

    /// What receivers took since [`Workspace::examine`] was called.
    #[must_use]
    pub fn given(&self) -> &[Given] {
        self.lists.given.as_deref().unwrap_or_default()
    }
}

/// What came of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Frames taken from the source.
    pub frames: u64,
    /// The source may have more, although the batch was not full.
    pub more: bool,
    /// The source is not to be served before this time (nanoseconds): what it has may not pass yet.
    pub until: Option<u64>,
    /// The source broke the rules and must end.
    pub fault: Option<PortFault>,
    /// A receiver broke the rules, or waking a port blocked; [`crate::Port::fault`] says which.
    pub receiver_fault: bool,
}

/// Moves one batch of frames from a port to wherever they go.
pub fn pass(switch: &Switch, from: &Member, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> Passed {
    let turn = from.policy.as_ref().map_or(Turn::Free, |policy| policy.turn(now));
    if let Turn::Drop(_) | Turn::Wait(..) = turn {
        return refuse(turn, from, switch, input, work, now);
    }

    // Collect.
    let storage = work.batch.take().unwrap_or_else(|| BatchStorage::new(work.limit));
    let may_hold = switch.holds() && input.keeps();
    let mut batch = storage.into_batch();
    if let (Some(policy), Turn::Limited(grant)) = (&from.policy, &turn) {
        policy.bound(&mut batch, grant, may_hold);
    }
    let probe = from.port.probe();
    if probe > 0 {
        batch.bound(u64::MAX, probe.into());
    }
    let fault = input.collect(&mut batch).err();

    // Admit: what could not be taken is counted.
    let (collected, mut bytes, mut refused) = (batch.len(), batch.bytes(), 0);
    for (reason, frames) in batch.refused() {
        from.port.counters().drop_in(reason, frames);
        refused += frames;
    }
    let (mut taken, more) = (collected as u64 + refused, batch.may_be_more());
    let watch = switch.watch(from.owner.index());
    if let Some(policy) = &from.policy {
        policy.admit(&mut batch, from, &turn, watch);
    }
    if taken == 0 {
        if let Some(policy) = &from.policy {
            policy.charge(&mut batch, &turn, switch, now);
        }
        work.batch = Some(batch.into_storage());
        input.release();
        let receiver_fault = see_news(from, input, work, now);
        return Passed { fault, receiver_fault, ..Passed::default() };
    }

    // Forward. What has to wait for its receiver is left where it is.
    if switch.has_vlans() {
        policy::classify(&mut batch, from);
    }
    match watch {
        None => switch.forward().forward(&mut batch, from, switch, now.seconds),
        Some(watch) => watch.forward(&mut batch, from, switch, now.seconds),
    }
    let mut held = None;
    work.lists.room_found = may_hold && fault.is_none() && refused == 0 && batch.len() == collected;
    if work.lists.room_found {
        held = hold(&batch, from, switch, now.nanoseconds);
        if let Some(held) = &held {
            batch.truncate(held.len);
            (taken, bytes) = (held.len as u64, batch.bytes());
        }
    }
    from.port.counters().add_in(taken, bytes);
    let is_used_up = from.policy.as_ref().is_some_and(|policy| policy.charge(&mut batch, &turn, switch, now));
    if let Some(watch) = watch {
        watch.show(&batch, from, switch);
    }

    // Deliver.
    let receiver_fault = work.lists.deliver(&batch, from, switch, now);

    // Release.
    work.batch = Some(batch.into_storage());
    if let Some(held) = &held {
        input.keep(held.len);
    }
    input.release();

    let mut passed = Passed { frames: taken, more, until: held.map(|held| held.until), fault, receiver_fault };
    if is_used_up && let (Some(policy), None, None) = (&from.policy, fault, passed.until) {
        passed = exceed(policy.turn_after(now), passed, from, switch, input, work, now);
    }

    match &work.lists.exhausted {
        None if probe == 0 => {}
        None => from.port.set_probe(0),
        Some(exhausted) => passed = drop_alike(exhausted, passed, from, switch, input, work.limit),
    }

    // Everything is published; now see who asked to be told, and may be told yet.
    fence(Ordering::SeqCst);
    if work.lists.given.is_some() {
        passed.receiver_fault |= ring_examined(switch, work, now);
    } else {
        for &port in &work.lists.served {
            if let Some(member) = switch.member(port) {
                work.calling = port;
                passed.receiver_fault |= work.calls.ring(&member.port, News::Frames, now);
            }
        }
    }
    work.calling = NOBODY;
    passed.receiver_fault |= ring_source(from, work, now);
    if switch.is_watched() {
        work.lists.ring_watchers(from, switch);
    }
    passed
}

/// Rings at the ports that were given frames, and notes how long each took.
#[cold]
fn ring_examined(switch: &Switch, work: &mut Workspace, now: &Time) -> bool {
    let mut fault = false;
    for place in 0..work.lists.served.len() {
        let port = work.lists.served[place];
        if let Some(member) = switch.member(port) {
            work.calling = port;
            let began = (now.read)();
            fault |= work.calls.ring(&member.port, News::Frames, now);
            work.lists.note_given(member.owner.index(), began, 0, 0, now);
        }
    }
    fault
}

/// Rings at the port that frames came from; where receivers' times are noted, so is this one's.
#[inline(always)]
fn ring_source(from: &Member, work: &mut Workspace, now: &Time) -> bool {
    if work.lists.given.is_none() {
        return work.calls.ring(&from.port, News::Room, now);
    }
    let began = (now.read)();
    let fault = work.calls.ring(&from.port, News::Room, now);
    work.lists.note_given(from.owner.index(), began, 0, 0, now);
    fault
}

/// What came of [`empty`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    /// Frames that were left, and their bytes.
    pub frames: u64,
    /// See `frames`.
    pub bytes: u64,
    /// The port broke the rules and must end: [`crate::Port::fault`] says how.
    pub fault: bool,
}

/// Gives a port what others left for it ([`crate::Port::begin_detour`]), for the one thread that does.
#[cold]
pub fn empty(member: &Member, work: &mut Workspace, now: &Time) -> Emptied {
    giving(|| give_left(member, work, now))
}

fn give_left(member: &Member, work: &mut Workspace, now: &Time) -> Emptied {
    if !member.port.detour().has_something() {
        return Emptied::default();
    }
    let Some(taken) = member.port.detour().take() else { return Emptied::default() };
    let mut emptied = Emptied { frames: taken.frames() as u64, bytes: taken.bytes() as u64, fault: false };
    for &(news, call) in &taken.calls {
        work.calls.take_over(&member.port, news, call);
    }
    if taken.frames() > 0 {
        let storage = work.batch.take().unwrap_or_else(|| BatchStorage::new(work.limit));
        let mut output = member.port.output();
        let (storage, given) = work.lists.give_taken(&taken, storage, &mut **output, member.port.counters());
        drop(output);
        work.batch = Some(storage);
        if let Err(fault) = given {
            member.port.fail(fault);
            emptied.fault = true;
        }
    }
    member.port.detour().give_back(taken);
    if emptied.frames > 0 {
        fence(Ordering::SeqCst);
        emptied.fault |= work.calls.ring(&member.port, News::Frames, now);
    }
    emptied
}

/// Nothing may pass.
#[inline(never)]
fn refuse(
    turn: Turn,
    from: &Member,
    switch: &Switch,
    input: &mut dyn Input,
    work: &mut Workspace,
    now: &Time,
) -> Passed {
    let mut passed = exceed(turn, Passed::default(), from, switch, input, work, now);
    if passed.frames > 0 {
        fence(Ordering::SeqCst);
        switch.watch(from.owner.index()).inspect(|watch| watch.ring());
        passed.receiver_fault |= work.calls.ring(&from.port, News::Room, now);
    } else if passed.fault.is_none() {
        passed.receiver_fault = see_news(from, input, work, now);
    }
    passed
}

/// Of a port whose frames may not pass, or that has none: tells its client what else came up. True when that cost the port its
/// place, as [`Passed::receiver_fault`].
pub fn see_news(from: &Member, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> bool {
    if !input.has_news() {
        return false;
    }
    fence(Ordering::SeqCst);
    let fault = work.calls.ring(&from.port, News::Room, now);
    from.port.output().count_late(from.port.counters());
    fault
}

/// After what may pass has passed: drops the rest of a batch's frames, or says how long they wait.
#[inline(never)]
fn exceed(
    turn: Turn,
    mut passed: Passed,
    from: &Member,
    switch: &Switch,
    input: &mut dyn Input,
    work: &mut Workspace,
    now: &Time,
) -> Passed {
    let most = work.limit.min(MOST_DROPPED).saturating_sub(passed.frames as usize);
    match turn {
        Turn::Free | Turn::Limited(_) => {}
        Turn::Wait(until, cause) => {
            passed.until = Some(until);
            if let Some(policy) = from.policy.as_ref().filter(|_| input.has_frames()) {
                policy.begin_wait(until, cause, now);
            }
        }
        Turn::Drop(cause) => match discard(most, from, switch, input, work) {
            Ok(discarded) => {
                from.port.counters().add_in(discarded.frames, discarded.bytes);
                if let Some(policy) = from.policy.as_ref().filter(|_| discarded.frames > 0) {
                    policy.refuse(cause, discarded.frames, from);
                }
                passed.frames += discarded.frames;
            }
            Err(fault) => passed.fault = Some(fault),
        },
    }
    passed
}

/// Takes up to `most` frames that are dropped: unseen, unless somebody wants to see them.
fn discard(
    most: usize,
    from: &Member,
    switch: &Switch,
    input: &mut dyn Input,
    work: &mut Workspace,
) -> Result<Discarded, PortFault> {
    match switch.watch(from.owner.index()).filter(|watch| watch.sees_refused()) {
        None => input.discard(most),
        Some(_) if most == 0 => Ok(Discarded::default()),
        Some(watch) => {
            let storage = work.batch.take().unwrap_or_else(|| BatchStorage::new(work.limit));
            let mut batch = storage.into_batch();
            batch.bound(u64::MAX, most as u64);
            let collected = input.collect(&mut batch);
            watch.show_refused(&batch, 0);
            // What could not be taken has no bytes to show.
            let frames = batch.len() as u64 + batch.refused().map(|(_, frames)| frames).sum::<u64>();
            let bytes = batch.bytes();
            work.batch = Some(batch.into_storage());
            input.release();
            collected.map(|()| Discarded { frames, bytes })
        }
    }
}
