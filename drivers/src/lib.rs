//! Drivers of NICs in user space.

pub mod pci;
