//! Scenes of the integration tests, only ever a dev-dependency: the `ringway` command with a daemon in a directory of its own,
//! clients of process ports, floods, network namespaces, DPDK's testpmd.
//!
//! Unit tests use `ringway-testing`: this crate depends on crates of the workspace, which a unit test of theirs would link twice.
#![forbid(unsafe_code)]

mod daemon;
pub mod flood;
pub mod guest;
pub mod namespace;
mod port;
pub mod testpmd;

pub use daemon::{Daemon, PATIENCE_VARIABLE, Said, binary, ringway};
pub use port::{receive, send, settle, why_ended};
pub use ringway_testing::frame::short as frame;
pub use ringway_testing::{PATIENCE, until, until_some, whole};
