//! The source guard: a port's frames speak in its own name only.
//!
//! - `claims`: what a frame claims about its sender.
//! - `checks`, `ranges`: what a port may claim.
//! - `source`: judges frames. `pattern`: frames that are like one that passed are compared only.

mod checks;
mod claims;
mod pattern;
mod ranges;
mod source;

#[cfg(test)]
mod claims_tests;
#[cfg(test)]
mod guard_tests;

pub use checks::{Checks, Prefix};
pub use claims::{Claims, Protocol, Role, Unreadable};
pub use source::Guard;
