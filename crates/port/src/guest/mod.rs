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
pub use backing::check as check_backing;
pub use dirty_log::{DirtyLog, LogError, LogFault};
pub use memory::{GuestMemory, Pieces, Space};
pub use region::{Region, RegionError};
pub use work::count_work;
#[cfg(any(test, feature = "testing"))]
pub use work::work_done;
