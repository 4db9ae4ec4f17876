//! The subcommands of `ringway` and their command line, for the program itself and for the tests of its documents.
#![forbid(unsafe_code)]

pub mod command;
mod commands;
mod out;
