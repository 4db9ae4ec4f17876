//! Bounds of the memory of clients that this process maps.
//!
//! A mapping of a client's file costs address space, an entry of the guard and one of the process's mappings, which all ports
//! share. A [`Quota`] bounds address space and number of mappings per port; all ports together are bounded by
//! [`Quota::total`]. A mapping returns its claim when it is dropped.
//!
//! When a front end sends a new memory table, the mappings of unchanged regions stay. The claims of removed regions are
//! returned before the new table can be refused (`memory_limit`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::guard::ENTRIES;
use crate::holes::{self, Holes};

/// Limits for mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of address space.
    pub bytes: u64,
    /// Number of mappings.
    pub mappings: u64,
    /// Bytes of holes that may be filled. (A hole is a page that the mapped file lacks.) For one port: within an hour,
    /// in pages that are written; and one 64th of that in pages that are read. For all ports together: in all present
    /// mappings.
    pub holes: u64,
}

impl Limits {
    /// Default for one port: more than the largest known guests need.
    pub const PORT: Limits = Limits { bytes: 2 << 40, mappings: 512, holes: 4 << 30 };
    /// No limit for one port.
    pub const ANY: Limits = Limits { bytes: u64::MAX, mappings: u64::MAX, holes: u64::MAX };
    /// Default for all ports together: half of the address space of a process, and enough free guard entries for the
    /// memory that the process itself maps.
    pub const TOTAL: Limits = Limits { bytes: 64 << 40, mappings: ENTRIES as u64 * 3 / 4, holes: u64::MAX };
}

/// A quota that is used up. The text is for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverQuota {
    /// True for the quota of all ports together, false for that of one port.
    pub total: bool,
    /// The requested bytes.
    pub wanted: u64,
    /// The limits.
    pub limits: Limits,
    /// Bytes in use.
    pub bytes: u64,
    /// Mappings in use.
    pub mappings: u64,
}

impl std::error::Error for OverQuota {}

impl fmt::Display for OverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverQuota { total, wanted, limits, bytes, mappings } = self;
        let (whose, key) = match total {
            true => ("of all ports together", "[memory]"),
            false => ("of this port", "the port's memory"),
        };
        write!(
            f,
            "{wanted:#x} more bytes of memory exceed the limit: the mappings {whose} have {bytes:#x} of at most {:#x} bytes, \
             and their number is {mappings} of at most {} (size and mappings of {key})",
            limits.bytes, limits.mappings
        )
    }
}

/// Limits, and how much of them is in use.
#[derive(Debug)]
pub struct Quota {
    most: Usage,
    used: Usage,
    holes: Holes,
    total: Option<&'static Quota>,
}

#[derive(Debug)]
struct Usage {
    bytes: AtomicU64,
    mappings: AtomicU64,
}

impl Usage {
    const fn new(limits: Limits) -> Usage {
        Usage { bytes: AtomicU64::new(limits.bytes), mappings: AtomicU64::new(limits.mappings) }
    }

    fn get(&self, holes: u64) -> Limits {
        let [bytes, mappings] = [&self.bytes, &self.mappings].map(|number| number.load(Ordering::Relaxed));
        Limits { bytes, mappings, holes }
    }
}

static TOTAL: Quota = Quota::new(Limits::TOTAL, None);

/// Returns true if this process can limit the filling of holes: the kernel lets it use userfaultfd(2).
#[must_use]
pub fn can_limit_holes() -> bool {
    crate::holes::descriptor().is_some()
}

impl Quota {
    const fn new(limits: Limits, total: Option<&'static Quota>) -> Quota {
        let used = Usage::new(Limits { bytes: 0, mappings: 0, holes: 0 });
        Quota { most: Usage::new(limits), used, holes: Holes::new(limits.holes), total }
    }

