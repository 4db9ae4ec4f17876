//! The delay before a port takes the next connection after a front end broke the rules. The delay grows with each of many
//! such connections in a row, so that a front end that does nothing else costs the switch next to nothing.

use std::time::Duration;

/// Faults in a row after which a port begins to wait longer.
const PATIENT: u32 = 64;
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(5);
/// A connection that has lasted so long ends the row.
const LASTED: Duration = Duration::from_secs(10);

/// The faults in a row of one port's front ends.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    patient: u32,
    longest: Duration,
    in_a_row: u32,
}

impl Backoff {
    /// Of a port that listens: waits `first` after a fault, and longer after many in a row.
    pub(crate) fn listening(first: Duration) -> Self {
        Self { first, patient: PATIENT, longest: LONGEST, in_a_row: 0 }
    }

    /// Of a port that connects: waits `first` after a fault, twice as long after the next, up to `longest`.
    pub(crate) fn connecting(first: Duration, longest: Duration) -> Self {
        Self { first, patient: 1, longest, in_a_row: 0 }
    }

    /// How long to wait after a fault, of a front end that was connected for so long.
    pub(crate) fn after_fault(&mut self, lasted: Duration) -> Duration {
        if lasted > LASTED {
            self.in_a_row = 0;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let doublings = self.in_a_row.saturating_sub(self.patient).min(16);
        (self.first * (1 << doublings)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_many_faults_in_a_row_each_waits_longer_and_a_connection_that_lasted_begins_anew() {
        let (soon, long) = (Duration::from_millis(100), Duration::from_secs(60));
        let mut backoff = Backoff::listening(soon);
        let waits: Vec<Duration> = (0..100).map(|_| backoff.after_fault(Duration::ZERO)).collect();
        assert!(waits[..PATIENT as usize].iter().all(|wait| *wait == soon), "{waits:?}");
        assert_eq!(waits[PATIENT as usize..][..3], [2, 4, 8].map(|times| times * soon));
        assert_eq!(waits.last(), Some(&LONGEST));
        assert_eq!(backoff.after_fault(long), soon);
        let mut backoff = Backoff::connecting(Duration::from_secs(1), Duration::from_secs(10));
        let waits = [(); 6].map(|()| backoff.after_fault(Duration::ZERO).as_secs());
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
        assert_eq!(backoff.after_fault(long).as_secs(), 1);
    }
}
