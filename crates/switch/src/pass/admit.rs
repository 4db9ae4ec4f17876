//! Stage "admit": drops frames that the source may not send, and frames beyond the source's limit.

use crate::batch::Batch;
use crate::frame::DropReason;
use crate::policy::Turn;
use crate::topology::Context;

#[inline(always)]
pub(super) fn admit(context: Context<'_>, turn: &Turn<'_>, batch: &mut Batch<'_>) {
    let Context { from, switch, .. } = context;
    if let Some(policy) = &from.policy {
        policy.admit(batch);
    }
    if let Some(kept) = turn.cut(batch) {
        from.port.counters().drop_in(DropReason::RateLimited, (batch.len() - kept) as u64);
        switch.watch(from.owner.index()).inspect(|watch| watch.show_refused_frames(batch, kept));
        batch.truncate(kept);
    }
}
