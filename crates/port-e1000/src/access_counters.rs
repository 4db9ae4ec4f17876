//! Counts of a guest's accesses. Each access is a message, and messages are what makes an emulated NIC slow (thesis 3.1).

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of register accesses since the port was opened.
#[derive(Debug, Default)]
pub(super) struct AccessCounters {
    reads: AtomicU64,
    writes: AtomicU64,
    tails: AtomicU64,
    unmasks: AtomicU64,
}

/// Register accesses by message, and interrupts, since the port was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Register reads.
    pub reads: u64,
    /// Register writes.
    pub writes: u64,
    /// Writes to a ring's tail register; `writes` includes them.
    pub tails: u64,
    /// How often the front end unmasked the pin.
    pub unmasks: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}

impl AccessCounters {
    /// Counts a register read.
    pub(super) fn read(&self) {
        add(&self.reads);
    }

    /// Counts a register write.
    pub(super) fn write(&self) {
        add(&self.writes);
    }

    /// Counts a write to a ring's tail, in addition to [`AccessCounters::write`].
    pub(super) fn tail(&self) {
        add(&self.tails);
    }

    /// Counts an unmasking of the pin.
    pub(super) fn unmask(&self) {
        add(&self.unmasks);
    }

    /// Begins with the counts of a predecessor of this process.
    pub(super) fn go_on_from(&self, [reads, writes, tails, unmasks]: [u64; 4]) {
        let all = [(&self.reads, reads), (&self.writes, writes), (&self.tails, tails), (&self.unmasks, unmasks)];
        all.into_iter().for_each(|(count, value)| count.store(value, Ordering::Relaxed));
    }

    /// Returns all counts. `interrupts` is the number of interrupts.
    pub(super) fn accesses(&self, interrupts: u64) -> Accesses {
        let [reads, writes, tails, unmasks] =
            [&self.reads, &self.writes, &self.tails, &self.unmasks].map(|count| count.load(Ordering::Relaxed));
        Accesses { reads, writes, tails, unmasks, interrupts }
    }
}

/// Adds one. Only the port's own thread counts, so no atomic addition is needed.
fn add(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
