//! A driver of Intel's 82540EM (e1000) and 82574L (e1000e) in user space: QEMU's, Ringway's, or a real one.
//!
//! Each access to a register of an emulated NIC costs an exit of the virtual machine. The driver therefore finds out by memory alone
//! what the device has done: by descriptors that the device writes back, or by the communication status block (Maffione 2012, section
//! 4.4.2) where the device offers one. It writes a tail register once for many frames. With the status block it writes one only while
//! the device sleeps.
//!
//! | file | holds |
//! |---|---|
//! | `ring.rs`, `positions.rs` | the rings as the device sees them; how far a transmit ring is |
//! | `bring_up.rs` | models; from a NIC to rings that work |
//! | `misuse.rs` | what a device must not do |
//! | `csb.rs` | the status block |
//! | `transmit_queue.rs`, `receive_queue.rs` | a ring with buffers of its own |
//! | `transmit.rs`, `offload.rs`, `receive.rs` | a ring for buffers of its user; checksums and segmentation by context descriptors |
//! | `nic.rs`, `options.rs`, `driver.rs` | [`Driver`]: a NIC on a PCI bus with rings for its user's buffers, without interrupts |

pub mod bring_up;
mod csb;
mod driver;
mod misuse;
mod nic;
mod offload;
mod options;
mod positions;
mod receive;
mod receive_queue;
mod ring;
#[cfg(test)]
mod tests;
mod transmit;
mod transmit_queue;

pub use bring_up::Model;
pub use csb::Csb;
pub use driver::{Abilities, Card, Driver};
pub use misuse::Misuse;
pub use nic::{Counts, Nic, RECEIVED, SENT};
pub use options::E1000Options;
pub use positions::Positions;
pub use receive_queue::ReceiveQueue;
pub use transmit_queue::{RingLayout, TransmitQueue};
