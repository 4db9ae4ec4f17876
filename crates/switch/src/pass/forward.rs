//! Stage "forward": decides where each frame goes, and which frames wait.

use super::collect::Collected;
use crate::batch::{Batch, Destination};
use crate::forward::{Held, bound_floods, forward_watched, hold, learn_sources, show};
use crate::policy::Turn;
use crate::topology::{Context, Entered};

/// Result of stage "forward".
pub(super) struct Forwarded {
    /// Number of frames taken from the client, without those that wait.
    pub(super) frames: u64,
    /// What the frames cost, in bytes to copy.
    pub(super) work: u64,
    /// At every port whose limit makes senders wait, room is reserved for the unicast frames of the batch.
    pub(super) is_reserved: bool,
    /// Where the batch was cut, if frames wait for their receiver or for the next visit.
    pub(super) held: Option<Held>,
    /// The grant of the source's limit is used up.
    pub(super) is_used_up: bool,
}

#[inline(always)]
pub(super) fn forward(
    context: Context<'_>,
    turn: &Turn<'_>,
    collected: &Collected,
    waiting: Option<Held>,
    batch: &mut Batch<'_>,
    entered: Entered<'_>,
) -> Forwarded {
    let Context { from, switch, now } = context;
    let watch = switch.watch(from.owner.index());
    if switch.has_vlans() {
        from.vlans.classify_all(batch);
    }
    match watch {
        None => switch.forward().forward(batch, from, switch, now.seconds),
        Some(watch) => forward_watched(watch, batch, from, switch, now.seconds),
    }
    drop(entered);
    let (mut frames, mut bytes, mut held) = (collected.frames, collected.bytes, waiting);
    // No frame can wait if frames beyond the source's limit were taken out of the batch: the ring cannot tell the two
    // kinds apart.
    let may_wait = collected.may_wait && (waiting.is_some() || batch.len() as u64 == collected.frames);
    if collected.is_bounded || waiting.is_some() && switch.may_leave_behind() {
        from.port.verdicts().keep_rest(if waiting.is_some() { batch.len() } else { collected.frames as usize });
    }
    let truncate = |batch: &mut Batch<'_>, len: usize| {
        switch.forward().leave_behind(batch, len, from, switch);
        batch.truncate(len);
    };
    let mut work = batch.work();
    if switch.is_large() {
        let (first, flooded) = bound_floods(batch, from, switch, may_wait);
        work = work.max(flooded);
        if let Some(len) = first {
            truncate(batch, len);
            held = Some(Held { len, until: waiting.and_then(|waiting| waiting.until) });
        }
    } else if floods_few(batch) {
        work *= switch.flooded().len() as u64;
    }
    let is_reserved = may_wait && switch.holds();
    if is_reserved {
        held = hold(batch, from, switch, collected.waiting, now.nanoseconds)
            .inspect(|held| truncate(batch, held.len))
            .or(held);
    }
    if switch.may_leave_behind() {
        learn_sources(batch, from, switch, now.seconds);
    }
    if let Some(held) = &held {
        (frames, bytes) = (held.len as u64, batch.bytes());
    }
    from.port.counters().add_in(frames, bytes);
    let is_used_up = turn.charge(batch);
    if let Some(storm) = from.storm() {
        storm.limit(batch, switch.directs_groups(), now);
    }
    if let Some(watch) = watch {
        show(watch, batch, from, switch);
    }
    Forwarded { frames, work, is_reserved, held, is_used_up }
}

/// Returns true if the batch has a flooded frame. Looks at the first frame of a large batch only: few of those fit into a visit anyway.
#[inline]
fn floods_few(batch: &Batch<'_>) -> bool {
    const MANY: usize = 64;
    let (mut first, most) = (0, if batch.len() > MANY { 1 } else { MANY });
    while let Some((destination, end)) = batch.run(first).filter(|_| first < most) {
        if destination == Destination::Flood {
            return true;
        }
        first = end;
    }
    false
}
