//! Views over memory that another party writes.
//!
//! Everything that a client shares with the switch changes while the switch reads it, may be garbage, and could shrink if it
//! were not sealed. This crate is the one place that touches such memory, and the home of `unsafe`:
//!
//! - [`Mapping`] owns a piece of address space. A page that can no longer be had (`SIGBUS`) is replaced by zeroes and noted,
//!   instead of ending the process (`guard`).
//! - [`View`] is a pointer and its length, bound to the life of its mapping: a fragment of a frame cannot outlive its memory.
//!   Offsets are checked once, when a view is made; each word is read once.
//! - [`Kept`] is a piece that was found and checked once, with a hold on its mapping, for what every pass needs, such as the
//!   words of a ring.
//! - [`Quota`] bounds the memory that others may give to this process.
//! - `holes`: pages of a client's sparse file that do not exist yet.
//! - `alike`, `past`, `row`, `sum`: comparisons, copies and sums over views.
//!
//! Nothing here interprets what it reads.

mod alike;
mod guard;
mod holes;
mod kept;
mod mapping;
mod past;
mod quota;
mod row;
mod sum;
mod view;
#[cfg(test)]
mod view_tests;

pub use alike::Alike;
pub use guard::losses;
pub use kept::{Kept, KeptPieces, recycled};
pub use mapping::{GiveError, Mapping, SharedMemory};
pub use past::{Past, past_caches};
pub use quota::{Limits, OverQuota, Quota, bounds_holes};
pub use row::{read_heads, write_heads};
pub use sum::ones_sum;
pub use view::{HEAD_BYTES, Head, Pieces, View, prefetch_read, prefetch_write};
