//! What the pollers and the device models share, so that a kind of port does not depend on the engine.
//!
//! | module | holds |
//! |---|---|
//! | [`call`](mod@call) | calls: the switch wakes a client by the client's eventfd, and never waits |
//! | [`signal`] | how a client announces frames; [`watch`]: the descriptors by which it does |
//! | [`mover`] | what moves frames between two clients without a switch |
//! | [`contain`](mod@contain) | containment of panics |
//! | [`serving`] | whose port each thread serves, for the successor of a process that dies |
//! | [`thread_usage`], [`ticks`], [`clock`], [`timer`] | what a thread took, and what time it is |
//! | [`os_scheduler`] | the kernel's scheduling policy of threads without a processor of their own |
//! | [`inheritance`] | what the processes get that this one starts |
//! | [`log`] | what the daemon says, written by threads of its own |
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
// Loom checks nothing here.
#![cfg(not(loom))]

pub mod call;
pub mod clock;
pub mod contain;
mod descriptors;
pub mod inheritance;
pub mod log;
pub mod mover;
pub mod os_scheduler;
pub mod serving;
pub mod signal;
pub mod thread_usage;
pub mod ticks;
pub mod timer;
pub mod watch;

pub use call::{CallAccount, Called, call, interrupt};
pub use clock::{nanoseconds, seconds};
pub use contain::{INTERNAL_ERROR, PanicCounter, fatal, guard_thread, run_or_exit, warn_limited};
pub use descriptors::prepare_descriptors;
pub use mover::{Moved, Mover};
pub use os_scheduler::use_batch_scheduling;
pub use ringway_switch::contain;
pub use signal::Signal;
pub use watch::Watch;
