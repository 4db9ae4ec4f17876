//! The source guard: drops frames whose source addresses are not the port's own.
//!
//! - `claims`: what a frame claims about its sender.
//! - `checks`, `ranges`: the checks, and the addresses of a port.
//! - `source`: judges frames. `pattern`: compares frames with one that passed instead of judging each.

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
