//! Configuration, the administration API and the daemon that ties ports, switches and pollers together.
//!
//! The modules stand on floors. A module imports modules of lower floors and, within its own folder, files that stand below it.
//! `crates/switch/tests/floors.rs` checks this.
//!
//! ```text
//!  serve        the process: sockets, signals, timers              client    the commands' side of control.sock
//!  http         the server on control.sock: routes, metrics, /openapi.json
//!  daemon       the running switches, ports and pollers, and their changes
//!  config       the whole configuration: checked, compared, described
//!  kinds        kinds of ports, a file each: settings with their keys, opening, status
//!  api          the JSON of control.sock
//!  keys         names, places, mistakes; keys, their forms, and the reader of tables
//!  runtime_dir  the directory with the sockets                     inject    failures that tests ask for
//! ```
//!
//! `client` needs `api` and the floors below it alone.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod api;
pub mod client;
pub mod config;
pub mod daemon;
pub mod http;
mod inject;
pub mod keys;
pub mod kinds;
pub mod runtime_dir;
pub mod serve;

/// What the daemon says.
pub use ringway_engine::log;

/// The longest wait for a peer that may hang. Tests make it longer.
pub use inject::patience;
