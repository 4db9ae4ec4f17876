//! Whether a port may hear a frame.

use crate::frame::DropReason;
use crate::topology::{Member, Switch};

/// Whether frames may pass from one port to another.
///
/// # Errors
/// Why not.
#[inline]
fn may_pass(from: &Member, to: &Member) -> Result<(), DropReason> {
    if from.isolated && to.isolated {
        return Err(DropReason::Isolated);
    }
    from.reach.permits(to.owner.index(), &to.reach)?;
    to.reach.permits(from.owner.index(), &from.reach)
}

/// Whether frames from `from` may go to `port`.
#[inline]
pub(crate) fn reach<'s>(port: u16, from: &Member, switch: &'s Switch) -> Result<&'s Member, DropReason> {
    let member = switch.member(port).ok_or(DropReason::NoDestination)?;
    if member.owner == from.owner {
        return Err(DropReason::SamePort);
    }
    may_pass(from, member)?;
    Ok(member)
}

/// Whether `to` hears what `from` floods, where both are in its VLAN.
#[inline]
pub(crate) fn may_flood(to: &Member, from: &Member) -> bool {
    to.owner != from.owner && may_pass(from, to).is_ok()
}
