//! The pause before another switch is started.

use std::time::Duration;

/// A switch that lived so long was well.
const WELL: Duration = Duration::from_millis(100);
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// The pauses: none after a switch that was well, and longer ones the more died in a row.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    pause: Duration,
    failed: u32,
}

impl Pauses {
    /// A switch serves.
    pub(super) fn serves(&mut self) {
        self.failed = 0;
    }

    /// The pause after a switch that served for so long; `None`: it never served. `is_its_own`: what it did ended it, and nobody else.
    pub(super) fn next(&mut self, served: Option<Duration>, is_its_own: bool) -> Duration {
        self.failed = self.failed.saturating_add(u32::from(served.is_none() && is_its_own));
        if served.is_some_and(|served| served >= WELL) {
            self.pause = Duration::ZERO;
            return self.pause;
        }
        let pause = self.pause;
        self.pause = (pause * 2).clamp(FIRST, LONGEST);
        pause
    }

    /// How many switches, since the last one that served, have died before they served and by their own doing.
    pub(super) fn failed(&self) -> u32 {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_that_was_well_is_replaced_at_once_and_others_after_longer_and_longer_pauses() {
        let mut pauses = Pauses::default();
        let ms = Duration::from_millis;
        let all = (0..9).map(|_| pauses.next(None, true)).collect::<Vec<_>>();
        assert_eq!(all, [0, 10, 20, 40, 80, 160, 320, 640, 1000].map(ms));
        assert_eq!(pauses.failed(), 9);
        pauses.serves();
        assert_eq!((pauses.next(Some(WELL), true), pauses.failed()), (Duration::ZERO, 0));
        assert_eq!([pauses.next(Some(ms(20)), true), pauses.next(Some(ms(20)), true)], [Duration::ZERO, FIRST]);
        pauses.next(None, false);
        assert_eq!(pauses.failed(), 0, "who was killed, or could not be started for want of memory, has not failed");
    }
}
