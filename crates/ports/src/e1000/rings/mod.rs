//! Descriptor rings of the 8254x family and of the 82574L (Intel: "PCI/PCI-X Family of Gigabit Ethernet Controllers
//! Software Developer's Manual", chapter 3; "82574 GbE Controller Family Datasheet", chapter 7).
//!
//! - `transmit` takes frames from the driver, `receive` gives frames to it. Both are told the tail register with every call
//!   and keep the head themselves: nothing that a driver writes moves it.
//! - `descriptor`: where a ring is, and what its words mean; `context`: what they ask for beyond sending bytes; `draft`: one
//!   frame on its way into a batch; `mark`: what is remembered of it.
//! - `format`: what receive descriptors look like; `filter`: which frames a guest is given.
//! - `csb`: where driver and device tell each other how far they are without registers.
//!
//! Everything in a ring is written by the driver while we look: each word is read once, and a mistake is a [`RingFault`],
//! which stops that ring until it is started again, and nothing else.

mod descriptor;
mod draft;
mod fault;
mod format;
mod packet_buffer;
mod receive;
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
mod testing;
#[cfg(test)]
mod transmit_tests;

pub use crate::gather::Bounce;
pub use csb::CsbPlace;
pub use fault::RingFault;
pub use filter::Filters;
pub use format::Format;
pub use packet_buffer::PacketBuffer;
pub use receive::{Receive, ReceiveSettings, Received};
pub use traffic::Traffic;
pub use transmit::{Completed, Transmit, TransmitSettings};
