//! The delay before a port takes the next connection after a front end broke the rules. The delay grows with each of many
//! such connections in a row, so that a front end that does nothing else costs the switch next to nothing.

use std::time::Duration;

/// Faults in a row before the waits of a listening port begin to grow.
const PATIENT: u32 = 64;
/// The longest wait of a listening port.
const LONGEST: Duration = Duration::from_secs(5);
/// A connection that lasts longer than this resets the count of faults in a row.
const LASTED: Duration = Duration::from_secs(10);

/// Exponential backoff of one port: counts the faults in a row of its front ends.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    patient: u32,
    longest: Duration,
    in_a_row: u32,
}

impl Backoff {
    /// Backoff of a listening port: waits `first` after each of the first [`PATIENT`] faults, then twice as long after
    /// each further fault, up to [`LONGEST`].
    pub fn listening(first: Duration) -> Self {
        Self { first, patient: PATIENT, longest: LONGEST, in_a_row: 0 }
    }

    /// Backoff of a connecting port: waits `first` after a fault and twice as long after each further fault, up to
    /// `longest`.
    pub fn connecting(first: Duration, longest: Duration) -> Self {
        Self { first, patient: 1, longest, in_a_row: 0 }
    }

    /// Counts a fault that ended a connection which had lasted `lasted`. Returns how long to wait before the next
    /// connection.
    pub fn after_fault(&mut self, lasted: Duration) -> Duration {
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
