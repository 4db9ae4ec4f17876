//! Network devices of Linux, for the ports of the switch and for the links of programs.
//!
//! | module | holds |
//! |---|---|
//! | [`requests`] | requests about a device: its number, address, MTU, features |
//! | [`packet`] | options of packet sockets |
//! | [`xdp`] | AF_XDP: the sockets' memory and rings, the program that gives them frames |
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod packet;
pub mod requests;
pub mod xdp;
