//! Frames as bytes. `docs/lwep.md` defines every field.

pub mod acks;
pub mod checksum;
pub mod description;
mod ethernet;
pub mod header;
pub mod segmented;

pub use acks::Entry as AcksEntry;
pub use description::Description;
pub use ethernet::{ETHER_TYPE, ETHERNET_BYTES, Ethernet, IPV4, Mac};
pub use header::{Header, Kind, Malformed};

/// Bytes before the data in the plain layout.
pub const PLAIN_BYTES: usize = ETHERNET_BYTES + header::BYTES;
