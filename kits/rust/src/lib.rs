//! Forwarding programs of Ringway, in Rust: the function of a switch that decides where frames go.
//!
//! A program is a type that implements [`Program`], and the line [`export!`]. It is built for `wasm32-unknown-unknown`, without the
//! standard library. The interface below is described in `docs/guide/forwarding-programs.md`; this crate makes it safe.
//!
//! ```no_run
//! #![no_std]
//! use ringway_program::{export, Batch, Program, Refused, Start, Verdict};
//!
//! struct Hub;
//!
//! impl Program for Hub {
//!     type Head = [u8; 0];
//!
//!     fn start(_: &mut Start) -> Result<Self, Refused> {
//!         Ok(Hub)
//!     }
//!
//!     fn frames(&mut self, batch: Batch<'_, Self::Head>) {
//!         for frame in batch {
//!             frame.set(Verdict::FLOOD);
//!         }
//!     }
//! }
//!
//! export!(Hub);
//! ```
//!
//! | to | use |
//! |---|---|
//! | read frames and give verdicts | [`Batch`], [`Frame`], [`Verdict`] |
//! | register drop reasons, counters and gauges; read `config` | [`Start`] |
//! | find ports, name sets of ports | [`Port`], [`PortSet`] |
//! | learn and look up addresses | [`Frame::learn`], [`mac_lookup`] |
//! | read addresses, protocol and ports of a frame | [`Flow`], [`Address`], [`Prefix`], [`protocol`] |
//! | remember things in this instance | [`Table`], [`Cache`], [`Rules`], [`filled`] |
//! | remember things for all instances | [`map`] |
//! | time, random numbers, log | [`now`], [`random`], [`log!`], [`timer`] |
//! | hand state to the program that replaces this one | [`State`] |
//!
//! A panic ends as the fault `trap`; the log has its file and line.
#![cfg_attr(not(test), no_std)]
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

mod address;
mod batch;
mod cache;
mod export;
mod flow;
mod host;
mod log;
pub mod map;
mod memory;
mod panic;
mod port;
mod program;
mod rules;
mod switch;
mod table;

pub use address::{mac, Address, Prefix};
pub use batch::{Batch, Frame, Frames, Head, Verdict};
pub use cache::Cache;
pub use flow::{ether_type, hash, protocol, Flow, ARP, ICMP, ICMPV6, IPV4, IPV6, TCP, UDP};
pub use log::{log, Line};
pub use memory::{bytes, filled};
pub use port::{Port, PortSet};
pub use program::{Counter, DropReason, Gauge, Program, Refused, Saved, Start, State};
pub use rules::Rules;
pub use switch::{instance, instances, mac_lookup, now, random, timer, SECOND};
pub use table::Table;

/// What [`export!`] expands to. Not for programs.
#[doc(hidden)]
pub mod exported {
    pub use crate::export::{Area, Instance};
}
