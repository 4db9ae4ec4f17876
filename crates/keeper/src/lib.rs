//! The keeper: the process of `ringway run`. The switch is its child, and what must outlive the switch is in the keeper.
//!
//! The keeper has no client's bytes, and none of the switch's code. It starts the switch and holds descriptors that the switch gives it, by name,
//! each name with a note that only the switch reads. A switch that dies is replaced by another one, which gets all of them. Signals for the
//! switch go through the keeper, and so do messages for the service manager.
//!
//! - `message`: what both say to each other, by a socket pair that keeps messages apart.
//! - `keeper`: the keeper's side: `store` (what it holds), `switch` (its child), `closing` (closes that may take long), `pauses`,
//!   `requests` (its own socket), `serving` (a switch, and its end), `upgrade`, `standby` (a switch that is started ahead), `replacing` (of the keeper itself).
//! - `request`: what administrators ask.
//! - `child`: what every process does that the keeper starts. `link`: the switch's side.
//! - [`opener`]: a second process beside the switch, which opens what the switch may not.
//! - `page`: whose port each thread of the switch serves, for the successor of one that dies.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod child;
#[cfg(fuzzing)]
pub mod fuzzing;
mod keeper;
mod link;
#[cfg(test)]
mod link_tests;
mod message;
pub mod opener;
pub mod page;
mod request;

pub use child::NotStarted;
pub use keeper::{Ended, Event, Options, Role, carry, run};
pub use link::{Guard, Inherited, Link, Predecessor, Releasing};
pub use message::{FILES_MOST, NAME_MOST, NOTE_MOST, State};
pub use request::{Answer, ask_to_replace, ask_to_upgrade, grant};
