//! What floods a port that may be given no more is dropped in its sender's ring: a few frames of each batch are taken as ever, which
//! shows that the port still refuses them, and those behind them that have the same addresses go back without being looked at
//! any further.
//!
//! They would be refused one by one: where a frame goes depends on its addresses alone, and what the port may be given does not
//! grow within a pass. Every policy is asked whether that is so for it (`policy/rule.rs`). Where somebody watches, nothing is done.

use super::passed::Passed;
use crate::egress::Exhausted;
use crate::frame::DropReason;
use crate::policy::Rule;
use crate::port::Input;
use crate::topology::{Member, Switch};

/// Frames that are taken as ever, besides twice as many as were given last.
const PROBE: usize = 4;
/// One of so many frames, or fewer, is given where this is worth it.
const WORTH: usize = 8;

/// After a pass, drops what is like its last frames, as much as fits into a batch of `limit`.
#[inline(never)]
pub(super) fn drop_alike(
    exhausted: &Exhausted,
    mut passed: Passed,
    from: &Member,
    switch: &Switch,
    input: &mut dyn Input,
    limit: usize,
) -> Passed {
    let (taken, probed) = (passed.frames as usize, from.port.probe() > 0);
    from.port.set_probe(0);
    let domain_allows = switch.domain().is_none_or(Rule::may_drop_unread);
    let allowed = from.sent_may_drop_unread() && domain_allows && !switch.is_watched();
    let may_drop = allowed && passed.fault.is_none() && passed.until.is_none() && input.discards_like();
    let to = switch.member(exhausted.port).filter(|to| may_drop && exhausted.alike && to.given_may_drop_unread());
    let Some(to) = to else { return passed };
    match input.discard_like(&exhausted.addresses, limit.saturating_sub(taken)) {
        Ok(discarded) => {
            from.port.counters().add_in(discarded.frames, discarded.bytes);
            let counting = to.port.output();
            to.port.counters().drop_out(DropReason::EgressLimited, discarded.frames);
            drop(counting);
            if let Some(egress) = to.policy.as_ref().and_then(|policy| policy.egress.as_ref()) {
                egress.limit().refuse(exhausted.cause, discarded.frames);
            }
            passed.frames += discarded.frames;
        }
        Err(fault) => passed.fault = Some(fault),
    }
    // Where nothing like them followed, small batches are no gain.
    let is_worth = exhausted.given * WORTH <= passed.frames as usize;
    if is_worth && (!probed || passed.frames as usize > taken) {
        from.port.set_probe((PROBE + 2 * exhausted.given).min(limit) as u16);
    }
    passed
}
