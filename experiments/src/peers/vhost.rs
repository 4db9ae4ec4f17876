//! The vhost-user ports of any switch, with our own virtio-net driver at each.

use std::io;
use std::path::PathBuf;

use ringway_traffic::{Ring, VirtioEndpoint, VirtioOptions};

use crate::network::Network;

/// A switch with vhost-user ports that listen. It is running when it has started.
pub trait VhostSwitch {
    /// Where the ports listen.
    fn sockets(&self) -> Vec<PathBuf>;

    /// Stops it where it is.
    ///
    /// # Errors
    /// It is gone.
    fn hold(&mut self) -> io::Result<()>;

    /// Lets it go on.
    ///
    /// # Errors
    /// It is gone.
    fn resume(&mut self) -> io::Result<()>;
}

/// Such a switch as a network of virtio-net drivers with rings of kind `R`.
pub struct Vhost<S, R> {
    switch: S,
    options: VirtioOptions,
    attached: usize,
    ring: std::marker::PhantomData<R>,
}

impl<S: VhostSwitch, R: Ring> Vhost<S, R> {
    /// The drivers will be as `options` say.
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
