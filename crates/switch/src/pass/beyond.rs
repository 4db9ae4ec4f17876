//! Frames beyond the limit of their source: they are dropped, or wait.

use std::sync::atomic::{Ordering, fence};

use super::notify::handle_event;
use super::passed::Passed;
use super::workspace::Workspace;
use crate::frame::DropReason;
use crate::policy::OverLimit;
use crate::port::{CallReason, Discarded, Input, PortFault};
use crate::topology::Context;

/// Most frames of a pass in which frames beyond the source's limit are dropped. More would delay the poller's other
/// ports.
const MOST_DROPPED: usize = 128;

/// A pass whose source has nothing left of its limit: drops the source's frames, or notes that they wait.
#[inline(never)]
pub(super) fn refuse(
    context: Context<'_>,
    beyond: &OverLimit<'_>,
    input: &mut dyn Input,
    work: &mut Workspace,
) -> Passed {
    let Context { from, switch, now } = context;
    let mut passed = exceed(context, beyond, Passed::default(), input, work);
    if passed.frames > 0 {
        fence(Ordering::SeqCst);
        switch.watch(from.owner.index()).inspect(|watch| watch.ring());
        passed.receiver_fault |= work.calls.ring(&from.port, CallReason::Room, now);
    } else if passed.fault.is_none() {
        passed.receiver_fault = handle_event(from, input, work, now);
    }
    passed
}

/// Drops frames in the source's ring that are beyond its limit, up to the size of a batch, or notes until when they
/// wait.
#[inline(never)]
pub(super) fn exceed(
    context: Context<'_>,
    beyond: &OverLimit<'_>,
    mut passed: Passed,
    input: &mut dyn Input,
    work: &mut Workspace,
) -> Passed {
    let most = work.limit.min(MOST_DROPPED).saturating_sub(passed.frames as usize);
    if let Some(until) = beyond.until {
        passed.until = Some(until);
        if input.has_frames() {
            beyond.begin_wait(context.now.nanoseconds, until);
        }
        return passed;
    }
    match discard(context, most, input, work) {
        Ok(discarded) => {
            let counters = context.from.port.counters();
            counters.add_in(discarded.frames, discarded.bytes);
            if context.switch.may_leave_behind() {
                context.from.port.verdicts().drop_first(discarded.frames as usize);
            }
            if discarded.frames > 0 {
                counters.drop_in(DropReason::RateLimited, discarded.frames);
                beyond.refuse(discarded.frames);
            }
            passed.frames += discarded.frames;
        }
        Err(fault) => passed.fault = Some(fault),
    }
    passed
}

/// Drops up to `most` frames. They are read only if a capture needs them.
fn discard(
    context: Context<'_>,
    most: usize,
    input: &mut dyn Input,
    work: &mut Workspace,
) -> Result<Discarded, PortFault> {
    let watch = context.switch.watch(context.from.owner.index());
    match watch.filter(|watch| watch.sees_refused()) {
        None => input.discard(most),
        Some(_) if most == 0 => Ok(Discarded::default()),
        Some(watch) => {
            let mut batch = work.begin_batch();
            batch.bound(u64::MAX, most as u64);
            let collected = input.collect(&mut batch);
            watch.show_refused_frames(&batch, 0);
            // Frames that could not be taken have no bytes to show.
            let frames = batch.len() as u64 + batch.refused_frames();
            let bytes = batch.bytes();
            work.end_batch(batch);
            input.release();
            collected.map(|()| Discarded { frames, bytes })
        }
    }
}
