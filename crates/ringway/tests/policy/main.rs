//! What may pass, how fast, and whom it reaches.

mod buckets;
mod guard;
mod limits;
mod nics_policy;
mod reach;
mod vlans;
