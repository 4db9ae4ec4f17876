//! Virtqueues, the device's side (virtio 1.3, 2.6 to 2.8), and network frames on them (5.1.6).
//!
//! A ring's format is behind [`Ring`]: `split` and `packed`. What a network device does with chains of descriptors is
//! written once for both: `transmit` takes frames from the driver, `receive` gives frames to it.
//!
//! Everything in a ring is written by the driver while we look: each word is read once, and positions are ours. What is
//! malformed costs one of two things:
//!
//! - The driver's connection ([`RingFault`]): what of the ring's own structure is wrong, so that neither a chain's extent nor its
//!   buffers are certain. An index, a head or a next out of range, a chain without end, an indirect table of no size or within
//!   another, a buffer outside the guest's memory or of the wrong direction, lost memory, a dirty log that is too small.
//! - One frame, which is counted by name while its chain is given back: what the chain holds. Transmit: a chain shorter than the
//!   header or a frame shorter than an Ethernet header (`runt`), one that is too long or in too many pieces (`oversize`), an offload
//!   that contradicts itself, its frame or what was negotiated (`bad_offload`). Flags of the header that mean nothing to us are
//!   ignored. Receive: chains that do not hold a frame (`receiver_too_small`), or that take too long to look through
//!   (`receiver_full`).
//!
//! A buffer or an indirect table may lie in several regions of the guest's memory, if these are adjacent; the parts of a ring may
//! not. What a visit looks at is bounded in descriptors and pieces together, whatever the ring says.

mod fault;
mod packed;
mod receive;
mod ring;
mod split;
mod transmit;

#[cfg(test)]
mod discard_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod lap_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod malformed_tests;
#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod receive_tests;
#[cfg(test)]
mod region_tests;
#[cfg(test)]
mod suppression_tests;
#[cfg(test)]
mod take_over_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod transmit_tests;

pub use crate::gather::Bounce;
pub use fault::RingFault;
pub use packed::Packed;
pub use receive::{Receive, Tally};
pub use ring::{Addresses, Ring};
pub use split::Split;
pub use transmit::Transmit;

/// `VIRTIO_F_RING_PACKED` (virtio 1.3, 6).
pub const F_RING_PACKED: u64 = 1 << 34;
/// `VIRTIO_F_IN_ORDER` (virtio 1.3, 6).
pub const F_IN_ORDER: u64 = 1 << 35;
/// `VIRTIO_F_VERSION_1` (virtio 1.3, 6).
pub const F_VERSION_1: u64 = 1 << 32;
/// `VIRTIO_F_INDIRECT_DESC` (virtio 1.3, 6).
pub const F_INDIRECT_DESC: u64 = 1 << 28;
/// `VIRTIO_F_EVENT_IDX` (virtio 1.3, 6).
pub const F_EVENT_IDX: u64 = 1 << 29;
/// `VIRTIO_F_ANY_LAYOUT` (virtio 1.3, 6.3).
pub const F_ANY_LAYOUT: u64 = 1 << 27;
/// `VIRTIO_NET_F_MRG_RXBUF` (virtio 1.3, 5.1.3).
pub const F_MRG_RXBUF: u64 = 1 << 15;
