//! What ports share that hypervisors connect to: their socket, messages whole, and a thread of their own.

mod connection;
mod descriptor;
mod fields;
mod listener;
mod receiver;
#[cfg(any(test, fuzzing))]
pub(crate) mod testing;
mod thread;

pub(crate) use connection::Connection;
pub(crate) use descriptor::is_eventfd;
pub(crate) use fields::Fields;
pub(crate) use listener::Listener;
use listener::connect;
use receiver::MESSAGE_WITHIN;
pub(crate) use receiver::{Framing, Received, Receiver, SocketError};
pub(crate) use thread::{Answered, Stop, Thread, wait};

/// Who is told what becomes of a port. Called on the port's own thread.
pub trait Observer: Send + Sync {
    /// A front end came, or went.
    fn connected(&self, on: bool);
    /// A front end broke the rules and lost its connection.
    fn fault(&self, reason: &'static str, detail: String);
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
