//! Forwarding: where each frame of a batch goes (VALE §3.3.1 and §3.3.3).
//!
//! - `learning`, `map`: the forwarding functions; `addresses`: what both share.
//! - `program`: a program of the user decides.
//! - `permission`: whether a port may receive a frame.
//! - `hold`: frames that wait in the sender's ring for the receiver's limit.
//! - `spread`: flooded frames that wait for the next visit, because they go to many ports.
//! - `show`: frames for captures and mirrors.

mod addresses;
mod hold;
mod learning;
mod map;
mod permission;
mod program;
mod show;
mod spread;

#[cfg(test)]
mod hold_tests;
#[cfg(test)]
mod spread_tests;

pub(crate) use hold::{Held, hold};
pub use learning::Learning;
pub(crate) use learning::learn_sources;
pub use map::MacMap;
pub(crate) use permission::{may_receive, receiver};
pub use program::{
    BadVerdict, Judging, MAX_REASONS, MAX_SETS, OnFault, Program, ProgramFailed, Programmed, Seen, Unprogrammed,
    Verdict, View, ViewPort,
};
pub(crate) use show::{forward_watched, show};
pub use spread::VISIT_WORK;
pub(crate) use spread::bound_floods;
