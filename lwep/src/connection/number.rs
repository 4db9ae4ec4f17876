//! Times and numbers of messages.

/// A time in nanoseconds, from any origin.
pub type Nanos = u64;
/// Nanoseconds of a microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// Nanoseconds of a millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND: Nanos = 1_000_000_000;

/// Returns how many numbers `b` is after `a`, which is not after it.
#[inline]
pub const fn distance(a: u32, b: u32) -> u32 {
    b.wrapping_sub(a)
}

/// Returns true if `a` is before `b`, modulo 2^32.
#[inline]
pub const fn is_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}
