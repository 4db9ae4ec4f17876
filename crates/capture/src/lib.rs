//! Captures: frames of a port, as pcapng (draft-ietf-opsawg-pcapng), while they flow.
//!
//! Pollers write whole pcapng blocks into a [`ring`](Ring) that nobody waits for; a [`Reader`] takes them out. What has no
//! room is counted, and the file says so: at the next frame, and in its last block.

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
