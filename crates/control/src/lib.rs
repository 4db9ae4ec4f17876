//! Configuration, the administration API and the daemon that ties ports, switches and pollers together.
//!
//! - [`config`]: TOML, command-line keys and JSON become one checked [`config::Config`]; two of them become a list of
//!   actions.
//! - [`api`]: what the daemon says and takes on `control.sock`: HTTP and JSON.
//! - [`kinds`]: kinds of ports, a file each: settings, opening, status.
//! - [`client`]: the commands' side of that socket.
#![forbid(unsafe_code)]

pub mod api;
pub mod client;
pub mod config;
pub mod daemon;
mod inject;
pub mod kinds;
pub mod runtime_dir;
