//! Batches: the frames of a pass, and their order.
//!
//! - `storage`: the frames of one source, in memory that is kept between passes.
//! - `collect`: adding frames; `budget`: how many more fit, and what they cost.
//! - `judge`, `classes`: admission and VLANs, decided by the first bytes of each frame.
//! - `destination`, `set_destinations`: where each frame goes.
//! - `sources`: the frames whose source addresses are learned later.
//! - `settle`, `settling`, `audience`: destinations that a forwarding program sets.
//! - `frame`, `cursor`: one frame. `frames`: the frames for one destination. `lost_frames`: the frames that a receiver lost.
//! - `lists`: frames sorted by destination.

mod audience;
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
mod lost_frames;
mod set_destinations;
mod settle;
mod settling;
mod sources;
mod storage;

#[cfg(test)]
mod batch_tests;

pub(crate) use audience::Audience;
pub use audience::PortSet;
pub(crate) use cursor::Cursor;
pub use destination::Destination;
pub use frame::{Contiguous, Frame};
pub use frames::Frames;
pub(crate) use judge::{Judge, Pattern};
pub(crate) use lists::Lists;
pub use storage::{Batch, BatchStorage, MAX_BATCH};
pub(crate) use storage::{MAX_BYTES, MOST_BYTES};
