//! The rest of a port after its front end held other clients up (`call_blocked`).

use std::time::Duration;

/// The name of the fault: the client's call eventfd blocked the thread that wrote it.
pub(crate) const CALL_BLOCKED: &str = "call_blocked";
/// The first rest.
const FIRST: Duration = Duration::from_secs(1);
/// The longest rest. A blocking call can then cost other ports only a small part of their time.
const LONGEST: Duration = Duration::from_secs(300);

/// Rests after [`CALL_BLOCKED`] faults. Each rest is twice as long as the last, so that a front end that reconnects
/// only to block again does so less and less often.
#[derive(Debug)]
pub(crate) struct HoldUps {
    next: Duration,
}

impl HoldUps {
    pub(crate) fn new() -> HoldUps {
        HoldUps { next: FIRST }
    }

    /// Returns how long the port rests after a connection that ended with `fault` and lasted `lasted`. Returns `None`
    /// if the fault is not [`CALL_BLOCKED`].
    pub(crate) fn rest(&mut self, fault: &str, lasted: Duration) -> Option<Duration> {
        if fault != CALL_BLOCKED {
            return None;
        }
        // A connection that lasted this long resets the rest.
        if lasted >= LONGEST {
            self.next = FIRST;
        }
        let rest = self.next;
        self.next = (2 * rest).min(LONGEST);
        Some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_until_a_front_end_has_behaved() {
        let (mut rests, short) = (HoldUps::new(), Duration::from_millis(5));
        let seconds: Vec<_> =
            (0..12).filter_map(|_| rests.rest(CALL_BLOCKED, short)).map(|rest| rest.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(rests.rest("ring_endless_chain", LONGEST), None);
        assert_eq!(rests.rest(CALL_BLOCKED, LONGEST), Some(FIRST));
    }
}
