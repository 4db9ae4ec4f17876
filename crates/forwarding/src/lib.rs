//! Forwarding programs: WebAssembly modules that decide where a switch's frames go (VALE §3.3.3, §7).
//!
//! `docs/guide/forwarding-programs.md` is the contract between Ringway and a program. This crate is the host's side of it: it judges a
//! module, compiles it, runs one instance for each poller, and bounds what an instance can cost. It knows nothing of files, sockets or
//! configuration, and the switch knows it by the trait [`ringway_switch::Program`] only.
//!
//! ```text
//!   offline     one instance without a switch
//!     |
//!   program     the instances of one loaded module; faults; what the switch calls
//!     |
//!   slot        whose turn it is to use an instance
//!     |
//!   keeper      the thread that has instances started anew, fires timers and writes the log
//!     |
//!   instance    one instance: its exports, the frames in its memory, its verdicts
//!     |
//!   host        the functions that a module may import
//!     |
//!   module      judging what was compiled
//!     |
//!   compiler    the process that compiles; compile: what it does; engine: the settings of both
//!     |
//!   state       what an instance knows; meters, map, limits, layout
//!     |
//!   ticker      ends calls that take too long; awake: its sleep while there are none
//!     |
//!   fault
//! ```
//!
//! # Trust
//!
//! A program is the administrator's, but it is treated like a client. It sees no memory but its own; wasmtime keeps it there. It gets copies
//! of the first bytes of frames, and what it returns is a word for each frame, which the switch checks. Every host function checks the ranges
//! that it is given.
//!
//! The compiler reads the module's bytes in a process of its own, with bounded time and memory and without privileges. Its machine code runs in this process, and
//! nothing can prove machine code harmless: the compiler is trusted as Ringway itself is. `module` says what is checked.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
#![deny(unsafe_code)]
// A model of the handshake in `awake` needs no compiler of programs, which takes minutes to build.
#![cfg(not(loom))]

mod awake;
mod clock;
#[cfg(feature = "compiler")]
mod compile;
mod compiler;
mod engine;
mod fault;
mod host;
mod instance;
mod keeper;
mod layout;
mod limits;
mod map;
mod meters;
mod module;
mod modules;
mod offline;
mod program;
mod runtime;
mod shared;
mod slot;
mod state;
mod text;
mod ticker;
mod unacceptable;

#[cfg(feature = "compiler")]
pub use compile::{NotCompiled, compile};
pub use compiler::{
    Bounds, COMPILER, Compiler, NO_MEMORY, REFUSED, TOO_MUCH_MEMORY, find_for_switch as find_compiler_for_switch,
    start_for_switch as start_compiler_for_switch,
};
pub use fault::{Fault, FaultKind};
pub use limits::{
    CALL_TIME, COMPILER_MEMORY, COMPILER_TIME, COMPILER_WAIT, CONFIG_MAX, INTERFACE, MEMORY_MAX, MESSAGE_MAX,
    MODULE_MAX, STATE_MAX,
};
pub use offline::{Offline, OfflineFrame, Sent, check};
pub use program::{Load, Program, ProgramState, Reading, TellError};
pub use runtime::Runtime;
pub use unacceptable::Unacceptable;
