//! `kind = "stream"`: frames on a stream socket, to any NIC of QEMU (`-netdev stream`) or to passt.

use std::collections::BTreeSet;
use std::time::Instant;

use ringway_api::types::{PortStatus, StreamStatus};
use ringway_port_stream as port;

use super::contract::{CannotOpen, End, Link, Named, Opened, Opening, PortKind, State};
use super::socket::{Role, Socket, SocketPath};
use crate::keys::{Keys, Mac, Name, keys};

keys! {
    /// Settings of a stream port.
    pub struct Stream {}
    groups {
        /// The socket on which the peer connects, or to which the daemon does.
        socket: Socket,
    }
}

impl Named for Stream {
    const NAME: &'static str = "stream";
    const ABOUT: &'static str = "Frames on a stream socket: any NIC of QEMU (-netdev stream), or passt.";
}

impl PortKind for Stream {
    fn named(&mut self, name: &Name) {
        self.socket.at = SocketPath::of_port(name);
    }

    fn validate(&mut self, _: &Name, keys: &Keys<'_>) {
        self.socket.validate(keys);
    }

    fn end(&self) -> End<'_> {
        End::Socket { path: &self.socket.at.path, listens: self.socket.role == Role::Server }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Opened, CannotOpen> {
        let wanted = port::Settings {
            label: at.label.to_owned(),
            socket: at.runtime_dir.join(&self.socket.at.path),
            role: self.socket.role.get(),
            access: self.socket.at.access.get(at.access),
        };
        let opened = port::open_kept(&wanted, at.observer.clone(), at.keeper);
        let (sides, port) = opened.map_err(|why| CannotOpen::socket(&self.socket.at.path, why))?;
        Ok(Opened { sides, link: Some(Box::new(Peer(port))), namespace: None })
    }

    fn report(&self, _: &Name, _: &BTreeSet<Mac>, status: &mut PortStatus) {
        status.stream = Some(StreamStatus {
            socket: self.socket.at.path.display().to_string(),
            role: self.socket.role.as_str().to_owned(),
        });
    }
}

/// The control side of a port.
struct Peer(port::Stream);

impl Link for Peer {
    fn report(&mut self, _: Instant, _: &mut PortStatus) -> Option<State> {
        Some(self.0.state())
    }
}
