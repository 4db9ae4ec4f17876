//! A port as a member of its switch.

use std::sync::Arc;

use crate::frame::{Account, Mac, Owner, Sender};
use crate::policy::{Bound, Egress, Limit, Membership, Policy, Reach, Rule, Storm};
use crate::port::Port;

/// A port's index in its switch, and its configuration.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its index and generation.
    pub owner: Owner,
    /// Its account at receivers.
    pub account: Account,
    /// The port.
    pub port: Arc<Port>,
    /// Isolated ports do not reach each other.
    pub isolated: bool,
    /// Addresses bound to the port: in a map switch, where frames to them go.
    pub macs: Vec<Mac>,
    /// Its share of a receiver's limit or of a shared bucket, relative to other senders; at least 1.
    pub weight: u32,
    /// Ingress and egress policy of the port, if any.
    pub policy: Option<Policy>,
    /// The ports that it may exchange frames with.
    pub reach: Reach,
    /// Its VLANs, if the switch has VLANs.
    pub vlans: Membership,
    /// A learning switch forwards its frames whose source is zero or a group address, and learns nothing from them
    /// (VALE §3.3.1). Otherwise they are dropped as `bad_source`.
    pub any_source: bool,
    /// TCP segments are joined for it, if its client accepts unsegmented TCP (VPE §4.5).
    pub coalesces: bool,
}

impl Member {
    /// A port with default configuration.
    #[must_use]
    pub fn new(owner: Owner, port: Arc<Port>) -> Member {
        let (reach, vlans) = Default::default();
        Member {
            owner,
            account: Account::new(owner.bits().into()),
            port,
            isolated: false,
            macs: Vec::new(),
            weight: 1,
            policy: None,
            reach,
            vlans,
            any_source: false,
            coalesces: true,
        }
    }

    /// The port as a sender, with its weight.
    #[inline]
    pub(crate) fn sender(&self) -> Sender {
        Sender { index: self.owner.index(), account: self.account, weight: self.weight }
    }

    /// The port's ingress limit, if it has one.
    #[inline]
    pub(crate) fn ingress(&self) -> Option<&Limit> {
        self.policy.as_ref()?.ingress.as_deref()
    }

    /// The port's storm control, if it has any.
    #[inline]
    pub(crate) fn storm(&self) -> Option<&Storm> {
        self.policy.as_ref()?.storm.as_deref()
    }

    /// The port's egress limit, if it has one.
    #[inline]
    pub(crate) fn egress(&self) -> Option<&Egress> {
        self.policy.as_ref()?.egress.as_deref()
    }

    /// The port's egress limit, if senders wait for it.
    pub(crate) fn waiting_egress(&self) -> Option<&Egress> {
        self.egress().filter(|egress| egress.limit().excess.waits())
    }

    /// Returns true if every policy allows dropping frames from the port unread ([`Rule::may_drop_unread`]).
    pub(crate) fn ingress_may_drop_unread(&self) -> bool {
        // All fields are named, so that a new one is not forgotten. The VLANs of a port matter only if the switch has
        // VLANs, which `Domain` answers.
        let Member {
            owner: _,
            account: _,
            port: _,
            isolated: _,
            macs: _,
            weight: _,
            policy,
            reach,
            vlans: _,
            any_source: _,
            coalesces: _,
        } = self;
        policy.as_ref().is_none_or(Policy::ingress_may_drop_unread) && reach.may_drop_unread()
    }

    /// Returns true if every policy allows dropping frames for the port unread ([`Rule::may_drop_unread`]).
    pub(crate) fn egress_may_drop_unread(&self) -> bool {
        let Member {
            owner: _,
            account: _,
            port,
            isolated: _,
            macs: _,
            weight: _,
            policy,
            reach,
            vlans: _,
            any_source: _,
            coalesces: _,
        } = self;
        policy.as_ref().is_none_or(Policy::egress_may_drop_unread)
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
