//! The units of token buckets.

/// Parts of one unit (a bit or a frame).
pub(crate) const PARTS: i64 = 1_000_000_000;
/// Parts of one byte.
pub(crate) const BYTE: i64 = 8 * PARTS;
