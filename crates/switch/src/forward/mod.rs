//! Forwarding: where each frame of a batch goes (VALE §3.3.1 and §3.3.3).
//!
//! - `learning`, `map`: the forwarding functions; `addresses`: what both do.
//! - `hear`: whether a port may hear a frame.
//! - `hold`: frames that wait in their sender's ring for room at their receiver.
//! - `show`: frames of ports that are watched.

mod addresses;
mod hear;
mod hold;
mod learning;
mod map;
mod show;

#[cfg(test)]
mod hold_tests;

pub(crate) use hear::{may_hear, receiver};
pub(crate) use hold::hold;
pub use learning::Learning;
pub use map::MacMap;
pub(crate) use show::{forward_watched, show};
