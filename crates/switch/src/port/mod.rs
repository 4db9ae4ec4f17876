//! Ports: what a client gives the switch, and what the switch gives a client.
//!
//! - `input`, `output`, `bell`: what a kind of port implements. `fault`: how a port ends.
//! - `event`, `ring`, `moderation`, `calls`: when a client is woken.
//! - `counters`: what is counted.
//! - `attachment`: one port, as all pollers see it.
//! - `detour`: frames that wait for a port with a thread of its own.
//! - `tap`: who is shown a port's frames. `examined`: inputs whose time is measured.

mod attachment;
mod bell;
mod calls;
mod counters;
mod detour;
mod event;
mod examined;
mod fault;
mod input;
mod moderation;
mod output;
mod ring;
mod tap;

#[cfg(test)]
mod detour_tests;
#[cfg(test)]
mod examine_tests;
#[cfg(test)]
mod moderation_tests;

pub use attachment::Port;
pub use bell::{Asked, Bell};
pub use calls::PendingCalls;
pub use counters::{Counters, CountersReading};
pub(crate) use detour::Taken;
pub use event::News;
pub use examined::{Examined, Given, Spent};
pub use fault::PortFault;
pub use input::{Discarded, Input};
pub use moderation::{Entry, Gate, Moderation, Pace};
pub use output::Output;
pub use tap::{Seen, Tap, Watch, Way};
