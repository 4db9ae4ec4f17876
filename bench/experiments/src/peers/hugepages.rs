//! Huge pages for peers that want them, given back when the peer ends.

use std::fs;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Number of pages of 2 MiB that the kernel reserves.
const COUNT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// Size of a page in MiB.
const PAGE_MIB: usize = 2;

/// Serialises changes of that number.
static CHANGE: Mutex<()> = Mutex::new(());

/// Memory added to the kernel's reserve for as long as this lives.
pub struct HugePages {
    pages: usize,
}

impl HugePages {
    /// Adds `mib` MiB to the reserve. Changes nothing if the kernel cannot reserve all of it (not root, too little memory in one
    /// piece), or if it is more than half of the available memory, which all programs share.
    #[must_use]
    pub fn reserve(mib: usize) -> Option<HugePages> {
        let _guard = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = mib.div_ceil(PAGE_MIB);
        let before = count().ok()?;
        if available_mib()? / 2 < mib {
            return None;
        }
        fs::write(COUNT, (before + pages).to_string()).ok()?;
        if count().ok()? == before + pages {
            return Some(HugePages { pages });
        }
        let _ = fs::write(COUNT, before.to_string());
        None
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _guard = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(now) = count() {
            let _ = fs::write(COUNT, now.saturating_sub(self.pages).to_string());
        }
    }
}

fn count() -> io::Result<usize> {
    fs::read_to_string(COUNT)?.trim().parse().map_err(io::Error::other)
}

/// Available memory, in MiB.
fn available_mib() -> Option<usize> {
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_that_cannot_be_had_changes_nothing_and_one_that_can_is_given_back() {
        // Others change their number, too.
        let _turn = ringway_testing::file::MoreHugePages::ask_for(0);
        let Ok(before) = count() else { ringway_testing::skip!("needs huge pages") };
        assert!(HugePages::reserve(available_mib().unwrap()).is_none());
        assert_eq!(count().unwrap(), before);
        if let Some(pages) = HugePages::reserve(3) {
            assert_eq!(count().unwrap(), before + 2);
            drop(pages);
            assert_eq!(count().unwrap(), before);
        }
    }
}
