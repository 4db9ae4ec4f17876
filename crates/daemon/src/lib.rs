//! The daemon that ties ports, switches and pollers together, and its administration API.
//!
//! The modules stand on floors. A module imports modules of lower floors and, within its own folder, files that stand below it.
//! `crates/switch/tests/floors.rs` checks this.
//!
//! ```text
//!  serve        the process: sockets, signals, timers
//!  http         the server on control.sock: routes, metrics, /openapi.json
//!  daemon       the running switches, ports and pollers, and their changes
//!  sandbox      what the switch gives up at its start
//!  runtime_dir  the directory with the sockets                     state_file  what commands changed, kept
//!  opener       the process that opens for the switch              inject       failures that tests ask for
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod daemon;
pub mod http;
mod inject;
pub mod opener;
pub mod runtime_dir;
mod sandbox;
pub mod serve;
pub mod state_file;

/// What the daemon says.
pub use ringway_runtime::log;

pub use ringway_runtime::inheritance;
