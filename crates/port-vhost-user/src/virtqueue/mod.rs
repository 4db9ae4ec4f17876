//! Virtqueues, the device's side (virtio 1.3, 2.6 to 2.8), and network frames on them (5.1.6).
//!
//! [`Ring`] hides the ring's format: `split` and `packed`. What a network device does with chains of descriptors is written
//! once for both formats: `transmit` takes frames from the driver, `receive` gives frames to the driver. Both gather the
//! heads of up to 256 chains first and then work on 64 buffers at a time. A frame in one descriptor takes the short path.
//! Everything else takes the long path: chains, indirect tables, headers split over descriptors, merged buffers.
//!
//! A batch takes at most half of a ring's descriptors, but 64 where half is less. Buffers go back when the batch is done, and
//! the driver needs free descriptors meanwhile. A port's turn then has several passes (`Passed::more`).
//!
//! The driver writes everything in a ring while the device reads: each word is read once, and positions are the device's own.
//! A malformed ring costs one of two things:
//!
//! - The driver's connection ([`RingFault`]), if the ring's own structure is wrong, so that neither a chain's extent nor its
//!   buffers are certain: an index, a head or a next out of range, a chain without end, an indirect table of no size or
//!   within another, a buffer outside the guest's memory or of the wrong direction, lost memory, a dirty log that is too
//!   small.
//! - One frame, which is counted by name while its chain is given back, if only the chain's contents are wrong. Transmit: a
//!   chain shorter than the header or a frame shorter than an Ethernet header (`runt`), a frame that is too long or in too
//!   many pieces (`oversize`), an offload that contradicts itself, its frame or what was negotiated (`bad_offload`). Unknown
//!   flags of the header are ignored. Receive: chains that do not hold a frame (`receiver_too_small`), or that take too long
//!   to look through (`receiver_full`).
//!
//! `inflight` is the note of frames in flight, for a successor of a killed process.
//!
//! A buffer or an indirect table may lie in several adjacent regions of the guest's memory; the parts of a ring may not. The
//! work of one visit is bounded in descriptors and pieces together, whatever the ring says (`MOST_STEPS` in `transmit`,
//! `STEPS_PER_FRAME` in `receive`, `MOST_PIECES` in `gather`). Tests count that work (`guest/work.rs`).

mod fault;
mod features;
// Front ends choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in this module
// may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod inflight;
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

pub use fault::RingFault;
pub use features::{
    F_ANY_LAYOUT, F_EVENT_IDX, F_IN_ORDER, F_INDIRECT_DESC, F_MRG_RXBUF, F_RING_PACKED, F_RING_RESET, F_VERSION_1,
};
pub use inflight::answer_about_record;
pub(crate) use inflight::{ANY_RING, Inflight, InflightError, Record};
pub use inflight::{InflightNote, InflightRange};
pub use packed::Packed;
pub use receive::{Receive, Tally};
pub use ring::{Addresses, Ring};
pub use ringway_port::gather::Bounce;
pub use split::Split;
pub use transmit::Transmit;
