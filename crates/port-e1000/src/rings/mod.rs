//! Descriptor rings of the 8254x family and of the 82574L (Intel: "PCI/PCI-X Family of Gigabit Ethernet Controllers Software
//! Developer's Manual", chapter 3; "82574 GbE Controller Family Datasheet", chapter 7): what an e1000 does with frames, as a
//! function of memory and values. Registers are the caller's.
//!
//! - `transmit` takes frames from the driver, `receive` gives frames to the driver. Both are told the tail with every call
//!   and keep the head themselves, so that the tail may come from a register, from a page that the guest has mapped, or from
//!   the status block. Nothing that a driver writes moves the head.
//! - `descriptor`: where a ring is, and the meaning of its words; `context`: work that descriptors ask for beyond sending
//!   bytes; `draft`: one frame on its way into a batch; `mark`: notes of taken frames.
//! - `format`: receive descriptors; `filter`: the frames that a guest is given; `packet_buffer`: frames that wait for
//!   descriptors.
//! - `csb`: where driver and device exchange their positions without registers.
//!
//! The driver writes everything in a ring while the device reads. A descriptor is read once, as two words. A mistake is a
//! [`RingFault`], which stops that ring until the driver starts it again, and nothing else.
//!
//! Plain frames (one descriptor, nothing to insert) go in rows as on virtqueues. The first receive descriptor of a batch is
//! written back last, so that the driver sees all of them at once. Everything else takes one function per frame (`draft`,
//! `receive/pieces.rs`).

mod descriptor;
mod draft;
mod fault;
mod format;
mod packet_buffer;
mod receive;
mod settings;
mod traffic;
mod transmit;

// Drivers choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in these modules
// may wrap.
#[deny(clippy::arithmetic_side_effects)]
mod context;
#[deny(clippy::arithmetic_side_effects)]
mod csb;
#[deny(clippy::arithmetic_side_effects)]
mod filter;
#[deny(clippy::arithmetic_side_effects)]
mod mark;

#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod packet_buffer_tests;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod receive_property_tests;
#[cfg(test)]
mod receive_tests;
#[cfg(test)]
mod region_tests;
#[cfg(test)]
mod resume_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod transmit_tests;

pub use csb::CsbLocation;
pub use fault::RingFault;
pub use filter::Filters;
pub use format::Format;
pub use packet_buffer::PacketBuffer;
pub use receive::{Destination, Receive, Received};
pub use ringway_port::gather::Bounce;
pub use settings::{ReceiveSettings, TransmitSettings};
pub use traffic::Traffic;
pub use transmit::{Completed, Transmit};
