//! The switch: what happens to a frame between two ports.
//!
//! The path of a frame is [`pass`]: collect, admit, forward, deliver, release (DESIGN §2, VALE §3.3). Everything here is
//! pure: ports are behind [`Input`] and [`Output`], time is an argument, and there is neither I/O nor `unsafe`.
//!
//! The modules stand on floors. A module uses modules of its own floor's folder and of the floors below, and none above;
//! `tests/floors.rs` proves that there is no circle.
//!
//! ```text
//!   pass        collect, admit, forward, deliver, release; whose a panic is
//!     |
//!   egress      the way out: limit, shares, VLAN tag, software offload, capture
//!     |
//!   forward     learning bridge, MAC map; whether a port may hear a frame; frames that wait
//!     |
//!   topology    a switch and its ports, as pollers see them
//!     |
//!   port        Input, Output, Bell; faults, counters, moderation, taps
//!     |
//!   policy      guard, rules, reach, vlan, limit, storm, congestion
//!     |
//!   table       MAC table, moves, hold-down
//!     |
//!   batch       the frames of a pass and their order
//!     |
//!   frame       plain values: addresses, classes, costs, drop reasons, headers
//!     |
//!   time, defect, single_writer
//! ```

#![forbid(unsafe_code)]

mod batch;
mod defect;
mod egress;
mod forward;
mod frame;
mod pass;
pub mod policy;
mod port;
mod single_writer;
mod table;
mod time;
mod topology;

#[cfg(test)]
mod offload;
#[cfg(test)]
mod testing;

pub use batch::{Batch, BatchStorage, Destination, Frame, Frames, InTurn, MAX_BATCH};
pub use defect::{Defect, Place, Role, contain, giving, guard_thread, is_guarded, note_panic, take_giving};
pub use forward::{Learning, MacMap};
pub use frame::{Accepts, BadOffload, DropReason, Gso, Headers, MAX_FRAME, MAX_PORTS, Mac, Offload, Owner};
pub use pass::{Emptied, Passed, Workspace, empty, pass, see_news};
pub use policy::Policy;
pub use port::{
    Asked, Bell, Counters, CountersReading, Discarded, Entry, Examined, Gate, Given, Input, Moderation, News, Output,
    Pace, PendingCalls, Port, PortFault, Seen, Spent, Tap, Watch, Way,
};
pub use table::{Learned, MacEntry, MacTable, Move};
pub use time::Time;
pub use topology::{Forward, Forwarding, Member, Spread, Spreads, Switch};
