//! The path of a frame (DESIGN §2).
//!
//! - `stages`: collect, admit, forward, deliver, release.
//! - `beyond`: frames beyond their source's limit. `exhausted`: what floods a port that may be given no more.
//! - `notify`: waking clients. `passed`: what came of a pass.
//! - `workspace`: what a poller keeps between passes, and whose a panic is.
//! - `empty`: ports that are given what others left for them.

mod beyond;
mod empty;
mod exhausted;
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

pub use empty::{Emptied, empty};
pub use notify::see_news;
pub use passed::Passed;
pub use stages::pass;
pub use workspace::Workspace;
