//! A guest's memory as its hypervisor gives it: files mapped into this process, and their guest addresses.
//!
//! [`GuestMemory`] keeps its regions sorted and finds an address by binary search.

mod backing;
mod dirty_log;
mod memory;
#[cfg(test)]
mod memory_tests;
mod region;
mod work;

pub use backing::Area;
pub(crate) use backing::check as check_backing;
pub use dirty_log::{DirtyLog, LogError, LogFault};
pub use memory::{GuestMemory, Pieces, Space};
pub use region::{Region, RegionError};
pub(crate) use work::count_work;
#[cfg(test)]
pub(crate) use work::work_done;
