//! Policy: what a port may send and receive, and how much (DESIGN §6). Policies read only the private copies of first
//! bytes.
//!
//! - `guard`: the source guard, which drops frames whose source addresses are not the port's own.
//! - `rules`: bound addresses, and rules about frames between bound and other addresses.
//! - `reach`: which ports may exchange frames.
//! - `vlan`: broadcast domains.
//! - `limit`: token buckets, shares of them, and ingress and egress limits.
//! - `storm`: limits on broadcast, multicast and unknown unicast.
//! - `congestion`: shares of a receiver that is slower than its senders.
//!
//! `rule` is the trait that every policy implements. Policies are registered in [`Policy`] and [`Domain`].

pub(crate) mod congestion;
mod guard;
pub(crate) mod limit;
mod reach;
mod rule;
mod rules;
mod storm;
mod vlan;

#[cfg(test)]
mod pass_tests;
#[cfg(test)]
mod shape_tests;

use std::sync::Arc;

use crate::batch::Batch;

pub(crate) use congestion::Room;
pub use guard::{Checks, Claims, Guard, Prefix, Protocol, Role, Unreadable};
pub(crate) use limit::{Admitted, Cause, Grant, OverLimit, SHORT, Turn, oldest_to_wait};
pub use limit::{Bucket, Egress, Excess, Limit, MAX_BURST, Rates, Shared, Tally, TallyReading};
pub use reach::Reach;
pub(crate) use rule::Rule;
pub(crate) use rules::SourceBinding;
pub use rules::{Bound, Domain, Rules};
pub use storm::Storm;
pub use vlan::Membership;

/// The policies of one port. A clone shares the state that outlives changes of the topology: buckets and counters.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The source guard. `None`: any source addresses.
    pub guard: Option<Arc<Guard>>,
    /// The ingress limit.
    pub ingress: Option<Arc<Limit>>,
    /// The egress limit.
    pub egress: Option<Arc<Egress>>,
    /// Storm control.
    pub storm: Option<Arc<Storm>>,
}

/// Policies of a port; `None` for each policy that the port does not have.
type RuleRefs<'p, const N: usize> = [Option<&'p dyn Rule>; N];

impl Policy {
    /// The policies, or `None` if there are none.
    #[must_use]
    pub fn in_use(self) -> Option<Policy> {
        let (sender, receiver) = self.rules();
        let is_some = sender.iter().chain(&receiver).any(Option::is_some);
        is_some.then_some(self)
    }

    /// All policies of the port: those for frames that it sends, in order, and those for frames that it receives.
    #[inline(always)]
    fn rules(&self) -> (RuleRefs<'_, 3>, RuleRefs<'_, 1>) {
        fn rule<R: Rule>(policy: &Option<Arc<R>>) -> Option<&dyn Rule> {
            policy.as_deref().map(|policy| policy as &dyn Rule)
        }
        // All fields are named, so that a new policy does not compile until it is listed here.
        let Policy { guard, ingress, egress, storm } = self;
        ([rule(guard), rule(ingress), rule(storm)], [rule(egress)])
    }

    /// Rejects frames that the port may not send.
    #[inline]
    pub(crate) fn admit(&self, batch: &mut Batch<'_>) {
        self.rules().0.into_iter().flatten().for_each(|rule| rule.admit(batch));
    }

    /// Returns true if all policies allow dropping the port's frames unread ([`Rule::may_drop_unread`]).
    pub(crate) fn ingress_may_drop_unread(&self) -> bool {
        self.rules().0.into_iter().flatten().all(Rule::may_drop_unread)
    }

    /// Returns true if all policies allow dropping frames for the port unread ([`Rule::may_drop_unread`]).
    pub(crate) fn egress_may_drop_unread(&self) -> bool {
        self.rules().1.into_iter().flatten().all(Rule::may_drop_unread)
    }
}
