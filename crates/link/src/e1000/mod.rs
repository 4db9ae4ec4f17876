//! A driver of Intel's 82540EM (e1000) and 82574L (e1000e) in user space: QEMU's, Ringway's, or a real one.
//!
//! Each access to a register of an emulated NIC costs an exit of the virtual machine. The driver therefore finds out by memory alone
//! what the device has done: by descriptors that the device writes back, or by the communication status block (Maffione 2012, section
//! 4.4.2) where the device offers one. It writes a tail register once for many frames. With the status block it writes one only while
//! the device sleeps.
//!
//! | file | holds |
//! |---|---|
//! | `nic.rs` | registers, counted; from a reset to rings that work |
//! | `transmit.rs`, `offload.rs` | the transmit ring; checksums and segmentation by context descriptors |
//! | `receive.rs` | the receive ring |
//! | `driver.rs` | both rings and how their tails are published, without interrupts |
//! | `e1000_link.rs` | [`E1000Link`]: the driver with the interrupts of a PCI function |

mod driver;
mod e1000_link;
mod nic;
mod offload;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

pub use e1000_link::{E1000Link, E1000Options};

/// A violation of the specification by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Misuse {
    /// The transmit head in the status block is beyond the tail.
    #[error("says that it is at transmit descriptor {0}, which it does not have")]
    Head(u32),
    /// A received frame is longer than its buffer.
    #[error("says that it wrote {0} bytes into a buffer of {1}")]
    Length(usize, usize),
}
