//! Work that a sender left to whoever comes after it: checksums and segmentation (virtio 1.3, 5.1.6.2; VPE §4.6).
//!
//! A frame with an [`Offload`] goes unchanged to an output that [`Accepts`] it; for any other it is finished here. Segments
//! have headers of their own and share the source's memory for the rest, which is read once more for its checksum.

mod accepts;
mod finish;
mod headers;
mod segment;
mod sum;

#[cfg(test)]
mod finish_tests;
#[cfg(test)]
mod header_tests;
#[cfg(test)]
pub(crate) mod hostile;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
pub(crate) mod reading;
#[cfg(test)]
pub(crate) mod samples;

pub use accepts::Accepts;
pub(crate) use finish::Finisher;
pub use headers::{Headers, MAX_FRAME};
pub(crate) use headers::{admit, on_a_wire};
pub use ringway_abi::offload::{BadOffload, Gso, Offload};
pub(crate) use segment::sum_from;
