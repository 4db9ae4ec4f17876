//! Policy: what a port may send, and how much (DESIGN §6). Judged on the private copies only.
//!
//! - `guard`, `claims`: in whose name.
//! - `rules`, `reach`: who is known where, and who may reach whom.
//! - `vlan`, `retag`: broadcast domains and the tags that show them.
//! - `bucket`: token buckets, exact.
//! - `shares`: who may have how much of one that several draw on.
//! - `limit`: what a port makes of them in one direction; `turn`: how a pass keeps to it.
//! - `egress`: the same where frames come from several senders.
//! - `exhausted`: what floods a port that may be given no more.
//! - `congestion`: shares of a receiver that is too slow.
//! - `hold`: frames wait in their sender's ring for room at their receiver.
//! - `waiting`: for how long they do.
//! - `storm`: limits on what goes to many.
//! - `tally`: what all these came to.

mod bucket;
mod claims;
mod congestion;
mod egress;
pub(crate) mod exhausted;
mod guard;
pub(crate) mod hold;
mod limit;
mod reach;
mod retag;
mod rules;
mod shares;
mod storm;
mod tally;
mod turn;
mod vlan;
mod waiting;

#[cfg(test)]
mod bucket_tests;
#[cfg(test)]
mod claims_tests;
#[cfg(test)]
mod congestion_tests;
#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod exhausted_tests;
#[cfg(test)]
mod guard_tests;
#[cfg(test)]
mod hold_tests;
#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod pass_tests;
#[cfg(test)]
mod tally_tests;
#[cfg(test)]
mod vlan_tests;

use std::sync::Arc;

use crate::batch::Batch;
use crate::switch::Member;
use crate::watch::Watch;

pub use bucket::{Bucket, MAX_BURST};
pub use claims::{Claims, Protocol, Role, Unreadable};
pub use egress::Egress;
pub use guard::{Checks, Guard, Prefix};
pub use limit::{Excess, Limit, Rates, Shared};
pub use reach::Reach;
pub use rules::{Bound, Domain, Rules};
pub use storm::Storm;
pub use tally::{Tally, TallyReading};
pub use vlan::Membership;

pub(crate) use claims::is_tag;
pub(crate) use congestion::{Congestion, Room};
pub(crate) use egress::first;
pub(crate) use exhausted::Exhausted;
pub(crate) use guard::Judging;
pub(crate) use limit::{Cost, Grant};
pub(crate) use reach::may_pass;
pub(crate) use retag::{Retagger, keep_all, keep_own};
pub(crate) use rules::Heard;
pub(crate) use tally::Cause;
pub(crate) use turn::Turn;
pub(crate) use vlan::{Class, classify};

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

impl Policy {
    /// `None` where it asks for nothing.
    #[must_use]
    pub fn in_use(self) -> Option<Policy> {
        let Policy { guard, ingress, egress, storm } = &self;
        (guard.is_some() || ingress.is_some() || egress.is_some() || storm.is_some()).then_some(self)
    }

    /// Stage "admit": rejects or takes out frames that `from` may not send, and counts those that leave the batch here and
    /// shows them to `watch`.
    pub(crate) fn admit(&self, batch: &mut Batch<'_>, from: &Member, turn: &Turn, watch: Option<&Watch>) {
        if let Some(guard) = &self.guard {
            guard.admit(batch);
        }
        self.keep_to(turn, batch, from, watch);
    }
}
