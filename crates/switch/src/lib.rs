//! The switch: what happens to a frame between two ports.
//!
//! The path of a frame is [`pass`]: collect, admit, forward, deliver, release (DESIGN §2, VALE §3.3). Everything here is
//! pure: ports are behind [`Input`] and [`Output`], time is an argument, and there is neither I/O nor `unsafe`.

#![forbid(unsafe_code)]

mod batch;
mod calls;
mod counters;
mod defect;
mod deliver;
mod detour;
mod examine;
mod forward;
mod hold_down;
mod mac;
mod mac_table;
mod moderation;
mod moves;
mod offload;
mod pass;
pub mod policy;
mod port;
mod switch;
mod time;
mod watch;

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod blame_tests;
#[cfg(test)]
mod detour_tests;
#[cfg(test)]
mod examine_tests;
#[cfg(test)]
mod hold_down_tests;
#[cfg(test)]
mod mac_table_tests;
#[cfg(test)]
mod moderation_tests;
#[cfg(test)]
mod pass_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod watch_tests;

pub use batch::{Batch, BatchStorage, Destination, Frame, InTurn, MAX_BATCH};
pub use calls::PendingCalls;
pub use counters::{Counters, CountersReading, DropReason};
pub use defect::{Defect, Place, Role, contain, giving, guard_thread, is_guarded, note_panic, take_giving};
pub use deliver::Frames;
pub use examine::{Examined, Given, Spent};
pub use forward::{Forward, Learning, MacMap};
pub use mac::Mac;
pub use mac_table::{Learned, MacEntry, MacTable, Owner};
pub use moderation::{Entry, Gate, Moderation, Pace};
pub use moves::Move;
pub use offload::{Accepts, BadOffload, Gso, Headers, MAX_FRAME, Offload};
pub use pass::{Emptied, Passed, Workspace, empty, pass, see_news};
pub use policy::Policy;
pub use port::{Asked, Bell, Discarded, Input, News, Output, Port, PortFault};
pub use switch::{Forwarding, MAX_PORTS, Member, Spread, Spreads, Switch};
pub use time::Time;
pub use watch::{Seen, Tap, Watch, Way};
