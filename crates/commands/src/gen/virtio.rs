//! The driver of a virtio-net device: `--vhost-user`.

use std::path::{Path, PathBuf};

use ringway_traffic::{SocketRole, VhostUserError, VirtioEndpoint, VirtioOptions};

use super::attached::AnyPort;
use super::report::GenError;

/// What a virtio-net driver can be told.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Driver options")]
pub struct VirtioArgs {
    /// Drive the virtio-net device of the vhost-user back end at this socket, instead of a process port
    #[arg(long, value_name = "SOCKET")]
    pub vhost_user: Vec<PathBuf>,
    /// Listen on the socket: the back end connects
    #[arg(long, requires = "vhost_user")]
    listen: bool,
    /// Packed rings instead of split ones
    #[arg(long, requires = "vhost_user")]
    packed: bool,
    /// Negotiate that the device uses buffers in order
    #[arg(long, requires = "vhost_user")]
    in_order: bool,
    /// Negotiate event indices
    #[arg(long, requires = "vhost_user")]
    event_idx: bool,
    /// Negotiate that a received frame may take several buffers
    #[arg(long, requires = "vhost_user")]
    mergeable: bool,
    /// The device's queue pair to use, from 0; those before it are set up and left empty
    #[arg(long, value_name = "N", default_value_t = 0, requires = "vhost_user", value_parser = clap::value_parser!(u16).range(0..=127))]
    queue_pair: u16,
}

impl VirtioArgs {
    /// Becomes the driver of the device at `socket`.
    pub fn attach(&self, socket: &Path, tx_ring: u32, rx_ring: u32, buffer_size: u32) -> Result<AnyPort, GenError> {
        let options = VirtioOptions {
            socket_role: if self.listen { SocketRole::Listen } else { SocketRole::Connect },
            tx_ring,
            rx_ring,
            buffer_size,
            pair: self.queue_pair,
            in_order: self.in_order,
            event_idx: self.event_idx,
            mergeable: self.mergeable,
            ..VirtioOptions::default()
        };
        let attached = if self.packed {
            VirtioEndpoint::attach(socket, &options).map(AnyPort::Packed)
        } else {
            VirtioEndpoint::attach(socket, &options).map(AnyPort::Split)
        };
        attached.map_err(|error| match error {
            VhostUserError::Options(_) | VhostUserError::Lacks { .. } => GenError::Usage(error.to_string()),
            _ => GenError::Failed(error.to_string()),
        })
    }
}
