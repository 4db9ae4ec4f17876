//! Which side of a connection listens.

/// Which side listens on the socket of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The port listens, the peer connects.
    #[default]
    Server,
    /// The peer listens. The port connects, and reconnects after each disconnect.
    Client,
}
