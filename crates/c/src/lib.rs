//! The C library: [`ringway_client`] and [`ringway_lwep`] for programs in C and C++.
//!
//! `include/ringway.h` is generated from these modules (`tests/header.rs`), so the comments of everything that is exported are
//! for C's programmers. `packaging/c-library` links `libringway.so` and `libringway.a`, with `ringway.map` for the symbols' version.
//! `docs/man/ringway.3` and `docs/man/ringway-lwep.3` are the manual.
//!
//! A panic in this library ends the process: `extern "C"` functions abort where they would unwind into C. Every pointer is compared
//! with NULL, every number with its range. What the library cannot check is that a pointer refers to memory of the length that the
//! caller says, and that a ring is used by one thread at a time: that is each function's contract with its caller.

// The contract of all functions is the header's first comment: valid pointers, one thread at a time.
#![allow(clippy::missing_safety_doc)]

mod error;
mod lwep;
mod memory;
mod offload;
mod port;
mod ring;
mod rx;
mod tx;

pub use error::*;
pub use lwep::*;
pub use memory::*;
pub use offload::*;
pub use port::*;
pub use ring::*;
pub use rx::*;
pub use tx::*;
