//! Frames beyond the limit of their source: they are dropped, or wait.

use std::sync::atomic::{Ordering, fence};

use super::notify::see_news;
use super::passed::Passed;
use super::workspace::Workspace;
use crate::batch::BatchStorage;
use crate::frame::DropReason;
use crate::policy::Beyond;
use crate::port::{Discarded, Input, News, PortFault};
use crate::time::Time;
use crate::topology::{Member, Switch};

/// Frames of a pass, when some of them are beyond a limit and dropped: while more were, the poller's other ports would wait.
const MOST_DROPPED: usize = 128;

/// A pass of a source of which nothing may pass.
#[inline(never)]
pub(super) fn refuse(
    beyond: &Beyond<'_>,
    from: &Member,
    switch: &Switch,
    input: &mut dyn Input,
    work: &mut Workspace,
    now: &Time,
) -> Passed {
    let mut passed = exceed(beyond, Passed::default(), from, switch, input, work, now);
    if passed.frames > 0 {
        fence(Ordering::SeqCst);
        switch.watch(from.owner.index()).inspect(|watch| watch.ring());
        passed.receiver_fault |= work.calls.ring(&from.port, News::Room, now);
    } else if passed.fault.is_none() {
        passed.receiver_fault = see_news(from, input, work, now);
    }
    passed
}

/// After what may pass has passed: drops the rest of a batch's frames, or says how long they wait.
#[inline(never)]
#[allow(clippy::too_many_arguments)]
pub(super) fn exceed(
    beyond: &Beyond<'_>,
    mut passed: Passed,
    from: &Member,
    switch: &Switch,
    input: &mut dyn Input,
    work: &mut Workspace,
    now: &Time,
) -> Passed {
    let most = work.limit.min(MOST_DROPPED).saturating_sub(passed.frames as usize);
    if let Some(until) = beyond.until {
        passed.until = Some(until);
        if input.has_frames() {
            beyond.begin_wait(now.nanoseconds, until);
        }
        return passed;
    }
    match discard(most, from, switch, input, work) {
        Ok(discarded) => {
            from.port.counters().add_in(discarded.frames, discarded.bytes);
            if discarded.frames > 0 {
                from.port.counters().drop_in(DropReason::RateLimited, discarded.frames);
                beyond.refuse(discarded.frames);
            }
            passed.frames += discarded.frames;
        }
        Err(fault) => passed.fault = Some(fault),
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
