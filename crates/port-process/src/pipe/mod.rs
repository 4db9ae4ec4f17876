//! Pipes: two ends, each with rings, and what one sends the other receives (netmap's `PORT{ID` and `PORT}ID`).
//!
//! A pipe drops nothing: a sender's slots come back when the receiver returns them, so that a slow receiver leaves the sender
//! without free ones. Ends in one region exchange buffers: the receiver's slot gets the sender's buffer number. Ends in two
//! regions each have buffers of their own, and the bytes are copied once.
//!
//! Each end is a mover ([`ringway_runtime::mover`]): the poller of the sender moves what is sent, the poller of the receiver gives back
//! what is returned.
//!
//! - `lane`: one direction of one ring pair. `state`: the ends, opened and closed in any order.
//! - `mover`: an end as pollers serve it. `open`, `close`: how an end comes and leaves. `closing`: how many may be leaving.

mod close;
mod closing;
mod lane;
mod mover;
mod open;
mod state;
#[cfg(test)]
mod tests;

pub use closing::{check_unclosed_pipes, unclosed_pipes};
pub use mover::PipeIo;
pub use state::Pipe;
