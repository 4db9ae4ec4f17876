//! Two e1000 ports of ours, with our own driver at each.

use std::io;
use std::path::PathBuf;

use ringway_traffic::{E1000Endpoint, E1000Options};

use crate::daemon::Daemon;
use crate::network::Network;

/// A daemon as a network of e1000 drivers.
pub struct E1000s {
    daemon: Daemon,
    options: E1000Options,
}

impl E1000s {
    /// The drivers will be as `options` say.
    #[must_use]
    pub fn new(daemon: Daemon, options: E1000Options) -> E1000s {
        E1000s { daemon, options }
    }
}

impl Network for E1000s {
    type Port = E1000Endpoint;

    fn attach(&mut self, count: usize) -> io::Result<Vec<E1000Endpoint>> {
        Network::resume(&mut self.daemon)?;
        let attach = |socket: &PathBuf| E1000Endpoint::attach(socket, &self.options).map_err(io::Error::other);
        self.daemon.nics().iter().take(count).map(attach).collect()
    }

    fn hold(&mut self) -> io::Result<()> {
        Network::hold(&mut self.daemon)
    }

    fn resume(&mut self) -> io::Result<()> {
        Network::resume(&mut self.daemon)
    }
}
