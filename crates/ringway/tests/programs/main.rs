//! Forwarding programs: the kits (`kits/`), their examples, and `ringway program`.
//!
//! - `kit`: builds the examples, as users do.
//! - `packets`: frames of IP.
//! - `offline`: examples and hostile frames, by `ringway program run`.
//! - `commands`: `ringway program` and its mistakes.
//! - `scene`: a switch with a program, and its ports.
//! - `switch`: each example in a switch.
//! - `files`: the files that `program` and `config_file` name.
//! - `loading`: what happens while a program is compiled, with a compiler that waits.
//! - `absent`: a build without programs.

mod absent;
mod commands;
mod files;
mod kit;
mod loading;
mod offline;
mod packets;
mod scene;
mod switch;
