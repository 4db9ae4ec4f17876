//! The schedule: which ports a poller visits, and when (VPE §3 and §4.4). It is a value without threads, descriptors,
//! ports or a clock.
//!
//! Each port is in one state (`lists::State`):
//!
//! ```text
//!              frames, or a wake-up              a limit or a pause delays its frames
//!     +---------------------------------+      +-------------------------------------+
//!     |                                 v      |                                     v
//!   Parked <--- some empty visits --- Active / Resting <---- its time has come ---- Waiting
//!     ^                                 |
//!     |   armed, but cannot kick        |
//!   Polled <----------------------------+
//! ```
//!
//! - A round visits every *active* port once. While a port is *resting*, rounds skip it ([`pacing`]).
//! - A port is active while it has frames and for 256 empty visits afterwards (a device: 16). Then it is *parked*. A
//!   round polls 8 of the parked ports, so its cost grows with the active ports only: a thousand idle ports cost a
//!   round the same as eight. (VPE §3 hopes to get that from hierarchical flags; these would need memory shared between
//!   clients, `docs/decisions/hierarchical-flags.md`.)
//! - A *waiting* port is not visited before a given time: a limit holds its frames back, or the port took too much time and is
//!   set aside.
//! - Before the poller sleeps, it arms each port that is not armed yet. A port stays armed until it is active again, so that
//!   falling asleep and waking cost in proportion to the ports that were active.
//! - A port that is armed and cannot kick is *polled*: the sleeping poller wakes at intervals and polls it ([`poll_interval`]).
//!   An event of another port neither polls such ports nor puts their poll off.
//! - A device (TAP) announces frames only by its descriptor: rounds visit it while it is active, and do not poll it
//!   while it is parked.
//!
//! The schedule names a port by its *slot*, a small number that [`Schedule::admit`] gives out. All times are nanoseconds of the
//! pollers' clock.

mod lists;
mod pacing;
mod poll_interval;
mod round;
mod sleep;
mod waiting;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub(crate) use lists::{Kind, Schedule};
pub(crate) use round::Visit;
