//! The vhost-user ports of any switch, with our virtio-net driver at each.

use std::io;
use std::path::PathBuf;

use ringway_traffic::{Ring, VirtioEndpoint, VirtioOptions};

use crate::network::Network;

/// A switch with listening vhost-user ports. It runs once it has started.
pub trait VhostSwitch {
    /// Sockets of the ports.
    fn sockets(&self) -> Vec<PathBuf>;

    /// Stops the switch.
    ///
    /// # Errors
    /// The program has ended.
    fn hold(&mut self) -> io::Result<()>;

    /// Lets the switch go on.
    ///
    /// # Errors
    /// The program has ended.
    fn resume(&mut self) -> io::Result<()>;
}

/// A switch with vhost-user ports as a network of virtio-net drivers whose rings are of kind `R`.
pub struct Vhost<S, R> {
    switch: S,
    options: VirtioOptions,
    attached: usize,
    ring: std::marker::PhantomData<R>,
}

impl<S: VhostSwitch, R: Ring> Vhost<S, R> {
    /// Makes a network whose drivers have these options.
    pub fn new(switch: S, options: VirtioOptions) -> Self {
        Vhost { switch, options, attached: 0, ring: std::marker::PhantomData }
    }

    /// The switch itself.
    pub fn switch(&mut self) -> &mut S {
        &mut self.switch
    }
}

impl<S: VhostSwitch, R: Ring + Send + 'static> Network for Vhost<S, R> {
    type Port = VirtioEndpoint<R>;

    fn attach(&mut self, count: usize) -> io::Result<Vec<VirtioEndpoint<R>>> {
        self.switch.resume()?;
        let sockets = self.switch.sockets();
        let first = self.attached;
        self.attached += count;
        let Some(sockets) = sockets.get(first..self.attached) else {
            return Err(io::Error::other(format!("there are only {} vhost-user ports", sockets.len())));
        };
        let attach = |socket: &PathBuf| VirtioEndpoint::attach(socket, &self.options).map_err(io::Error::other);
        sockets.iter().map(attach).collect()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.switch.hold()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.switch.resume()
    }
}
