//! Whether a port may receive a frame. Unicast, floods, holding, watching and forwarding all call this; no other code
//! decides it.

use crate::frame::{Class, DropReason};
use crate::topology::{Member, Switch};

/// Returns `Ok` if `to` may receive a frame of this class from `from`. Without a class the VLAN is not checked: the
/// switch has no VLANs, or the caller checks each class itself.
///
/// # Errors
/// The reason to drop the frame. The VLAN is checked before isolation and reach. A tag behind a tag is checked last, so
/// that it counts only where the frame would be delivered otherwise.
#[inline(always)]
pub(crate) fn may_receive(to: &Member, from: &Member, class: Option<Class>) -> Result<(), DropReason> {
    if to.owner == from.owner {
        return Err(DropReason::SamePort);
    }
    if class.is_some_and(|class| !to.vlans.contains(class.vlan())) {
        return Err(DropReason::VlanDenied);
    }
    if from.isolated && to.isolated {
        return Err(DropReason::Isolated);
    }
    from.reach.permits(to.owner.index(), &to.reach)?;
    to.reach.permits(from.owner.index(), &from.reach)?;
    class.map_or(Ok(()), |class| to.vlans.take(class))
}

/// The port with this index, if it may receive frames from `from`. VLANs are not checked.
///
/// # Errors
/// Why not.
#[inline(always)]
pub(crate) fn receiver<'s>(port: u16, from: &Member, switch: &'s Switch) -> Result<&'s Member, DropReason> {
    let to = switch.member(port).ok_or(DropReason::NoDestination)?;
    may_receive(to, from, None).map(|()| to)
}
