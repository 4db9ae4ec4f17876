//! Who charges a port for a time in which the kernel kept a thread: the thread itself when it goes on, or the one that has it relieved. Exactly one
//! of the two does.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// No number of charges.
const CLAIMED: u64 = 1 << 63;

/// The number of charges that a thread has begun, until another thread claims those to come.
#[derive(Debug)]
pub struct Charging(AtomicU64);

impl Default for Charging {
    fn default() -> Charging {
        Charging(AtomicU64::new(0))
    }
}

impl Charging {
    /// The number of charges that the thread has begun.
    pub fn begun(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// To be called by the thread before a charge. False: another thread makes it.
    pub fn begin(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < CLAIMED
    }

    /// Claims all further charges. Returns what [`Charging::begun`] is until the thread comes to one. `None`: the thread has begun one since it had
    /// begun `seen`, and goes on to charge for itself.
    pub fn claim(&self, seen: u64) -> Option<u64> {
        if seen >= CLAIMED {
            return Some(seen);
        }
        let claimed = self.0.compare_exchange(seen, CLAIMED, Ordering::Relaxed, Ordering::Relaxed);
        claimed.is_ok().then_some(CLAIMED)
    }
}
