//! Which ports a poller visits, and when (VPE §3 and §4.4): a value without threads, descriptors, ports or a clock.
//!
//! Each port is in one [`State`]:
//!
//! ```text
//!              frames, or a wake-up              the limit, or a pause, delays its frames
//!     +---------------------------------+      +-----------------------------------------+
//!     |                                 v      |                                         v
//!   Parked <--- some empty visits --- Active / Resting <------ its time has come ----- Waiting
//!     ^                                 |
//!     |   armed, but cannot kick        |
//!   Polled <----------------------------+
//! ```
//!
//! - A round visits every *active* port once. While a port is *resting*, rounds skip it: see [`pacing`].
//! - A port that had no frames for some visits is *parked*. A round polls only a few of the parked ports, so that its cost
//!   grows with the active ports and not with all ports. VPE §3 proposes hierarchical flags for that, which clients
//!   would have to share.
//! - A *waiting* port is not visited before a given time: a limit holds its frames back, or the port took too much time
//!   and is set aside.
//! - Before the poller sleeps, it arms each port that is not armed yet. An armed port stays armed until it is active, so that
//!   falling asleep costs in proportion to the ports that were active since the last sleep.
//! - A port whose client cannot kick is *polled*: the sleeping poller wakes at intervals ([`poll_interval`]) and polls it.
//!
//! The schedule names a port by its *slot*, a small number that [`Schedule::admit`] gives out. All times are values: nanoseconds
//! of the pollers' clock.

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
