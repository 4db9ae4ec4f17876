//! Drivers of NICs in user space.

pub mod area;
pub mod e1000;
mod messages;
pub mod pci;
pub mod vfio_user;
pub mod virtio;
