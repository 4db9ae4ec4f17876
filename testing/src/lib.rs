//! Helpers of the tests, only ever a dev-dependency.
//!
//! This crate depends on no crate of the workspace, so that the unit tests of all of them can use it. Helpers that start
//! a switch or attach to one are in `ringway-scenes`, for integration tests.
//!
//! | module | helpers |
//! | --- | --- |
//! | [`wait`] | conditions that are awaited with a deadline |
//! | [`mod@whole`] | repetitions in `make test` and in `make whole` |
//! | [`mod@skip`] | tests that cannot run on this machine |
//! | [`frame`] | Ethernet addresses and frames |
//! | [`snmp`] | counters of a kernel's network stack |
//! | [`mod@file`] | temporary directories, memory files, eventfds |
//! | [`memory`] | pages that the kernel has brought in |
//! | [`child`] | child processes, ended by their process id |
//! | [`random`] | reproducible random numbers |
#![forbid(unsafe_code)]

pub mod child;
pub mod file;
pub mod frame;
pub mod memory;
pub mod random;
pub mod skip;
pub mod snmp;
pub mod wait;
pub mod whole;

pub use wait::{PATIENCE, until, until_some};
pub use whole::whole;
