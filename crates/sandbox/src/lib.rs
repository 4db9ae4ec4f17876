//! What the switch gives up before it has its first client. A client that takes the switch over then has no file, no other process and no privilege
//! of the machine: what needs one, the opener does (`ringway_keeper::opener`).
//!
//! - [`give_up_privileges`]: capabilities, also those of programs that it could execute.
//! - [`give_up_files`]: files, signals to others, TCP ports (Landlock, Linux 5.13 to 6.12). Both hold for the calling thread and those that it starts: call
//!   them while there is no other.
//! - [`give_up_calls`]: system calls (seccomp), of all threads. [`give_up_all_but_computing`]: nearly all of them, for the compiler of forwarding programs.
//!
//! Each is a stage of its own. A machine that does not have one has the others.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod calls;
mod files;
mod missing;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

pub use calls::{Refusal, give_up_all_but_computing, give_up_calls};
pub use files::{Files, give_up_files};
pub use missing::Missing;

/// Gives up all capabilities, and those that execve(2) could give.
///
/// # Errors
/// The kernel refuses.
pub fn give_up_privileges() -> Result<(), Missing> {
    let none = CapabilitySet::empty();
    let give_up = || {
        set_no_new_privs(true)?;
        // The ambient ones go with the inheritable ones.
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
    };
    give_up().map_err(|why: Errno| format!("the switch keeps its privileges: {why}"))
}
