//! The state of one direction of a connection, without memory, link or clock: time is an argument, in nanoseconds.

mod number;
mod queue;
mod receiver;
mod round_trip;
mod sender;

pub use number::{MICROSECOND, MILLISECOND, Nanos, SECOND, is_before};
pub use receiver::{Arrival, Receiver, Taken};
pub use sender::{Acknowledged, Acknowledgement, Part, Sender, TimedOut};
