//! Counts of the messages, register accesses and interrupts of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Counts since the device was set up. The field names are part of the command's JSON output: do not rename them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames sent and received.
    pub frames: u64,
    /// vfio-user commands without an answer.
    pub posted: u64,
    /// vfio-user commands with an answer, each a round trip.
    pub answered: u64,
    /// Registers read by messages.
    pub register_reads: u64,
    /// Registers written by messages.
    pub register_writes: u64,
    /// Writes to the transmit tail register; `register_writes` includes them.
    pub tx_tail_writes: u64,
    /// Writes to the receive tail register; `register_writes` includes them.
    pub rx_tail_writes: u64,
    /// Accesses to mapped registers.
    pub mapped_accesses: u64,
    /// Interrupts from the device.
    pub interrupts: u64,
    /// How often the driver was woken and read the interrupt causes.
    pub handled: u64,
}

impl Counters {
    /// Returns the number of vfio-user commands.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.posted + self.answered
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = |count: u64| count as f64 / self.frames.max(1) as f64;
        write!(
            f,
            "per frame: {:.3} messages ({:.3} answered), {:.3} register writes ({:.3} tail writes), {:.3} register reads, \
             {:.4} interrupts",
            each(self.messages()),
            each(self.answered),
            each(self.register_writes),
            each(self.tx_tail_writes + self.rx_tail_writes),
            each(self.register_reads),
            each(self.interrupts)
        )
    }
}
