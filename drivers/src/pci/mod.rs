//! PCI functions that a program owns, mostly in a guest: registers, interrupts, and memory that the device reaches.
//!
//! | file | holds |
//! |---|---|
//! | `error.rs` | what is wrong and what would be right |
//! | `sysfs.rs` | finding a function by its address, its driver |
//! | `registers.rs` | mapped registers |
//! | `uio.rs` | access by `uio_pci_generic`, without an IOMMU |
//! | `vfio.rs` | access by VFIO: the IOMMU keeps the device within this program's memory |
//! | `dma.rs` | huge pages and their bus addresses |
//! | `sleep.rs` | sleeping until an interrupt comes |
//! | `device.rs` | [`PciDevice`], all of these |

mod device;
mod dma;
mod error;
mod registers;
mod sleep;
mod sysfs;
mod uio;
mod vfio;

pub use device::{COMMAND, Capability, PciDevice, PciId};
pub use dma::{Dma, HUGE_PAGE, Piece};
pub use error::PciError;
pub use registers::Registers;
pub use sleep::Sleep;
