//! A guest's memory as its hypervisor hands it over: files mapped into this process, and where the guest has them.

mod backing;
mod dirty_log;
mod memory;
#[cfg(test)]
mod memory_tests;
mod region;

pub(crate) use backing::check as check_backing;
pub use dirty_log::{DirtyLog, LogError};
pub use memory::{GuestMemory, Space};
pub use region::{Region, RegionError};
