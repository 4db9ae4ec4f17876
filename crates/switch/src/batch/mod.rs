//! Batches: the frames of a pass, and their order.
//!
//! - `storage`: the frames of one source, in memory that is kept between passes.
//! - `collect`: adding frames; `budget`: how many more fit, and what they cost.
//! - `judge`, `classes`: what is decided by the first bytes of all frames of a batch.
//! - `destination`, `place`: where each frame goes.
//! - `frame`, `cursor`: one frame. `frames`: those for one destination. `losses`: those that a receiver lost.
//! - `lists`: frames sorted by destination.

mod budget;
mod classes;
mod collect;
mod cursor;
mod destination;
mod entry;
mod frame;
mod frames;
mod judge;
mod lists;
mod losses;
mod place;
mod storage;

#[cfg(test)]
mod batch_tests;

pub(crate) use cursor::Cursor;
pub use destination::Destination;
pub use frame::{Frame, InTurn};
pub use frames::Frames;
pub(crate) use judge::{Judge, Pattern};
pub(crate) use lists::Lists;
pub(crate) use storage::MOST_BYTES;
pub use storage::{Batch, BatchStorage, MAX_BATCH};
