//! The command line of `ringway` and its subcommands: for the program itself, for `ringway-lab`, and for the tests of the documents.
//!
//! `ringway` is the product. `ringway-lab` (features `demo` and `lab`) runs `ringway bench` and `ringway demo`; `ringway` finds it and executes
//! it, so that plotting, experiments and virtual machines are not part of the product.
#![forbid(unsafe_code)]

pub mod closer;
pub mod command;
mod commands;
mod global;
mod journal;
mod keeper;
#[cfg(feature = "demo")]
pub mod lab;
mod service_manager;
