//! The flooded frames of a batch: which ports may get them, and the frames that no port may get.

use crate::batch::{Audience, Batch, Lists};
use crate::forward::may_receive;
use crate::frame::{Class, DropReason};
use crate::topology::Context;

/// The flooded frames of a batch.
#[derive(Clone, Copy)]
pub(super) struct Flood<'p> {
    context: Context<'p>,
    scope: Scope,
    /// The ports that hear each frame, if a forwarding program left some out.
    audience: Option<&'p Audience>,
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
    pub(super) fn new(context: Context<'p>, batch: &'p Batch<'_>, lists: &Lists) -> Flood<'p> {
        let scope = match context.switch.has_vlans() {
            false => Scope::Everywhere,
            true => only_vlan(batch, lists).map_or(Scope::Several, Scope::Vlan),
        };
        Flood { context, scope, audience: context.switch.audience(batch) }
    }

    /// The ports that hear each frame, if a forwarding program left some out.
    #[inline]
    pub(super) fn audience(&self) -> Option<&'p Audience> {
        self.audience
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
            _ if self.audience.is_some() => self.unheard_of_narrow(batch, lists),
            Scope::Several => self.unheard_of_several(batch, lists),
            _ if is_heard => return,
            _ => lists.flooded().count() as u64,
        };
        if unheard > 0 {
            self.context.from.port.counters().drop_in(self.why_unheard(), unheard);
        }
    }

    /// Returns why flooded frames are heard by no port: their VLAN, if there is a port that would hear them in another one.
    #[cold]
    fn why_unheard(&self) -> DropReason {
        let Context { from, switch, .. } = self.context;
        let mut ports = switch.flooded().iter().filter_map(|&port| switch.member(port));
        let is_vlan =
            switch.has_vlans() && self.audience.is_none() && ports.any(|to| may_receive(to, from, None).is_ok());
        if is_vlan { DropReason::VlanDenied } else { DropReason::NoDestination }
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

    #[cold]
    fn unheard_of_narrow(&self, batch: &Batch<'_>, lists: &Lists) -> u64 {
        let Some(audience) = self.audience else { return 0 };
        let Context { from, switch, .. } = self.context;
        // Frames with the set and the VLAN of the frame before are heard as that frame was.
        let (mut last, mut unheard) = (None, 0);
        for index in lists.flooded() {
            let class = switch.has_vlans().then(|| batch.class(index));
            let key = (audience.place(index), class.map_or(0, Class::vlan));
            let is_heard = match last {
                Some((before, is_heard)) if before == key => is_heard,
                _ => {
                    let hears = |port: &u16| audience.hears(index, *port);
                    let mut ports =
                        switch.flooded().iter().copied().filter(hears).filter_map(|port| switch.member(port));
                    let class = class.map(|class| Class::untagged(class.vlan()));
                    ports.any(|to| may_receive(to, from, class).is_ok())
                }
            };
            last = Some((key, is_heard));
            unheard += u64::from(!is_heard);
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
