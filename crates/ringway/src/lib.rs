//! What the executables of this package share: the subcommands, the options of every command, and writing to stdout.
//!
//! `ringway` is the product. `ringway-lab` (feature `lab`) runs `ringway bench` and `ringway demo`; `ringway` finds it and
//! executes it ([`commands::lab`]), so that plotting, experiments and virtual machines are not part of the product.
#![forbid(unsafe_code)]

pub mod commands;
pub mod global;
pub mod out;
