//! The functions that this library defines in place of libc's.
//!
//! They are `extern "C-unwind"`, and the ones that go on to libc have nothing to drop, because libc ends a cancelled thread by unwinding
//! through them. Functions that C declares with variable arguments have them as fixed ones here, which are passed in the same registers.

mod descriptors;
mod open;
mod rings;
mod wait;
