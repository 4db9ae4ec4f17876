//! Process ports: netmap's rings in memory shared with one client, and a doorbell (VALE §3.1, VPE §4.3 and §4.7).
//!
//! - `server`: the server of `attach.sock`.
//! - `region`: one memory for several ports, for the netmap API.
//! - `pipe`: pipes between two programs.
//! - `open`: makes a port, or goes on with one that a predecessor left.
//! - `external`: memory that a client brings for its buffers.
//! - `positions`: what a successor of the switch has to know of the rings.
//! - `ring`: one ring of a client's memory, as the switch uses it.
//! - `input`: the client's transmit rings; `output`: the client's receive rings.
//!
//! The switch never reads the client's own `head` and `cur` in `netmap_ring`: indices go through the doorbell
//! (`ringway_abi::doorbell`). A slot is one 64-bit word, read once. Slot words that are equal already are not written again,
//! so that a ring with frames of one size moves only the frames' own cache lines between the cores.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod client_handles;
mod external;
#[cfg(fuzzing)]
pub mod fuzzing;
mod input;
mod kept_fd;
mod open;
mod output;
mod pipe;
mod positions;
mod region;
mod ring;
mod server;
#[cfg(test)]
mod server_tests;

pub use client_handles::{ClientHandles, LeftPort};
pub use external::ExternalMemory;
pub use kept_fd::{Keeping, KeptFd};
pub use open::{open, open_lasting, open_left, open_with};
pub use pipe::{Pipe, PipeIo, check_unclosed_pipes, unclosed_pipes};
pub use positions::Positions;
pub use region::{Region, RegionError, RegionPort, Registration};
pub use ringway_port::front_end::Process;
pub use server::{
    Asker, AttachServer, Change, ClientId, Disconnector, Grant, Host, Listed, NetmapHost, Refusal, TimeLimits,
};
