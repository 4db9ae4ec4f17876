//! When a port's own thread leaves its connection alone for a moment.
//!
//! A tail write is a message that nobody answers. Waking the thread that waits for it costs the guest's processor, which sends it,
//! more than sending does. So while such messages come one soon after the other and nothing else, the thread sleeps by the clock and
//! then takes what has come. Who waits for an answer would wait longer; but drivers ask registers after an interrupt, which
//! ends the sleep, and seldom else.

use std::time::{Duration, Instant};

/// How long the connection is left alone.
const SPAN: Duration = Duration::from_micros(100);
/// Messages that come within this time of those before come soon.
const SOON: Duration = Duration::from_micros(150);
/// After an interrupt or an answer there may be further questions for so long.
const ATTENTIVE: Duration = Duration::from_micros(300);

/// What the thread knows of its connection's last moments.
#[derive(Debug, Default)]
pub struct Nap {
    heard: Option<Instant>,
    asked: Option<Instant>,
}

impl Nap {
    /// All messages that had come were followed; `some`: there were any; `answered`: one of them was. Until when to sleep, if at
    /// all.
    pub fn after(&mut self, now: Instant, some: bool, answered: bool) -> Option<Instant> {
        if answered {
            self.asked = Some(now);
        }
        let soon = self.heard.replace(now).is_some_and(|heard| now - heard < SOON);
        let asked = self.asked.is_some_and(|asked| now - asked < ATTENTIVE);
        (some && soon && !asked).then(|| now + SPAN)
    }

    /// There was an interrupt.
    pub fn interrupted(&mut self, now: Instant) {
        self.asked = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(microseconds: u64) -> Duration {
        Duration::from_micros(microseconds)
    }

    #[test]
    fn writes_in_quick_succession_are_taken_by_the_clock_until_there_are_none() {
        let (mut nap, start) = (Nap::default(), Instant::now());
        assert_eq!(nap.after(start, true, false), None, "the first");
        assert_eq!(nap.after(start + us(1_000), true, false), None, "long after it");
        assert_eq!(nap.after(start + us(1_010), true, false), Some(start + us(1_010) + SPAN));
        assert_eq!(nap.after(start + us(1_120), true, false), Some(start + us(1_120) + SPAN));
        assert_eq!(nap.after(start + us(1_230), false, false), None, "nothing came");
    }

    #[test]
    fn whoever_asks_finds_the_thread_awake_for_the_next_question() {
        let (mut nap, start) = (Nap::default(), Instant::now());
        assert_eq!(nap.after(start, true, true), None);
        assert_eq!(nap.after(start + us(100), true, false), None, "there may be another question");
        assert_eq!(nap.after(start + us(200), true, false), None);
        assert!(nap.after(start + us(301), true, false).is_some());
        nap.interrupted(start + us(350));
        assert_eq!(nap.after(start + us(355), true, false), None, "the guest will ask what it was interrupted for");
    }
}
