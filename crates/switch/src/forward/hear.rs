//! Whether a port may hear a frame. Unicast, floods, holding, watching and forwarding ask here; nothing else decides it.

use crate::frame::{Class, DropReason};
use crate::topology::{Member, Switch};

/// Whether `to` may hear a frame of this class from `from`. No class: the frame's VLAN does not matter, because the switch has no
/// VLANs or because the caller asks for each class by itself.
///
/// # Errors
/// Why not. A frame of another VLAN is none of the port's business: that comes before what the two ports are to each other. A tag
/// behind a tag matters only where the frame would be delivered otherwise.
#[inline]
pub(crate) fn may_hear(to: &Member, from: &Member, class: Option<Class>) -> Result<(), DropReason> {
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

/// The port of this index, if it may hear frames from `from` as far as that does not depend on their VLANs.
///
/// # Errors
/// Why not.
#[inline]
pub(crate) fn receiver<'s>(port: u16, from: &Member, switch: &'s Switch) -> Result<&'s Member, DropReason> {
    let to = switch.member(port).ok_or(DropReason::NoDestination)?;
    may_hear(to, from, None).map(|()| to)
}
