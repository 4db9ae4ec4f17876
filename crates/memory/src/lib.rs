//! Views over memory that another party writes.
//!
//! Everything a client shares with the switch changes while the switch looks at it, may be garbage, and (were it not
//! sealed) could shrink under it. This crate is the one place that touches such memory:
//!
//! - [`Mapping`] owns a piece of address space. A page of it that can no longer be had (`SIGBUS`) is replaced by zeroes
//!   and noted, instead of ending the process.
//! - [`View`] is a pointer and its length, never apart, bound to the life of its mapping. Offsets are checked once, when
//!   a view is made; what is read is read once.
//! - [`Kept`] is a piece that was found so and the mapping with it, for whoever needs it again and again.
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
