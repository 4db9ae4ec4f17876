//! What outlives the process: the state of a port's NIC in a memory file that the keeper holds, for a successor.
//!
//! ```text
//!   words: layout, last record, progress of the input   one cache line
//!   words of each ring: position, base, contexts        written by pollers, once before frames go out and once after
//!   record A | record B                                  written by the port's own thread after each message, in turn
//! ```
//!
//! The switch writes two records by turns: a switch that dies while it writes one leaves the other one whole. A reader checks the layout's number, the length
//! and a checksum, and every value in it as if a client had written it.
//!
//! - `bytes`: values in a record. `memory`: the file. `place`: the words of a ring.

mod bytes;
mod memory;
mod place;

pub(crate) use bytes::{Reader, Writer};
pub(crate) use memory::NotUsable;
pub use memory::State;
pub(crate) use place::{CONTEXT_WORDS, Noted, Place, Position, RECEIVE, TRANSMIT, TRANSMIT_SECOND};
