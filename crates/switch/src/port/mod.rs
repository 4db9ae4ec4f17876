//! Ports: what a client gives the switch, and what the switch gives a client.
//!
//! - `input`, `output`, `bell`: what a kind of port implements. `fault`: how a port ends.
//! - `event`, `ring`, `moderation` (with `tuner`), `calls`: when a client is woken.
//! - `counters`: what is counted.
//! - `attachment`: one port, as all pollers see it.
//! - `detour`: frames and calls that wait for a port in quarantine. `touching`: the port whose memory a thread touches.
//! - `pauses`: when the frames of a port are looked at for TCP segments that can be joined.
//! - `verdicts`: a forwarding program's verdicts on frames of the port that wait.
//! - `tap`: captures and mirror ports of a port. `examined`: inputs whose time is measured.

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
mod pauses;
mod ring;
mod tap;
mod touching;
mod tuner;
mod verdicts;

#[cfg(test)]
mod detour_tests;
#[cfg(test)]
mod examine_tests;
#[cfg(test)]
mod moderation_tests;

pub use attachment::Port;
pub use bell::{Bell, CallResult};
pub use calls::PendingCalls;
pub use counters::{Counters, CountersReading};
pub use detour::{DetourEnd, DetourRoom, prepare_detours};
pub(crate) use detour::{FrameBuffer, Taken};
pub use event::CallReason;
pub use examined::{DeliveryTime, Examined, TimeSpent};
pub use fault::PortFault;
pub use input::{Armed, Discarded, Input, InputCapabilities, WakeOn};
pub use moderation::{CallGate, Entry, FrameRateMeter, Moderation};
pub use output::{Output, OutputCapabilities};
pub(crate) use pauses::Pauses;
pub use tap::{FrameDirection, Tap, TappedFrame, Watch};
pub use touching::Touching;
pub use tuner::{Totals, Tuner};
pub(crate) use verdicts::{Kept, Known, Scope};
