//! The polling engine (VPE §3 and §4): threads that serve ports by weighted round robin.
//!
//! # For control
//!
//! - [`Engine::start`] starts the pollers of an [`EngineSettings`]; dropping the engine ends and joins them.
//! - What they serve is a [`Topology`], an immutable value: build a new one and hand it to [`Engine::publish`] whenever a
//!   port or switch is added, removed or changed. Pollers adopt it between two batches; a sleeping one is woken. Memory
//!   of a removed port is unmapped when the last poller has let go of the topology that held it.
//! - A port is a `ringway_switch::Port` (its counters and output, reached by every poller) inside a
//!   `ringway_switch::Member`, and a [`Source`] (its input, owned by one poller at a time).
//! - A port that broke the rules has `Port::fault()` set; [`Engine::faults`] is a descriptor that becomes readable then.
//!   Control removes such ports from the topology and tells the client.

// Under `--cfg loom` only what loom checks is there.
#[cfg(not(loom))]
mod budget;
#[cfg(not(loom))]
mod call;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod contain;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
mod looks;
#[cfg(not(loom))]
mod manners;
#[cfg(not(loom))]
mod meter;
#[cfg(not(loom))]
mod pacing;
#[cfg(not(loom))]
mod poller;
mod published;
#[cfg(not(loom))]
mod quarantine;
#[cfg(not(loom))]
mod reaper;
#[cfg(not(loom))]
mod recover;
#[cfg(not(loom))]
mod source;
#[cfg(not(loom))]
mod ticks;
#[cfg(not(loom))]
mod timer;
#[cfg(not(loom))]
mod witness;

#[cfg(not(loom))]
pub use budget::SlowReading;
#[cfg(not(loom))]
pub use call::{Called, call, interrupt};
#[cfg(not(loom))]
pub use clock::{nanoseconds, seconds};
#[cfg(not(loom))]
pub use contain::{INTERNAL_ERROR, Strikes, fatal, guard_thread, run_or_die, say_rarely};
#[cfg(not(loom))]
pub use engine::{Engine, EngineSettings, Idle, PollerReading, Topology};
#[cfg(not(loom))]
pub use manners::wait_for_turns;
pub use published::Published;
#[cfg(not(loom))]
pub use ringway_switch::contain;
#[cfg(not(loom))]
pub use source::{Attached, Signal, Source};
