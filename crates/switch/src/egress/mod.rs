//! Egress: delivery of frames to their destination ports.
//!
//! - `outgoing`: a batch to be delivered. `deliver`: a list of frames for each destination. `flood`: which ports may
//!   get flooded frames.
//! - `transmit`: frames to one port. `chain`: the wrappers around its output, from the outside in `limit`, `shares`, `tag`,
//!   `offload` (coalescing, segmentation, checksums), `capture`; `receiver`: what they share.
//! - `backlog`, `detour`: frames for a port in quarantine.
//! - `progress`, `blame`: the frames that are in no counter yet if there is a panic.

mod backlog;
mod blame;
mod capture;
mod chain;
mod deliver;
mod detour;
mod flood;
mod limit;
mod offload;
mod outgoing;
mod progress;
mod receiver;
mod shares;
mod tag;
mod transmit;

#[cfg(test)]
mod watch_tests;

pub(crate) use deliver::{Delivery, Exhausted};
pub(crate) use outgoing::Outgoing;
