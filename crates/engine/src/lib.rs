//! The polling engine (VPE §3 and §4): threads that serve ports by weighted round robin.
//!
//! # For the control thread
//!
//! - [`Engine::start`] starts the pollers of an [`EngineSettings`]. Dropping the engine ends and joins them.
//! - The pollers serve a [`Topology`], an immutable value: to add, remove or change a port or a switch, build a new one and
//!   give it to [`Engine::publish`]. Pollers adopt it between two batches; a sleeping poller is woken. The memory of a
//!   removed port is unmapped when the last poller has let go of the topology that held it.
//! - A port is a `ringway_switch::Port` (its counters and output, which every poller reaches) inside a
//!   `ringway_switch::Member`, and a [`Source`] (its input, which one poller owns at a time).
//! - A mover moves frames between two clients without a switch. It is a `ringway_switch::Port` and a [`Source`], too, with a [`Place`]
//!   beside its peer.
//! - A port whose client broke the protocol has `Port::fault()` set. [`Engine::faults`] is a descriptor that becomes
//!   readable then. The control thread removes such ports from the topology and notifies their clients.
//!
//! # Modules, from the bottom
//!
//! ```text
//! engine                                   starts and ends the pollers, publishes
//! relieving                                the thread that relieves pollers
//! poller/   reaper                         the other threads
//! stall   quarantine   shared              what the threads share
//! known
//! topology
//! source                                   the input of a port, and the time that the port costs
//! poller_state   meter   schedule/         shared state of a poller; duration of visits; which ports are visited, and when
//! relief   spare                           threads that relieve pollers
//! settings  budget  client  charging  published
//! ```
//!
//! Below them is `ringway-runtime`: the clock, calls, signals, containment, the log.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

// Under `--cfg loom` there is only what loom checks.
#[cfg(not(loom))]
mod budget;
mod charging;
#[cfg(not(loom))]
mod client;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
mod known;
#[cfg(not(loom))]
mod meter;
#[cfg(not(loom))]
mod poller;
#[cfg(not(loom))]
mod poller_state;
mod published;
#[cfg(not(loom))]
mod quarantine;
#[cfg(not(loom))]
mod reaper;
#[cfg(not(loom))]
mod relief;
#[cfg(not(loom))]
mod relieving;
#[cfg(not(loom))]
mod schedule;
#[cfg(not(loom))]
mod settings;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod source;
#[cfg(not(loom))]
mod spare;
#[cfg(not(loom))]
mod stall;
#[cfg(not(loom))]
mod topology;

#[cfg(not(loom))]
pub use budget::SlowReading;
#[doc(hidden)]
pub use charging::Charging;
#[cfg(not(loom))]
pub use client::Client;
#[cfg(not(loom))]
pub use engine::Engine;
#[cfg(not(loom))]
pub use poller_state::PollerReading;
pub use published::Published;
#[cfg(not(loom))]
pub use relief::Relieved;
#[cfg(not(loom))]
pub use settings::{EngineSettings, Idle};
#[cfg(not(loom))]
pub use source::Source;
#[cfg(not(loom))]
pub use topology::{Attached, Ends, Place, Topology};
