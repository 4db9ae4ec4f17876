//! What C names by a number.

use ringway_lwep::{Kept, Outgoing};

/// What the program has of an endpoint.
pub(crate) enum Held {
    Outgoing(Outgoing),
    Kept(Kept),
    Copy(Box<[u8]>),
}
