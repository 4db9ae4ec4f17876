//! The path of a frame (DESIGN §2).
//!
//! - `stages`: the path on one page. `collect`, `admit`, `forward`: its first stages. Delivery is in `egress`.
//! - `beyond`: frames beyond their source's limit. `exhausted`: frames that flood a port beyond its limit.
//! - `notify`: calls to clients. `passed`: the result of a pass.
//! - `beside`: ports that are in no switch.
//! - `workspace`: a poller's memory between passes, and the ports to retire after a panic.
//! - `empty`: ports in quarantine are given the frames in their backlogs.

mod admit;
mod beside;
mod beyond;
mod collect;
mod empty;
mod exhausted;
mod forward;
mod notify;
mod passed;
mod stages;
mod workspace;

#[cfg(test)]
mod blame_tests;
#[cfg(test)]
mod exhausted_tests;
#[cfg(test)]
mod pass_tests;
#[cfg(test)]
mod waiting_tests;

pub use empty::{DetourDelivery, empty};
pub use notify::handle_event;
pub use passed::Passed;
pub use stages::pass;
pub use workspace::Workspace;
