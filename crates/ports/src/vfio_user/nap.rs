//! When a port's own thread leaves its connection alone for 100 us.
//!
//! A tail write is a message without an answer. In a guest, the processor that sends the message also pays for waking the
//! thread, and waking costs more than sending. While tail writes come in quick succession (40 us each, or less) and nothing
//! else comes, the thread therefore sleeps by the clock and then takes what has come.
//!
//! A read that waits for an answer meanwhile would be late. Drivers read registers in interrupt handlers, so an interrupt
//! ends the sleep, and the thread does not sleep for 300 us after an interrupt and after each answer. The thread sleeps
//! sooner if the function knows that no read is to be expected (`Function::is_read_soon`): the driver asked for the
//! interrupt's cause, causes are unmasked, and a read has flushed the last register write.
//!
//! A driver that writes the tail once for many frames would only lose time by such a sleep, and its messages come more
//! slowly.
//!
//! The thread runs under `SCHED_BATCH` and so does not preempt a running guest (`docs/decisions/scheduling-class.md`).
//! `docs/decisions/e1000-port-thread.md` has rejected variants.

use std::time::{Duration, Instant};

/// Length of one sleep.
const SPAN: Duration = Duration::from_micros(100);
/// Messages count as closely spaced if their average distance is below this time.
const SOON: Duration = Duration::from_micros(40);
/// How long after an answer or an interrupt the thread stays awake for further questions.
const ATTENTIVE: Duration = Duration::from_micros(300);

/// Decides when the thread sleeps, from the recent traffic of its connection.
#[derive(Debug, Default)]
pub struct Nap {
    heard: Option<Instant>,
    asked: Option<Instant>,
}

impl Nap {
    /// Decides after all messages that had arrived are handled: `messages` of them, at least one of them with an answer
    /// if `answered`. `read_soon` tells whether the guest will probably read registers soon. Returns until when to
    /// sleep, or `None` to stay awake.
    pub fn after(
        &mut self,
        now: Instant,
        messages: u32,
        answered: bool,
        read_soon: impl FnOnce() -> bool,
    ) -> Option<Instant> {
        if answered {
            self.asked = Some(now);
        } else if self.asked.is_some_and(|asked| now - asked >= ATTENTIVE || !read_soon()) {
            self.asked = None;
        }
        let soon = self.heard.replace(now).is_some_and(|heard| now - heard < SOON * messages);
        (soon && self.asked.is_none()).then(|| now + SPAN)
    }

    /// Notes that there was an interrupt.
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
        assert_eq!(nap.after(start, 1, false, || true), None, "the first");
        assert_eq!(nap.after(start + us(1_000), 1, false, || true), None, "long after it");
        assert_eq!(nap.after(start + us(1_010), 1, false, || true), Some(start + us(1_010) + SPAN));
        assert_eq!(nap.after(start + us(1_120), 12, false, || true), Some(start + us(1_120) + SPAN));
        assert_eq!(nap.after(start + us(1_230), 0, false, || true), None, "nothing came");
    }

    #[test]
    fn a_driver_that_writes_once_for_many_frames_is_heard_at_once() {
        let (mut nap, start) = (Nap::default(), Instant::now());
        assert!((0..20).all(|write| nap.after(start + us(60) * write, 1, false, || false).is_none()));
        nap.after(start + us(1_150), 1, false, || false).expect("one soon after the other");
        assert_eq!(nap.after(start + us(1_260), 2, false, || false), None, "which was not the rule");
    }

    #[test]
    fn whoever_asks_finds_the_thread_awake_for_the_next_question() {
        let (mut nap, start) = (Nap::default(), Instant::now());
        assert_eq!(nap.after(start, 1, true, || true), None);
        assert_eq!(nap.after(start + us(100), 9, false, || true), None, "there may be another question");
        assert_eq!(nap.after(start + us(200), 9, false, || true), None);
        assert!(nap.after(start + us(301), 9, false, || true).is_some());
        nap.interrupted(start + us(350));
        assert_eq!(
            nap.after(start + us(355), 9, false, || true),
            None,
            "the guest will ask what it was interrupted for"
        );
    }

    #[test]
    fn the_thread_sleeps_again_as_soon_as_no_question_is_open() {
        let (mut nap, start) = (Nap::default(), Instant::now());
        nap.interrupted(start);
        assert_eq!(nap.after(start + us(20), 1, true, || false), None, "an answer, and perhaps the next");
        assert_eq!(nap.after(start + us(30), 1, false, || true), None);
        assert_eq!(nap.after(start + us(40), 1, true, || false), None);
        assert_eq!(nap.after(start + us(50), 1, false, || false), Some(start + us(50) + SPAN), "it was the last");
    }
}
