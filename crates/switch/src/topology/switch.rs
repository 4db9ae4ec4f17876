//! One broadcast domain, as pollers see it: an immutable value, replaced on each change.

use std::sync::Arc;

use super::flood_policy::FloodPolicy;
use super::member::Member;
use crate::batch::{Audience, Batch};
use crate::frame::Owner;
use crate::policy::Domain;
use crate::port::Watch;
use crate::table::{MacTable, Owners};

/// A switch with more ports is looked at: so many receivers may get all frames of a full batch.
pub(crate) const FEW: usize = 8;

/// A forwarding function: sets the destination of every frame of a batch. It reads only the private copies of the
/// heads.
pub trait Forward: Send + Sync {
    /// Sets the destination of every frame. `now` is the time in seconds, from the batch's one clock reading.
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32);

    /// The frames of the batch from place `len` on stay in their sender's ring: they come again.
    fn leave_behind(&self, _batch: &Batch<'_>, _len: usize, _from: &Member, _switch: &Switch) {}

    /// Returns true if a frame's destination follows from its addresses and its VLAN alone, so that frames behind one that its receiver's
    /// limit refused may be dropped unread (`pass/exhausted.rs`).
    fn goes_by_addresses(&self) -> bool {
        false
    }

    /// Returns true if some ports may be left out when a frame is flooded (by its audience).
    fn narrows_floods(&self) -> bool {
        false
    }

    /// Returns true if [`Forward::enter`] has to be called before frames are collected.
    fn is_entered(&self) -> bool {
        false
    }

    /// For `Switch::enter` alone. Returns false if the function cannot be asked at present: frames stay with their port, whose poller
    /// goes on with other ports and comes back. After true, [`Forward::leave`] follows.
    fn enter(&self) -> bool {
        true
    }

    /// For `Entered` alone: the poller that has entered is done.
    fn leave(&self) {}
}

/// A switch's forwarding function, entered by a poller for one pass. Dropping this leaves it: however the pass ends, also by a panic,
/// nobody waits for a poller that has gone on.
#[must_use]
pub(crate) struct Entered<'s>(Option<&'s dyn Forward>);

impl Entered<'_> {
    /// For a forwarding function that needs not be entered.
    #[inline(always)]
    pub(crate) fn unasked() -> Self {
        Entered(None)
    }
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(forward) = self.0 {
            forward.leave();
        }
    }
}

/// A switch: one broadcast domain and its members.
pub struct Switch {
    name: String,
    members: Box<[Option<Member>]>,
    /// By port index; empty if no port is watched.
    watches: Box<[Option<Watch>]>,
    /// The ports that flooded frames go to.
    flooded: Box<[u16]>,
    table: Arc<MacTable>,
    forward: Box<dyn Forward>,
    flood_policy: FloodPolicy,
    /// True if the forwarding function may leave out some ports when a frame is flooded.
    narrows_floods: bool,
    /// True if some port's egress limit makes its senders wait.
    holds: bool,
    /// True if the forwarding function has to be entered.
    is_entered: bool,
    /// One of both is true.
    /// True if flooded frames may go to so many ports that a visit's are bounded.
    is_large: bool,
    is_checked: bool,
    domain: Option<Domain>,
}

