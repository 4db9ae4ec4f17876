//! Delivery to a port that is too slow for its senders: to each of its queues by itself.

use std::sync::MutexGuard;

use super::deliver::{Delivery, refuse};
use crate::batch::{Batch, Frames};
use crate::frame::DropReason;
use crate::port::Output;
use crate::time::Time;
use crate::topology::{Member, Switch};

impl Delivery {
    /// Gives frames to a port, to each queue in shares.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn give_in_shares(
        &mut self,
        batch: &Batch<'_>,
        frames: Frames<'_, '_>,
        from: &Member,
        switch: &Switch,
        member: &Member,
        retag: bool,
        mut output: MutexGuard<'_, Box<dyn Output>>,
        now: &Time,
    ) -> bool {
        if member.port.congestion().is_aside(now.nanoseconds) {
            refuse(&frames, 0, DropReason::ReceiverSlow, member, switch.watch(member.owner.index()));
            return false;
        }
        let Some(queues) = output.queues(frames.clone()) else {
            return self.hand(batch, frames, Some(0), from, switch, member, retag, output, now);
        };
        let (mut queued, mut own) = (std::mem::take(&mut self.queued), std::mem::take(&mut self.own));
        queued.clear();
        queued.extend(queues.iter().copied().zip(frames.indices()));
        queued.sort_unstable();
        drop(output);
        let mut fault = false;
        for chunk in queued.chunk_by(|one, next| one.0 == next.0) {
            own.clear();
            own.extend(chunk.iter().map(|(_, index)| index));
            let (frames, queue) = (Frames::of(batch, &own), Some(chunk[0].0));
            let output = member.port.output();
            fault |= self.hand(batch, frames, queue, from, switch, member, retag, output, now);
        }
        self.served.dedup();
        (self.queued, self.own) = (queued, own);
        fault
    }
}
