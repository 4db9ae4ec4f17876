//! Kinds of ports. A kind is a file here with its settings and their keys, opening, and status. Its line in `kinds!` below and its
//! `mod` register it. Its data path is a crate `port-KIND`, or a folder of `port-device`.
//!
//! - [`contract`]: the interface of a kind for the configuration and the daemon.
//! - [`device`], [`socket`], [`access`], [`memory`]: keys that several kinds have.
//! - `features`: names of virtio's feature bits.
//! - [`finding`]: devices that the opener opens. `netns`: work inside a network namespace.

pub mod access;
pub mod contract;
pub mod device;
pub mod e1000;
mod features;
pub mod finding;
pub mod memory;
pub mod netns;
pub mod packet;
pub mod process;
mod register;
pub mod socket;
pub mod stream;
pub mod tap;
pub mod vhost_user;
pub mod xdp;

pub use contract::{CannotOpen, End, Link, Named, Opened, Opening, PortKind, Setter, State};
use register::kinds;

kinds! {
    Process = process::Process,
    Tap = tap::Tap,
    VhostUser = vhost_user::VhostUser,
    E1000 = e1000::E1000,
    Stream = stream::Stream,
    Xdp = xdp::Xdp,
    Packet = packet::Packet,
}

/// Values of `kind` that are reserved for later versions.
pub const RESERVED_KINDS: [&str; 1] = ["vxlan"];

impl Kind {
    /// Returns the indefinite article of the kind's name.
    pub fn article(self) -> &'static str {
        if self.as_str().starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
    }
}

impl Settings {
    /// Returns true if the port has a network device, so that the kernel may take long to open it.
    pub fn is_device(&self) -> bool {
        self.device().is_some()
    }

    /// Returns the name of the port's network device, or its path, if it has one.
    pub fn device(&self) -> Option<&str> {
        if let End::Device { device, .. } = self.own().end() { Some(device) } else { None }
    }

    /// Returns the path of the port's socket, if it has one.
    pub fn socket(&self) -> Option<&std::path::Path> {
        if let End::Socket { path, .. } = self.own().end() { Some(path) } else { None }
    }

    /// Returns the network namespace of the port's device, if that is not the daemon's.
    pub fn netns(&self) -> Option<&str> {
        if let End::Device { netns, .. } = self.own().end() { netns } else { None }
    }

    /// Returns true if what a predecessor of the switch has kept under this name can be this port's.
    pub fn has_kept(&self, name: &str, runtime_dir: &std::path::Path) -> bool {
        match self.own().end() {
            End::Nothing | End::Client => false,
            End::Device { device, .. } => ringway_port_device::is_kept_of(name, self.kind().as_str(), device),
            End::Socket { path, .. } => ringway_port::front_end::is_kept_of(name, &runtime_dir.join(path)),
        }
    }

    /// Returns the path of the socket that Ringway makes for the port, if it makes one.
    pub fn own_socket(&self) -> Option<&std::path::Path> {
        if let End::Socket { path, listens: true } = self.own().end() { Some(path) } else { None }
    }
}
