//! Configuration, the administration API and the daemon that ties ports, switches and pollers together.
//!
//! - [`config`]: TOML, command-line keys and JSON become one checked [`config::Config`]; two of them become a list of
//!   actions.
//! - [`daemon`]: the running switches, ports and pollers, and their changes.
//! - [`api`]: HTTP and JSON on `control.sock`.
//! - [`client`]: the commands' side of that socket.
#![forbid(unsafe_code)]

pub mod api;
pub mod client;
pub mod config;
pub mod daemon;
mod inject;
pub mod runtime_dir;
