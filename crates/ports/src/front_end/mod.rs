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
// Front ends choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in this
// module may wrap.
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

/// Receives a port's events. The methods run on the port's own thread.
pub trait Observer: Send + Sync {
    /// A front end connected (`on`) or disconnected.
    fn connected(&self, on: bool);
    /// A front end broke the protocol and lost its connection.
    fn fault(&self, reason: &'static str, detail: String);
    /// A defect in Ringway ended the port's own thread. The port has to be replaced.
    fn failed(&self, defect: Defect) {
        self.fault(PortFault::InternalError(defect).name(), defect.to_string());
    }
    /// A front end asked for something that it cannot have. It was told so and continues without. At most one call for
    /// each connection.
    fn refused(&self, reason: &'static str, detail: String) {
        let _ = (reason, detail);
    }
}

/// The text of the fault "the front end did not read an answer in time".
pub(crate) fn unread() -> String {
    format!("the front end did not read what it asked for within {MESSAGE_WITHIN:?}")
}

/// The text of the fault "a message was not complete in time".
pub(crate) fn too_slow() -> String {
    format!("a message was not whole within {MESSAGE_WITHIN:?}")
}