impl Switch {
    /// A switch of these members, each at its owner's index. From now on they learn, and no earlier owners of their indices.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        members: impl IntoIterator<Item = Member>,
        table: Arc<MacTable>,
        forward: Box<dyn Forward>,
        flood_policy: FloodPolicy,
    ) -> Switch {
        let mut places: Vec<Option<Member>> = Vec::new();
        for member in members {
            let index = usize::from(member.owner.index());
            table.begin(member.owner);
            if places.len() <= index {
                places.resize(index + 1, None);
            }
            places[index] = Some(member);
        }
        let flooded: Box<[u16]> = places.iter().flatten().map(|member| member.owner.index()).collect();
        let holds = places.iter().flatten().any(|member| member.waiting_egress().is_some());
        let is_large = flooded.len() > FEW;
        if forward.is_entered() && (holds | is_large) {
            places.iter().flatten().for_each(|member| member.port.verdicts().prepare());
        }
        let (watches, narrows_floods, is_entered) = (Box::default(), forward.narrows_floods(), forward.is_entered());
        Switch {
            name: name.into(),
            members: places.into(),
            watches,
            flooded,
            table,
            forward,
            flood_policy,
            narrows_floods,
            holds,
            is_entered,
            is_large,
            is_checked: holds | is_entered | is_large,
            domain: None,
        }
    }

    /// Adds taps and mirrors, by port index. An index without a port is ignored.
    #[must_use]
    pub fn with_watches(mut self, watches: impl IntoIterator<Item = (u16, Watch)>) -> Switch {
        let mut places: Vec<Option<Watch>> = Vec::new();
        for (port, watch) in watches.into_iter().filter(|(port, _)| self.member(*port).is_some()) {
            places.resize_with(places.len().max(usize::from(port) + 1), || None);
            places[usize::from(port)] = Some(watch);
        }
        self.watches = places.into();
        let is_mirror = |port: u16| self.watch(port).is_some_and(|watch| watch.is_mirror);
        self.flooded = self.flooded.iter().copied().filter(|&port| !is_mirror(port)).collect();
        self
    }

    /// Adds bound addresses, rules and VLANs.
    #[must_use]
    pub fn within(self, domain: Domain) -> Switch {
        Switch { domain: (!domain.is_idle()).then_some(domain), ..self }
    }

    /// Bound addresses, rules and VLANs, if there are any.
    #[inline]
    #[must_use]
    pub fn domain(&self) -> Option<&Domain> {
        self.domain.as_ref()
    }

    /// Returns true if the switch has VLANs.
    #[inline]
    pub(crate) fn has_vlans(&self) -> bool {
        self.domain.as_ref().is_some_and(|domain| domain.vlans)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The MAC table.
    #[inline]
    #[must_use]
    pub fn table(&self) -> &Arc<MacTable> {
        &self.table
    }

    /// The forwarding function.
    #[inline]
    #[must_use]
    pub fn forward(&self) -> &dyn Forward {
        &*self.forward
    }

    /// Where frames without a single destination go.
    #[inline]
    #[must_use]
    pub fn flood_policy(&self) -> &FloodPolicy {
        &self.flood_policy
    }

    /// Returns true if frames for groups may go to a single port: by the flood policy, or by a program.
    #[inline]
    pub(crate) fn directs_groups(&self) -> bool {
        self.narrows_floods || self.flood_policy.direct_groups()
    }

    /// The ports that hear each flooded frame of a batch, if the forwarding function left some out.
    #[inline]
    pub(crate) fn audience<'b>(&self, batch: &'b Batch<'_>) -> Option<&'b Audience> {
        if self.narrows_floods { batch.audience() } else { None }
    }

    /// Returns true if some port's egress limit makes its senders wait.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.holds
    }

    /// Returns true if flooded frames may go to so many ports that a visit's are bounded.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.is_large
    }

    /// Enters the forwarding function, before frames are collected. `None`: it cannot be asked at present.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        if !self.is_entered {
            return Some(Entered::unasked());
        }
        self.forward.enter().then(|| Entered(Some(&*self.forward)))
    }

    /// Returns true if frames may stay in their sender's ring after their destination was set.
    #[inline]
    pub(crate) fn may_leave_behind(&self) -> bool {
        self.holds | self.is_large
    }

    /// Returns true if [`Switch::holds`] or [`Switch::is_large`] is true or [`Switch::enter`] has to be called: one look for most switches.
    #[inline]
    pub(crate) fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// The member at an index.
    #[inline]
    #[must_use]
    pub fn member(&self, index: u16) -> Option<&Member> {
        self.members.get(usize::from(index))?.as_ref()
    }

    /// Returns true if the owner is a present port in its present generation.
    #[inline]
    #[must_use]
    pub fn is_alive(&self, owner: Owner) -> bool {
        self.member(owner.index()).is_some_and(|member| member.owner == owner)
    }

    /// Indices of the ports that flooded frames go to, ascending: all except mirrors.
    #[inline]
    pub(crate) fn flooded(&self) -> &[u16] {
        &self.flooded
    }

    /// Returns true if any port is watched or is a mirror.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        !self.watches.is_empty()
    }

    /// The taps of the port at an index, if it is watched or a mirror.
    #[inline]
    pub(crate) fn watch(&self, index: u16) -> Option<&Watch> {
        self.watches.get(usize::from(index))?.as_ref()
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().flatten()
    }
}

impl Owners for Switch {
    #[inline]
    fn is_alive(&self, owner: Owner) -> bool {
        Switch::is_alive(self, owner)
    }

    /// Called by the poller that has the input of the port.
    #[cold]
    fn count_held_move(&self, owner: Owner) {
        if let Some(member) = self.member(owner.index()) {
            member.port.counters().add_move_held();
        }
    }
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch")
            .field("name", &self.name)
            .field("ports", &self.members().count())
            .finish_non_exhaustive()
    }
}
