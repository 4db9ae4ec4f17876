//! Policy: what a port may send, and how much (DESIGN §6). Judged on the private copies only.

use crate::batch::Batch;
use crate::switch::Member;
use crate::time::Time;

/// What the configuration says of one port's frames. A clone shares what must last over changes of the topology: buckets,
/// counters.
#[derive(Clone, Debug, Default)]
pub struct Policy {}

impl Policy {
    /// Stage "admit": rejects or takes out frames that `from` may not send, and counts those that leave the batch here.
    pub(crate) fn admit(&self, _batch: &mut Batch<'_>, _from: &Member, _now: &Time) {}
}
