//! PCI functions behind a vfio-user server (QEMU, docs/interop/vfio-user.rst): as much as the driver of one needs.

mod client;
mod error;
mod message;

pub use client::{DeviceInfo, Region, VfioUser};
pub use error::VfioUserError;
pub use message::{Area, IRQ_INTX, IRQ_MSI, IRQ_MSI_X};
