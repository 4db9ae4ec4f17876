//! The connection of a port to its peer by a socket, for all port kinds that have one.
//!
//! A kind gives a [`Protocol`]: what it does with one connection. Everything else is here:
//!
//! - `service`: the loop of the port's own thread: connect, serve, close, pause.
//! - `connector`, `listener`, `role`: how connections are made. `access`: who may connect.
//! - `connection`: a connection and its graceful close.
//! - `peer`: the connection that is served: waiting, sending answers, closing further connections.
//! - `receiver`, `fields`: complete messages with their descriptors; `late_receiver`: the same, and leaves many messages in the socket. `files`, `descriptor`: files from a front end.
//! - `unread`: what the peer has not read. `closing`: closing what clients have sent, on threads of its own.
//! - `closer`: the process that closes for the last time what clients can have, too.
//! - `kept`, `kept_names`, `answers`: connections that outlive the switch.
//! - `end`: why a connection ended. `pauses`, `backoff`, `blocked_calls`: the pause before the next connection.
//! - `state`, `observer`: what the port reports.
//! - `own_socket`: the sockets of Ringway itself.
//! - `thread`: the thread, and the signal that stops it.

mod access;
mod answers;
mod backoff;
mod blocked_calls;
mod closer;
mod closing;
mod connection;
mod connector;
mod descriptor;
mod end;
mod fields;
mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
mod kept;
mod kept_names;
mod listener;
mod observer;
mod own_socket;
mod pauses;
mod peer;
mod peer_process;
mod placing;
// Front ends choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in this
// module may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod late_receiver;
#[deny(clippy::arithmetic_side_effects)]
mod receiver;
#[cfg(test)]
mod receiver_tests;
mod role;
mod service;
#[cfg(test)]
mod service_tests;
mod state;
mod taking_over;
#[cfg(any(test, fuzzing, feature = "testing"))]
#[allow(missing_docs, reason = "helpers of tests")]
pub mod testing;
mod thread;
mod unread;

pub use access::SocketAccess;
pub use answers::Answers;
pub use closer::{
    ClientFd, end as end_closer, run as run_closer, start as start_closer, start_for_switch as start_closer_for_switch,
};
pub use closer::{check_unclosed, check_unclosed_ports, take_files};
pub use closing::{
    Parties, Process, Queue as ClosingQueue, check_returned, check_unclosed as check_closing, close_in_background,
    close_socket_in_background, pause_step, register_in_steps, return_in_background,
};
pub use connection::Connection;
pub use descriptor::is_eventfd;
pub use end::{CALL_BLOCKED, End};
pub use fields::Fields;
pub use files::{accept_files, peek_bytes, peek_offset, receive, receive_into, refuse_files, set_peek_offset};
pub use kept::{Kept, Left, Part};
pub use kept_names::{is_kept_of, kept_name};
pub use late_receiver::{Journal, LateReceiver};
pub use listener::Files;
pub use observer::Observer;
pub use own_socket::listen_at;
pub use peer::Peer;
pub use peer_process::{peer_process, peer_user};
pub use placing::{answer_about_buffer, answer_about_socket, remove_socket};
pub use receiver::{Attached, Framing, Received, Receiver};
pub use role::Role;
pub use service::{OpenSocket, Protocol, Service, Socket};
pub use state::State;
pub use state::repeat;
pub use taking_over::wait_until_taken_over;
pub use unread::has_unread;
