//! Cheap drops of a flood beyond the receiver's limit. A sender that floods a port beyond that port's limit gets a
//! small batch: a few frames take the whole path, and show whether the limit still refuses them. The frames behind them
//! with the same addresses are dropped in the sender's ring without being read further.
//!
//! The result equals that of the whole path: the destination depends on the addresses alone, and the grant of the limit
//! does not grow within a pass. The forwarding function and each policy tell whether this holds for them
//! ([`crate::Forward::goes_by_addresses`], `policy/rule.rs`). Not used while the switch has captures or mirrors.

use super::passed::Passed;
use crate::egress::Exhausted;
use crate::frame::DropReason;
use crate::policy::Rule;
use crate::port::Input;
use crate::topology::Context;

/// Frames of a small batch, in addition to twice the number that the limit let pass last.
const PROBE: usize = 4;
/// Small batches are worth it if the limit lets at most one in this many frames pass.
const WORTH: usize = 8;

/// After a pass, drops frames in the source's ring that have the addresses of the last frame. A pass takes or drops
/// `limit` frames at most.
#[inline(never)]
pub(super) fn drop_alike(
    context: Context<'_>,
    exhausted: &Exhausted,
    mut passed: Passed,
    input: &mut dyn Input,
    limit: usize,
) -> Passed {
    let Context { from, switch, .. } = context;
    let (taken, probed) = (passed.frames as usize, from.port.probe() > 0);
    from.port.set_probe(0);
    let domain_allows = switch.domain().is_none_or(Rule::may_drop_unread) && switch.forward().goes_by_addresses();
    let allowed = from.ingress_may_drop_unread() && domain_allows && !switch.is_watched();
    let may_drop = allowed && passed.fault.is_none() && passed.until.is_none() && input.capabilities().discard_like;
    let to = switch.member(exhausted.port).filter(|to| may_drop && exhausted.is_uniform && to.egress_may_drop_unread());
    let Some(to) = to else { return passed };
    match input.discard_like(&exhausted.addresses, limit.saturating_sub(taken)) {
        Ok(discarded) => {
            from.port.counters().add_in(discarded.frames, discarded.bytes);
            if switch.may_leave_behind() {
                from.port.verdicts().drop_first(discarded.frames as usize);
            }
            let counting = to.port.output();
            to.port.counters().drop_out(DropReason::EgressLimited, discarded.frames);
            drop(counting);
            if let Some(egress) = to.egress() {
                egress.limit().refuse(exhausted.cause, discarded.frames);
            }
            passed.frames += discarded.frames;
        }
        Err(fault) => passed.fault = Some(fault),
    }
    // Without further frames of these addresses, small batches gain nothing.
    let is_worth = exhausted.given * WORTH <= passed.frames as usize;
    if is_worth && (!probed || passed.frames as usize > taken) {
        from.port.set_probe((PROBE + 2 * exhausted.given).min(limit) as u16);
    }
    passed
}
