//! One poller: a thread that serves its ports by weighted round robin (VPE §4.4).
//!
//! Its [`crate::schedule`] says which ports it visits and when. Here is what surrounds the schedule: the thread ([`thread`]), its
//! loop ([`run`]) and the times at which that reads the clock ([`cadence`]), visits ([`visit`]) and what they cost
//! ([`charge`]), sleep ([`sleep`]), the ports ([`adopt`]) and their quarantine ([`quarantine`]), and what follows a panic
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
