//! One poller: a thread that serves its ports by weighted round robin (VPE §4.4).
//!
//! The schedule ([`crate::schedule`]) decides which ports the poller visits and when. The other modules here are the
//! thread ([`thread`]), its loop ([`run`]), the rounds after which the loop reads the clock ([`cadence`]), visits
//! ([`visit`]) and their cost ([`charge`]), sleep ([`sleep`]) and whether the processor is shared
//! ([`sharing`]), new topologies ([`adopt`]), quarantine ([`quarantine`]),
//! recovery from a panic ([`recover`]), and what a thread does first that relieves another one ([`relieve`]). What is done for
//! movers in another way than for ports is in [`mover`].

mod adopt;
mod cadence;
mod charge;
mod mover;
mod quarantine;
mod recover;
mod relieve;
mod run;
mod sharing;
mod sleep;
mod thread;
mod visit;

pub(crate) use thread::{name_of, spare};
