//! PCI devices for stock hypervisors, by the vfio-user protocol (QEMU, docs/interop/vfio-user.rst).
//!
//! - `function`: what a device is to this module.
//! - `interrupts`: what reaches the guest.

mod function;
mod interrupts;

pub use function::{BadAccess, CONFIG_REGION, Dma, Function, Irqs, MapArea, Mode, REGIONS, RegionInfo};
pub use interrupts::Interrupts;