    /// Returns the quota of all ports together.
    #[must_use]
    pub fn total() -> &'static Quota {
        &TOTAL
    }

    /// Makes the quota of a port. Its use also counts against the quota of all ports.
    #[must_use]
    pub fn of_port(limits: Limits) -> Arc<Quota> {
        Arc::new(Quota::new(limits, Some(&TOTAL)))
    }

    /// A quota of memory that this process has made with all of its pages, for one client: none is made again.
    pub(crate) fn without_holes() -> Arc<Quota> {
        Arc::new(Quota::new(Limits { holes: 0, ..Limits::ANY }, None))
    }

    /// Changes the limits. Memory in use stays, even if it is more.
    pub fn set_limits(&self, limits: Limits) {
        self.most.bytes.store(limits.bytes, Ordering::Relaxed);
        self.most.mappings.store(limits.mappings, Ordering::Relaxed);
        self.holes.set_limit(limits.holes);
        if std::ptr::eq(self, &TOTAL) {
            holes::set_total_limit(limits.holes);
        }
    }

    /// Returns what is in use, and the bytes of holes that were filled.
    #[must_use]
    pub fn used(&self) -> Limits {
        let is_total = std::ptr::eq(self, &TOTAL);
        self.used.get(if is_total { holes::total_filled() } else { self.holes.filled_bytes() })
    }

    /// Returns a text for users if, since the last call, a mapping was lost because too many of its pages were holes.
    #[must_use]
    pub fn take_holes_exceeded(&self) -> Option<String> {
        self.holes.take_refused().then(|| {
            format!(
                "too many pages of the front end's memory did not exist when they were needed: at most {:#x} bytes of them are \
                 allocated within an hour for frames to the guest, and one 64th of that for frames from it (holes of the port's \
                 memory), and {:#x} bytes for all ports together (holes of [memory]); QEMU: prealloc=on allocates all at start",
                self.holes.limit(),
                TOTAL.holes.limit()
            )
        })
    }

    pub(crate) fn holes(&self) -> &Holes {
        &self.holes
    }

    /// Claims `bytes` for one mapping.
    ///
    /// # Errors
    /// The port's quota or that of all ports is used up.
    pub(crate) fn claim(self: &Arc<Quota>, bytes: u64) -> Result<Claim, OverQuota> {
        self.take(bytes)?;
        if let Some(Err(error)) = self.total.map(|total| total.take(bytes)) {
            self.put_back(bytes);
            return Err(error);
        }
        Ok(Claim { quota: Arc::clone(self), bytes })
    }

    fn take(&self, bytes: u64) -> Result<(), OverQuota> {
        let (most, used) = (self.most.get(self.holes.limit()), self.used());
        let over = OverQuota {
            total: self.total.is_none(),
            wanted: bytes,
            limits: most,
            bytes: used.bytes,
            mappings: used.mappings,
        };
        let add = |to: &AtomicU64, more: u64, most: u64| {
            let sum = |had: u64| had.checked_add(more).filter(|&sum| sum <= most);
            to.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).map_err(|_| over)
        };
        add(&self.used.bytes, bytes, most.bytes)?;
        let added = add(&self.used.mappings, 1, most.mappings);
        if added.is_err() {
            self.used.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        added.map(|_| ())
    }

    fn put_back(&self, bytes: u64) {
        self.used.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.used.mappings.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The use of a quota by one mapping, returned on drop.
#[derive(Debug)]
pub(crate) struct Claim {
    quota: Arc<Quota>,
    bytes: u64,
}

impl Claim {
    pub(crate) fn quota(&self) -> &Quota {
        &self.quota
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.quota.put_back(self.bytes);
        self.quota.total.inspect(|total| total.put_back(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_beyond_a_limit_changes_nothing_and_a_claim_that_ends_is_given_back() {
        let total: &'static Quota = Box::leak(Box::new(Quota::new(Limits { bytes: 100, mappings: 3, holes: 0 }, None)));
        let port = |bytes, mappings| Arc::new(Quota::new(Limits { bytes, mappings, holes: 0 }, Some(total)));
        let (one, other) = (port(80, 2), port(u64::MAX, 9));
        let first = one.claim(50).expect("room");
        assert!(!one.claim(31).expect_err("80 bytes").total);
        assert!(!one.claim(u64::MAX).expect_err("80 bytes").total);
        let second = one.claim(30).expect("room");
        assert!(!one.claim(0).expect_err("2 mappings").total);
        assert!(other.claim(21).expect_err("100 bytes").total);
        assert!(other.claim(u64::MAX).expect_err("100 bytes").total);
        let third = other.claim(20).expect("room");
        assert!(other.claim(0).expect_err("3 mappings").total);
        assert_eq!(total.used(), Limits { bytes: 100, mappings: 3, holes: 0 });
        drop(first);
        assert_eq!((one.used(), total.used().bytes), (Limits { bytes: 30, mappings: 1, holes: 0 }, 50));
        let fourth = other.claim(50).expect("room");
        drop((second, third, fourth));
        let none = Limits { bytes: 0, mappings: 0, holes: 0 };
        assert_eq!([one.used(), other.used(), total.used()], [none; 3]);
        total.set_limits(none);
        assert!(one.claim(0).expect_err("no mappings").total);
    }
}
