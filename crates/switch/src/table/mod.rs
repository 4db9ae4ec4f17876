//! Tables: where addresses are, and how often they moved.
//!
//! - `mac_table`: addresses and the ports that they were heard from.
//! - `moves`: the addresses that moved last.
//! - `hold_down`: how long an address that moved stays where it is.

mod hold_down;
mod mac_table;
mod moves;

#[cfg(test)]
mod hold_down_tests;
#[cfg(test)]
mod mac_table_tests;

pub use mac_table::{Learned, MacEntry, MacTable};
pub use moves::Move;
