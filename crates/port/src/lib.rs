//! What every kind of port uses. A kind is a crate `port-KIND` with one public function `open` that makes the parts of a port: its input,
//! its output, its bell and its signal ([`PortIo`]). The daemon opens a port in the kind's file in `config/src/kinds`.
//!
//! The modules stand on floors. A module imports modules of lower floors only (`crates/switch/tests/floors.rs` proves it).
//!
//! - [`front_end`]: everything around a peer's connection: connecting, the port's own thread, complete messages, the pause before
//!   the next connection, the state in reports.
//! - [`guest`]: a guest's memory, and the log of its written pages.
//! - [`gather`]: frames whose pieces are in several places of a guest's memory.
//! - [`port_io`]: the parts of a port.
//! - [`copy`]: copies rows of frames into a client's memory.
//! - [`steer`]: receive queue selection.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod copy;
pub mod front_end;
pub mod gather;
// Guests choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in this module
// may wrap.
#[deny(clippy::arithmetic_side_effects)]
pub mod guest;
pub mod port_io;
pub mod steer;
#[cfg(any(test, feature = "testing"))]
#[allow(missing_docs, clippy::new_without_default, reason = "helpers of tests")]
pub mod testing;

pub use front_end::{
    ClientFd, Observer, Role, SocketAccess, State, answer_about_buffer, answer_about_socket, end_closer, listen_at,
    remove_socket, run_closer, start_closer, start_closer_for_switch,
};
pub use port_io::PortIo;
