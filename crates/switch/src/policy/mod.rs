//! Policy: what a port may send, and how much (DESIGN §6). Judged on the private copies only.
//!
//! - `guard`: the source guard. A port's frames speak in its own name only.
//! - `rules`: which addresses are bound to ports, and which known stations may reach each other.
//! - `reach`: which ports may exchange frames.
//! - `vlan`: broadcast domains.
//! - `limit`: token buckets, shares of them, and limits on what a port sends and is given.
//! - `storm`: limits on what goes to many.
//! - `congestion`: shares of a receiver that is too slow.
//!
//! `rule` is what every policy answers. [`Policy`] and [`Domain`] are where policies are registered.

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

use std::sync::Arc;

use crate::batch::Batch;

pub(crate) use congestion::Room;
pub use guard::{Checks, Claims, Guard, Prefix, Protocol, Role, Unreadable};
pub(crate) use limit::{Beyond, Cause, Grant, Turn, first};
pub use limit::{Bucket, Egress, Excess, Limit, MAX_BURST, Rates, Shared, Tally, TallyReading};
pub use reach::Reach;
pub(crate) use rule::Rule;
pub(crate) use rules::Heard;
pub use rules::{Bound, Domain, Rules};
pub use storm::Storm;
pub use vlan::Membership;

/// What the configuration says of one port's frames. A clone shares what must last over changes of the topology: buckets,
/// counters.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Whose name it may speak in; none: anybody's.
    pub guard: Option<Arc<Guard>>,
    /// How much it may send.
    pub ingress: Option<Arc<Limit>>,
    /// How much it may be given.
    pub egress: Option<Arc<Egress>>,
    /// How much of what it sends may go to many.
    pub storm: Option<Arc<Storm>>,
}

/// Policies of a port; `None` for each that the port does not have.
type Asked<'p, const N: usize> = [Option<&'p dyn Rule>; N];

impl Policy {
    /// `None` where it asks for nothing.
    #[must_use]
    pub fn in_use(self) -> Option<Policy> {
        let (sender, receiver) = self.rules();
        let is_some = sender.iter().chain(&receiver).any(Option::is_some);
        is_some.then_some(self)
    }

    /// Every policy of the port: those that judge what it sends, in this order, and those that judge what it is given.
    #[inline(always)]
    fn rules(&self) -> (Asked<'_, 3>, Asked<'_, 1>) {
        fn rule<R: Rule>(policy: &Option<Arc<R>>) -> Option<&dyn Rule> {
            policy.as_deref().map(|policy| policy as &dyn Rule)
        }
        // All fields by name: a policy that is added does not compile until it stands here.
        let Policy { guard, ingress, egress, storm } = self;
        ([rule(guard), rule(ingress), rule(storm)], [rule(egress)])
    }

    /// Rejects what the port may not send.
    #[inline]
    pub(crate) fn admit(&self, batch: &mut Batch<'_>) {
        self.rules().0.into_iter().flatten().for_each(|rule| rule.admit(batch));
    }

    /// Whether frames that the port sends may be dropped unread, as [`Rule::may_drop_unread`].
    pub(crate) fn sent_may_drop_unread(&self) -> bool {
        self.rules().0.into_iter().flatten().all(Rule::may_drop_unread)
    }

    /// Whether frames for the port may be dropped unread, as [`Rule::may_drop_unread`].
    pub(crate) fn given_may_drop_unread(&self) -> bool {
        self.rules().1.into_iter().flatten().all(Rule::may_drop_unread)
    }
}
