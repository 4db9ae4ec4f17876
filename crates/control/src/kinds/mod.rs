//! Kinds of ports. A kind is a file here: its settings with their keys, how it is opened, and what is reported of it. It is
//! registered by its line in `kinds!` below, and by its `mod`. What moves its frames is a folder of ringway-ports.
//!
//! - [`contract`]: what a kind is to the configuration and to the daemon.
//! - `netns`: work inside a network namespace.

pub mod contract;
pub mod e1000;
mod netns;
pub mod process;
mod register;
pub mod stream;
pub mod tap;
pub mod vhost_user;

pub use contract::{CannotOpen, End, Link, Named, Opened, Opening, PortKind, Setter, State};
use register::kinds;

kinds! {
    Process = process::Process,
    Tap = tap::Tap,
    VhostUser = vhost_user::VhostUser,
    E1000 = e1000::E1000,
    Stream = stream::Stream,
}

/// Values of `kind` of later versions.
pub const LATER: [&str; 2] = ["xdp", "vxlan"];

impl Kind {
    /// The indefinite article of the kind's name.
    pub fn article(self) -> &'static str {
        if self.as_str().starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
    }
}

impl Settings {
    /// The path of the port's socket, if it has one.
    pub fn socket(&self) -> Option<&std::path::Path> {
        if let End::Socket(path) = self.own().end() { Some(path) } else { None }
    }
}
