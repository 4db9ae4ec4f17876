//! The daemon: its configuration, its sockets and API, its log, and what it does when something fails or kills it.

mod api;
mod counters;
mod daemon;
mod failures;
mod keeper;
mod killed;
mod lasting;
mod log;
mod missing;
mod poison;
mod sandbox;
mod sockets;
mod state;
mod warnings;
