//! Regions: one memory for all ports of a family of processes, with one pool of buffers.
//!
//! ```text
//! 0            INTERFACE_BYTES         buffers
//! | netmap_if  | port | port |  ...    | 0 | 1 | 2 | ...   |
//! ```
//!
//! The memory has its final size from the start, so that one mapping covers all later ports; pages are made as they are
//! touched. Each registration has a page with a `netmap_if`, each port has doorbell and rings. Every slot may name any buffer
//! of the pool.
//!
//! When a port goes, the buffers that its slots name go back to the pool, whatever port they were allocated to: the client
//! may have swapped them. A number that is out of range or free already is ignored. A client that writes one number into many
//! slots loses buffers of its own region until the region goes.
//!
//! From the bottom:
//!
//! - `error`: why a region cannot serve. `room`: which pages and buffers are in use. `memory`: the region.
//! - `part`: a port's own part of the region.
//! - `claims`: which registrations have which rings. `calls`: the call descriptors of a port's registrations. `extra`: their
//!   extra buffers.
//! - `port`: a port in the region. `registration`: a port, or some of its rings, for one connection.

mod calls;
mod claims;
mod error;
mod extra;
mod memory;
pub(super) mod part;
mod port;
mod registration;
mod room;
#[cfg(test)]
mod tests;

pub use error::RegionError;
pub use extra::Extra;
pub use memory::Region;
pub use port::RegionPort;
pub use registration::Registration;
