//! Views over memory that another party writes.
//!
//! Memory that a client shares with the switch may change while the switch reads it, may hold anything, and could
//! shrink if it were not sealed. This crate is the one place that touches such memory, and the home of `unsafe`:
//!
//! - [`Mapping`] owns a piece of address space. If a page is no longer available (`SIGBUS`), the mapping is replaced by
//!   zeroes and marked as lost, instead of ending the process (`guard`; `former` is for the program's own handler).
//! - [`View`] is a pointer and its length, bound to the lifetime of its mapping: a fragment of a frame cannot outlive
//!   its memory. Offsets are checked once, when a view is made; each word is read once.
//! - [`Kept`] is a reference into a mapping that was checked once and keeps the mapping alive, for data that every pass
//!   needs, for example the words of a ring.
//! - [`Buffer`] is a piece of a mapping with one owner, for programs that keep frames without copying them.
//! - [`Quota`] bounds the memory of clients that this process maps.
//! - `release`: where memory that a client has, too, is unmapped.
//! - `holes`: pages of a client's sparse file that do not exist yet. `faults`: how often a thread has touched one.
//! - `prefix`, `heads`, `non_temporal`, `sum`: comparisons, copies and sums over views.
//!
//! Nothing here interprets what it reads.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod buffer;
mod faults;
mod former;
mod guard;
mod heads;
mod holes;
mod kept;
mod mapping;
mod non_temporal;
mod prefix;
mod quota;
mod release;
mod sum;
mod view;
#[cfg(test)]
mod view_tests;

pub use buffer::Buffer;
pub use faults::faults_in_holes;
pub use guard::losses;
pub use heads::{read_heads, write_heads};
pub use kept::{Kept, PinnedPieces, recycle};
pub use mapping::{MapError, Mapping, SharedMemory};
pub use non_temporal::{NonTemporal, with_non_temporal};
pub use prefix::PrefixComparer;
pub use quota::{Limits, OverQuota, Quota, can_limit_holes};
pub use release::{Work, release_by};
pub use sum::ones_sum;
pub use view::{Adjacent, Every, HEAD_BYTES, Head, Pieces, Stride, View, prefetch_read, prefetch_write};
