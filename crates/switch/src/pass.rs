//! The path of a frame.

use std::sync::atomic::{Ordering, fence};

use crate::batch::BatchStorage;
use crate::calls::PendingCalls;
use crate::deliver::Lists;
use crate::port::{Input, News, PortFault};
use crate::switch::{Member, Switch};
use crate::time::Time;

/// What a poller needs for passing frames, allocated once, and the calls that its passes left pending.
#[derive(Debug)]
pub struct Workspace {
    batch: Option<BatchStorage>,
    lists: Lists,
    limit: usize,
    /// To be made when they are due, by whoever has the workspace.
    pub calls: PendingCalls,
}

impl Workspace {
    /// For batches of up to `batch` frames (1 to [`crate::MAX_BATCH`]).
    #[must_use]
    pub fn new(batch: usize) -> Workspace {
        let limit = batch.clamp(1, crate::MAX_BATCH);
        Workspace { batch: Some(BatchStorage::new(limit)), lists: Lists::new(limit), limit, calls: PendingCalls::new() }
    }
}

/// What came of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Frames taken from the source.
    pub frames: u64,
    /// The source broke the rules and must end.
    pub fault: Option<PortFault>,
    /// A receiver broke the rules, or waking a port blocked; [`crate::Port::fault`] says which.
    pub receiver_fault: bool,
}

/// Moves one batch of frames from a port to wherever they go.
pub fn pass(switch: &Switch, from: &Member, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> Passed {
    // Collect.
    let storage = work.batch.take().unwrap_or_else(|| BatchStorage::new(work.limit));
    let mut batch = storage.into_batch();
    let fault = input.collect(&mut batch).err();

    // Admit: what could not be taken is counted.
    let mut taken = batch.len() as u64;
    for (reason, frames) in batch.refused() {
        from.port.counters().drop_in(reason, frames);
        taken += frames;
    }
    if taken == 0 {
        work.batch = Some(batch.into_storage());
        input.release();
        return Passed { frames: 0, fault, receiver_fault: false };
    }
    from.port.counters().add_in(taken, batch.bytes());
    if let Some(policy) = &from.policy {
        policy.admit(&mut batch, from, now);
    }

    // Forward.
    switch.forward().forward(&mut batch, from, switch, now.seconds);

    // Deliver.
    let mut receiver_fault = work.lists.deliver(&batch, from, switch);

    // Release.
    work.batch = Some(batch.into_storage());
    input.release();

    // Everything is published; now see who asked to be told, and may be told yet.
    fence(Ordering::SeqCst);
    for &port in &work.lists.served {
        if let Some(member) = switch.member(port) {
            receiver_fault |= work.calls.ring(&member.port, News::Frames, now);
        }
    }
    receiver_fault |= work.calls.ring(&from.port, News::Room, now);
    Passed { frames: taken, fault, receiver_fault }
}
