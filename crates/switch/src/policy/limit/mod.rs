//! Limits: how much may pass, and who may have how much of that.
//!
//! - `bucket`: token buckets, exact; `units`: what they count in.
//! - `shares`: what each sender may have of a bucket that several draw on.
//! - `limiter`: a port's limit in one direction; `egress`: the limit on what several senders give a port.
//! - `ingress`: the turn of a pass at the source's limit.
//! - `waiting`: for how long frames wait. `tally`: what limits came to.

mod bucket;
mod egress;
mod ingress;
mod limiter;
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

pub use bucket::{Bucket, MAX_BURST};
pub use egress::Egress;
pub(crate) use egress::first;
pub(crate) use ingress::{Beyond, Turn};
pub(crate) use limiter::Grant;
pub use limiter::{Excess, Limit, Rates, Shared};
pub(crate) use tally::Cause;
pub use tally::{Tally, TallyReading};
