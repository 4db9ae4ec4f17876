//! Limits: how much may pass, and each sender's share.
//!
//! - `bucket`: exact token buckets; `units`: their units.
//! - `shares`: fair shares of a bucket with several senders.
//! - `limiter`: a port's limit in one direction; `egress`: a port's egress limit and the shares of its senders.
//! - `ingress`: the stage of a pass at the source's limit.
//! - `shape`: which frames beyond it wait, and which are dropped.
//! - `waiting`: how long frames wait. `tally`: counters of limits.

mod bucket;
mod egress;
mod ingress;
mod limiter;
mod shape;
mod shares;
mod tally;
mod units;
mod waiting;

#[cfg(test)]
mod bucket_tests;
#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod tally_tests;
#[cfg(test)]
mod use_tests;

pub use bucket::{Bucket, MAX_BURST};
pub(crate) use egress::Admitted;
pub use egress::Egress;
pub(crate) use ingress::{OverLimit, Turn};
pub(crate) use limiter::Grant;
pub use limiter::{Excess, Limit, Rates, Shared};
pub(crate) use shape::{SHORT, oldest_to_wait};
pub(crate) use tally::Cause;
pub use tally::{Tally, TallyReading};
