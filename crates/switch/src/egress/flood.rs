//! The flooded frames of a batch: which ports may get them, and the frames that no port may get.

use crate::batch::{Batch, Lists};
use crate::forward::may_receive;
use crate::frame::{Class, DropReason};
use crate::topology::Context;

/// The flooded frames of a batch.
#[derive(Clone, Copy)]
pub(super) struct Flood<'p> {
    context: Context<'p>,
    scope: Scope,
}

/// The VLANs of the flooded frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The switch has no VLANs.
    Everywhere,
    /// All frames are of this VLAN.
    Vlan(u16),
    /// The frames are of several VLANs: each frame is checked for each port.
    Several,
}

impl<'p> Flood<'p> {
    /// Returns the flooded frames of these lists.
    pub(super) fn new(context: Context<'p>, batch: &Batch<'_>, lists: &Lists) -> Flood<'p> {
        let scope = match context.switch.has_vlans() {
            false => Scope::Everywhere,
            true => only_vlan(batch, lists).map_or(Scope::Several, Scope::Vlan),
        };
        Flood { context, scope }
    }

    /// Returns true if the port may get the flooded frames. With frames of several VLANs, returns true if it may get
    /// frames of the source at all.
    #[inline]
    pub(super) fn is_heard_by(&self, port: u16) -> bool {
        let class = match self.scope {
            Scope::Vlan(vlan) => Some(Class::untagged(vlan)),
            Scope::Everywhere | Scope::Several => None,
        };
        self.context.switch.member(port).is_some_and(|to| may_receive(to, self.context.from, class).is_ok())
    }

    /// Counts the frames that no port may get as dropped at the source. `is_heard` is true if [`Flood::is_heard_by`]
    /// was true for some port.
    pub(super) fn count_undeliverable(&self, batch: &Batch<'_>, lists: &Lists, is_heard: bool) {
        let unheard = match self.scope {
            Scope::Several => self.unheard_of_several(batch, lists),
            _ if is_heard => return,
            _ => lists.flooded().count() as u64,
        };
        self.context.from.port.counters().drop_in(DropReason::NoDestination, unheard);
    }

    #[cold]
    fn unheard_of_several(&self, batch: &Batch<'_>, lists: &Lists) -> u64 {
        let Context { from, switch, .. } = self.context;
        let (mut last, mut unheard) = ((0, false), 0);
        for index in lists.flooded() {
            let vlan = batch.class(index).vlan();
            if vlan != last.0 {
                let mut ports = switch.flooded().iter().filter_map(|&port| switch.member(port));
                last = (vlan, ports.any(|to| may_receive(to, from, Some(Class::untagged(vlan))).is_ok()));
            }
            unheard += u64::from(!last.1);
        }
        unheard
    }
}

/// Returns the VLAN of the flooded frames, if all are of one VLAN.
fn only_vlan(batch: &Batch<'_>, lists: &Lists) -> Option<u16> {
    if let Some(class) = batch.only_class() {
        return Some(class.vlan());
    }
    let mut vlans = lists.flooded().map(|index| batch.class(index).vlan());
    let vlan = vlans.next()?;
    vlans.all(|other| other == vlan).then_some(vlan)
}
