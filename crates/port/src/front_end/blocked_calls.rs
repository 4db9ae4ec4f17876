//! The pause of a port after a call to its front end blocked (`call_blocked`).

use std::time::Duration;

use super::end::CALL_BLOCKED;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause. A blocking call can then cost other ports only a small part of their time.
const LONGEST: Duration = Duration::from_secs(300);

/// Exponential backoff after [`CALL_BLOCKED`] faults. Each pause is twice as long as the last, so that a front end that
/// reconnects only to block again does so less and less often.
#[derive(Debug)]
pub struct BlockedCalls {
    next: Duration,
}

impl BlockedCalls {
    pub fn new() -> BlockedCalls {
        BlockedCalls { next: FIRST }
    }

    /// Returns the pause after a connection that ended with `fault` and lasted `lasted`. Returns `None` if the fault is
    /// not [`CALL_BLOCKED`].
    pub fn pause(&mut self, fault: &str, lasted: Duration) -> Option<Duration> {
        if fault != CALL_BLOCKED {
            return None;
        }
        // A connection that lasted this long resets the pause.
        if lasted >= LONGEST {
            self.next = FIRST;
        }
        let pause = self.next;
        self.next = (2 * pause).min(LONGEST);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_connection_lasts() {
        let (mut pauses, short) = (BlockedCalls::new(), Duration::from_millis(5));
        let seconds: Vec<_> =
            (0..12).filter_map(|_| pauses.pause(CALL_BLOCKED, short)).map(|pause| pause.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(pauses.pause("ring_endless_chain", LONGEST), None);
        assert_eq!(pauses.pause(CALL_BLOCKED, LONGEST), Some(FIRST));
    }
}
