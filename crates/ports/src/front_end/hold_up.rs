//! The rest of a port after its front end held other clients up (`call_blocked`).

use std::time::Duration;

/// The name of the fault.
pub(crate) const CALL_BLOCKED: &str = "call_blocked";
/// The first rest.
const FIRST: Duration = Duration::from_secs(1);
/// The longest: what a call can cost others is a small part of it.
const LONGEST: Duration = Duration::from_secs(300);

/// Rests that grow: a front end that connects again only to hold others up again does so ever less often.
#[derive(Debug)]
pub(crate) struct HoldUps {
    next: Duration,
}

impl HoldUps {
    pub(crate) fn new() -> HoldUps {
        HoldUps { next: FIRST }
    }

    /// How long to rest after a connection that ended by this fault, and lasted so long; none: not for this reason.
    pub(crate) fn rest(&mut self, fault: &str, lasted: Duration) -> Option<Duration> {
        if fault != CALL_BLOCKED {
            return None;
        }
        // It has behaved for a while.
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
