//! A port in its switch.

use std::sync::Arc;

use crate::frame::{Mac, Owner, Sender};
use crate::policy::{Bound, Egress, Excess, Membership, Policy, Reach, Rule};
use crate::port::Port;

/// A port's place in its switch and what the configuration says of it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its index and generation.
    pub owner: Owner,
    /// The port.
    pub port: Arc<Port>,
    /// Isolated ports do not reach each other.
    pub isolated: bool,
    /// Addresses bound to the port: in a map switch, where frames to them go.
    pub macs: Vec<Mac>,
    /// Its share of what it sends to a port, or draws on a bucket, with others; at least 1.
    pub weight: u32,
    /// What is looked at before its frames are forwarded; none: nothing.
    pub policy: Option<Policy>,
    /// Whom it may exchange frames with.
    pub reach: Reach,
    /// Its VLANs, where the switch has any.
    pub vlans: Membership,
}

impl Member {
    /// A port with nothing set.
    #[must_use]
    pub fn new(owner: Owner, port: Arc<Port>) -> Member {
        let (reach, vlans) = Default::default();
        Member { owner, port, isolated: false, macs: Vec::new(), weight: 1, policy: None, reach, vlans }
    }

    /// Who it is to a port that it sends to.
    #[inline]
    pub(crate) fn sender(&self) -> Sender {
        Sender { owner: self.owner, weight: self.weight }
    }

    /// The limit on what the port is given, if it has one.
    #[inline]
    pub(crate) fn egress(&self) -> Option<&Egress> {
        self.policy.as_ref()?.egress.as_deref()
    }

    /// The limit on what the port is given, if its senders wait for it.
    pub(crate) fn egress_that_waits(&self) -> Option<&Egress> {
        self.egress().filter(|egress| egress.limit().excess == Excess::Wait)
    }

    /// Whether every policy allows that frames from the port are dropped unread ([`Rule::may_drop_unread`]).
    pub(crate) fn sent_may_drop_unread(&self) -> bool {
        // All fields by name. The VLANs of a port matter where the switch has any, which is for the domain to say.
        let Member { owner: _, port: _, isolated: _, macs: _, weight: _, policy, reach, vlans: _ } = self;
        policy.as_ref().is_none_or(Policy::sent_may_drop_unread) && reach.may_drop_unread()
    }

    /// Whether every policy allows that frames for the port are dropped unread ([`Rule::may_drop_unread`]).
    pub(crate) fn given_may_drop_unread(&self) -> bool {
        let Member { owner: _, port, isolated: _, macs: _, weight: _, policy, reach, vlans: _ } = self;
        policy.as_ref().is_none_or(Policy::given_may_drop_unread)
            && reach.may_drop_unread()
            && port.congestion().may_drop_unread()
    }
}

impl Bound {
    /// The addresses that are bound to these members.
    pub fn new<'a>(members: impl IntoIterator<Item = &'a Member>) -> Bound {
        let mut bound = Bound::default();
        for member in members {
            let guard = member.policy.as_ref().and_then(|policy| policy.guard.as_ref());
            bound.bind(member.owner.index(), &member.macs, guard.is_some_and(|guard| guard.has_macs()));
        }
        bound
    }
}
