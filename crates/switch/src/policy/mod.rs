//! Policy: what a port may send, and how much (DESIGN §6). Judged on the private copies only.

mod claims;
mod guard;

#[cfg(test)]
mod claims_tests;
#[cfg(test)]
mod guard_tests;

use std::sync::Arc;

use crate::batch::Batch;
use crate::switch::Member;
use crate::time::Time;

pub use claims::{Claims, Protocol, Role, Unreadable};
pub use guard::{Checks, Guard, Prefix};

/// What the configuration says of one port's frames. A clone shares what must last over changes of the topology: buckets,
/// counters.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Whose name it may speak in; none: anybody's.
    pub guard: Option<Arc<Guard>>,
}

impl Policy {
    /// Stage "admit": rejects or takes out frames that `from` may not send, and counts those that leave the batch here.
    pub(crate) fn admit(&self, batch: &mut Batch<'_>, _from: &Member, _now: &Time) {
        if let Some(guard) = &self.guard {
            guard.admit(batch);
        }
    }
}
