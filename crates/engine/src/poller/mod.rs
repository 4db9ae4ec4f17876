//! One poller: a thread that serves its ports by weighted round robin (VPE §4.4).
//!
//! The schedule ([`crate::schedule`]) says which ports the poller visits and when. Here is what surrounds it: the thread
//! ([`thread`]), its loop ([`run`]) and the rounds after which that reads the clock ([`cadence`]), visits ([`visit`]) and what they
//! cost ([`charge`]), sleep ([`sleep`]), new topologies ([`adopt`]), quarantine ([`quarantine`]), and what follows a panic
//! ([`recover`]).

mod adopt;
mod cadence;
mod charge;
mod quarantine;
mod recover;
mod run;
mod sleep;
mod thread;
mod visit;

pub(crate) use thread::spawn;
