//! Captures: frames of a port, as pcapng (draft-ietf-opsawg-pcapng), while they flow.
//!
//! Pollers write whole pcapng blocks into a [`ring`](Ring), with one reservation and one copy per frame. Any number of
//! pollers write, and none waits. A frame without room is counted in `epb_dropcount` of the next frame's block and in the
//! statistics block at the end. A [`Reader`] takes the blocks out.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
#![forbid(unsafe_code)]

mod block;
mod capture;
mod ring;

#[cfg(test)]
mod capture_tests;
#[cfg(test)]
mod ring_tests;

pub use capture::{Capture, Counts, Options, Reader, Selection};
pub use ring::Ring;
