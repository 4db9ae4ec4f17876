//! The way out: frames to the ports that they are for.

mod capture;
mod deliver;
mod offload;
mod queues;
mod segment;
mod tag;

#[cfg(test)]
mod watch_tests;

pub(crate) use deliver::{Delivery, Exhausted};
