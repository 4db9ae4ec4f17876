//! The path of a frame.

use std::sync::atomic::{Ordering, fence};

use super::beyond::{exceed, refuse};
use super::exhausted::drop_alike;
use super::notify::{ring_examined, ring_source, see_news};
use super::passed::Passed;
use super::workspace::{NOBODY, Workspace};
use crate::batch::BatchStorage;
use crate::forward::{forward_watched, hold, show};
use crate::frame::DropReason;
use crate::policy::Turn;
use crate::port::{Input, News};
use crate::time::Time;
use crate::topology::{Member, Switch};

/// Moves one batch of frames from a port to wherever they go.
pub fn pass(switch: &Switch, from: &Member, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> Passed {
    let ingress = from.policy.as_ref().and_then(|policy| policy.ingress.as_deref());
    let turn = match ingress.map(|limit| Turn::begin(limit, now.nanoseconds)).transpose() {
        Ok(turn) => turn,
        Err(beyond) => return refuse(&beyond, from, switch, input, work, now),
    };

    // Collect.
    let storage = work.batch.take().unwrap_or_else(|| BatchStorage::new(work.limit));
    let may_hold = switch.holds() && input.keeps();
    let mut batch = storage.into_batch();
    if let Some(turn) = &turn {
        turn.bound(&mut batch, may_hold);
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
        policy.admit(&mut batch);
    }
    if let Some(kept) = turn.as_ref().and_then(|turn| turn.cut(&batch)) {
        from.port.counters().drop_in(DropReason::RateLimited, (batch.len() - kept) as u64);
        watch.inspect(|watch| watch.show_refused(&batch, kept));
        batch.truncate(kept);
    }
    if taken == 0 {
        let _ = turn.is_some_and(|turn| turn.charge(batch.cost()));
        work.batch = Some(batch.into_storage());
        input.release();
        let receiver_fault = see_news(from, input, work, now);
        return Passed { fault, receiver_fault, ..Passed::default() };
    }

    // Forward. What has to wait for its receiver is left where it is.
    if switch.has_vlans() {
        from.vlans.classify_all(&mut batch);
    }
    match watch {
        None => switch.forward().forward(&mut batch, from, switch, now.seconds),
        Some(watch) => forward_watched(watch, &mut batch, from, switch, now.seconds),
    }
    let mut held = None;
    work.delivery.room_found = may_hold && fault.is_none() && refused == 0 && batch.len() == collected;
    if work.delivery.room_found {
        held = hold(&batch, from, switch, now.nanoseconds);
        if let Some(held) = &held {
            batch.truncate(held.len);
            (taken, bytes) = (held.len as u64, batch.bytes());
        }
    }
    from.port.counters().add_in(taken, bytes);
    let is_used_up = turn.is_some_and(|turn| turn.charge(batch.cost()));
    if let Some(storm) = from.policy.as_ref().and_then(|policy| policy.storm.as_ref()) {
        storm.limit(&mut batch, switch.spreads().direct_groups(), now);
    }
    if let Some(watch) = watch {
        show(watch, &batch, from, switch);
    }

    // Deliver.
    let receiver_fault = work.delivery.deliver(&batch, from, switch, now);

    // Release.
    work.batch = Some(batch.into_storage());
    if let Some(held) = &held {
        input.keep(held.len);
    }
    input.release();

    let mut passed = Passed { frames: taken, more, until: held.map(|held| held.until), fault, receiver_fault };
    if is_used_up
        && let (Some(turn), None, None) = (&turn, fault, passed.until)
        && let Some(beyond) = turn.end(now.nanoseconds)
    {
        passed = exceed(&beyond, passed, from, switch, input, work, now);
    }

    match &work.delivery.exhausted {
        None if probe == 0 => {}
        None => from.port.set_probe(0),
        Some(exhausted) => passed = drop_alike(exhausted, passed, from, switch, input, work.limit),
    }

    // Everything is published; now see who asked to be told, and may be told yet.
    fence(Ordering::SeqCst);
    if work.delivery.given.is_some() {
        passed.receiver_fault |= ring_examined(switch, work, now);
    } else {
        for &port in &work.delivery.served {
            if let Some(member) = switch.member(port) {
                work.calling = port;
                passed.receiver_fault |= work.calls.ring(&member.port, News::Frames, now);
            }
        }
    }
    work.calling = NOBODY;
    passed.receiver_fault |= ring_source(from, work, now);
    if switch.is_watched() {
        work.delivery.ring_watchers(from, switch);
    }
    passed
}
