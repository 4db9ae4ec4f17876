//! Tables: the port of each address, and moves of addresses.
//!
//! - `mac_table`: addresses and the ports that last sent from them.
//! - `moves`: the latest moves.
//! - `hold_down`: how long an address that moved stays where it is.

mod hold_down;
mod mac_table;
mod moves;

#[cfg(test)]
mod hold_down_tests;
#[cfg(test)]
mod mac_table_tests;

pub(crate) use mac_table::Owners;
pub use mac_table::{Learned, MacEntry, MacTable};
pub use moves::Move;
