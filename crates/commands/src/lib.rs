//! The commands that carry frames themselves, and what all commands share: the [`context`] of a command, and [`out`]put.
//!
//! They are optimised where the rest of the command is not, and nothing here waits for the daemon to be built.
#![forbid(unsafe_code)]

pub mod context;
pub mod r#gen;
pub mod lwep;
pub mod out;
