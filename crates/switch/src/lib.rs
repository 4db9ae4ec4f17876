//! The switch: what happens to a frame between two ports.
//!
//! The path of a frame is [`pass`]: collect, admit, forward, deliver, release (DESIGN §2, VALE §3.3). Everything here is
//! pure: ports are behind [`Input`] and [`Output`], time is an argument, and there is neither I/O nor `unsafe`.
//!
//! The modules stand on floors. A module uses modules of its own floor's folder and of the floors below, and none above;
//! `tests/floors.rs` proves that there is no circle.
//!
//! ```text
//!   pass        collect, admit, forward, deliver, release; which port a panic belongs to
//!     |
//!   egress      delivery: limit, shares, VLAN tag, offload (coalescing, segmentation, checksums), capture
//!     |
//!   forward     learning bridge, MAC map, programs; whether a port may receive a frame; frames that wait
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
//!   time, defect, single_writer, poller_number
//! ```
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
#![forbid(unsafe_code)]

mod batch;
mod defect;
mod egress;
mod forward;
mod frame;
mod pass;
pub mod policy;
mod poller_number;
mod port;
mod single_writer;
mod table;
mod time;
mod topology;

#[cfg(test)]
mod testing;

pub use batch::{Batch, BatchStorage, Contiguous, Destination, Frame, Frames, MAX_BATCH, PortSet};
pub use defect::{
    Defect, PanicLocation, Role, contain, giving, guard_thread, is_guarded, note_giving_in, note_panic, take_receiving,
};
pub use forward::{
    BadVerdict, Judging, Learning, MAX_REASONS, MAX_SETS, MacMap, OnFault, Program, ProgramFailed, Programmed, Seen,
    Unprogrammed, VISIT_WORK, Verdict, View, ViewPort,
};
pub use frame::{
    Accepts, Account, BadOffload, DropReason, Gso, Headers, MAX_FRAME, MAX_PORTS, Mac, Offload, Owner, Tunnel,
    WaitingPlace,
};
pub use pass::{DetourDelivery, Passed, Workspace, empty, handle_event, pass};
pub use policy::Policy;
pub use poller_number::{poller_number, set_poller_number};
pub use port::{
    Armed, Bell, CallGate, CallReason, CallResult, Counters, CountersReading, DeliveryTime, DetourEnd, DetourRoom,
    Discarded, Entry, Examined, FrameDirection, FrameRateMeter, Input, InputCapabilities, Moderation, Output,
    OutputCapabilities, PendingCalls, Port, PortFault, Tap, TappedFrame, TimeSpent, Totals, Touching, Tuner, WakeOn,
    Watch, prepare_detours,
};
pub use table::{Learned, MacEntry, MacTable, Move};
pub use time::{Measure, Moment, Time};
pub use topology::{FloodAction, FloodPolicy, Forward, Forwarding, Member, ReservedGroups, Switch};
