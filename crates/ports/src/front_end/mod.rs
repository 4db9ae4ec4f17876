//! What port kinds share that hypervisors connect to: the socket, complete messages, a thread of the port's own, and the
//! delay before the next connection after a fault.

mod backoff;
mod connection;
mod descriptor;
mod fields;
mod files;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod hold_up;
mod listener;
// Front ends choose the numbers here: release builds of this crate have no overflow checks, and no arithmetic here may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod receiver;
#[cfg(any(test, fuzzing))]
pub(crate) mod testing;
mod thread;

pub(crate) use backoff::Backoff;
pub(crate) use connection::Connection;
pub(crate) use descriptor::is_eventfd;
pub(crate) use fields::Fields;
pub use files::refuse_files;
pub(crate) use files::{close_elsewhere, receive};
pub(crate) use hold_up::{CALL_BLOCKED, HoldUps};
use listener::connect;
pub(crate) use listener::{Files, Listener};
use receiver::MESSAGE_WITHIN;
pub(crate) use receiver::{Framing, Received, Receiver, SocketError};
use ringway_switch::{Defect, PortFault};
pub(crate) use thread::{Answered, Stop, Thread, wait};

/// Who is told what becomes of a port. Called on the port's own thread.
pub trait Observer: Send + Sync {
    /// A front end came, or went.
    fn connected(&self, on: bool);
    /// A front end broke the rules and lost its connection.
    fn fault(&self, reason: &'static str, detail: String);
    /// Ringway failed on the port's own thread, which has ended: the port is to be made anew.
    fn failed(&self, defect: Defect) {
        self.fault(PortFault::InternalError(defect).name(), defect.to_string());
    }
    /// A front end asked for what it cannot have, was told, and goes on without. At most once for each connection.
    fn refused(&self, reason: &'static str, detail: String) {
        let _ = (reason, detail);
    }
}

/// An answer was not read in time: its text.
pub(crate) fn unread() -> String {
    format!("the front end did not read what it asked for within {MESSAGE_WITHIN:?}")
}

/// A message was not whole in time: its text.
pub(crate) fn too_slow() -> String {
    format!("a message was not whole within {MESSAGE_WITHIN:?}")
}
