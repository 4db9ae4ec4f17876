//! Stage "admit": drops frames that the source may not send, and frames beyond the source's limit, or lets them wait.

use crate::batch::Batch;
use crate::forward::Held;
use crate::frame::DropReason;
use crate::policy::Turn;
use crate::topology::Context;

/// Returns where the batch was cut, if frames wait for the source's limit.
#[inline(always)]
pub(super) fn admit(context: Context<'_>, turn: &Turn<'_>, batch: &mut Batch<'_>) -> Option<Held> {
    let Context { from, switch, now } = context;
    if let Some(policy) = &from.policy {
        policy.admit(batch);
    }
    if let Some(kept) = turn.cut(batch) {
        from.port.counters().drop_in(DropReason::RateLimited, (batch.len() - kept) as u64);
        switch.watch(from.owner.index()).inspect(|watch| watch.show_refused_frames(batch, kept));
        batch.truncate(kept);
        return None;
    }
    turn.shape(batch, now.nanoseconds).map(|(len, until)| {
        batch.truncate(len);
        Held { len, until: Some(until) }
    })
}
