//! Counts of a guest's accesses. Each access is a message, and messages are what makes an emulated NIC slow (thesis 3.1).

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the port was made.
#[derive(Debug, Default)]
pub(super) struct Account {
    reads: AtomicU64,
    writes: AtomicU64,
    tails: AtomicU64,
    unmasks: AtomicU64,
}

/// Accesses by message since the port was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Registers read.
    pub reads: u64,
    /// Registers written.
    pub writes: u64,
    /// Of these, tails of the two rings.
    pub tails: u64,
    /// Times the front end unmasked the pin.
    pub unmasks: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}

impl Account {
    /// A register was read.
    pub(super) fn read(&self) {
        add(&self.reads);
    }

    /// A register was written.
    pub(super) fn write(&self) {
        add(&self.writes);
    }

    /// It was a ring's tail.
    pub(super) fn tail(&self) {
        add(&self.tails);
    }

    /// The pin was unmasked.
    pub(super) fn unmask(&self) {
        add(&self.unmasks);
    }

    /// All counts, with how many interrupts there were.
    pub(super) fn accesses(&self, interrupts: u64) -> Accesses {
        let [reads, writes, tails, unmasks] =
            [&self.reads, &self.writes, &self.tails, &self.unmasks].map(|count| count.load(Ordering::Relaxed));
        Accesses { reads, writes, tails, unmasks, interrupts }
    }
}

/// One more. The port's own thread alone counts.
fn add(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
