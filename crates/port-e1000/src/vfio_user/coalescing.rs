//! When a port's own thread leaves its connection alone for 100 us.
//!
//! A tail write is a message without an answer. In a guest, the processor that sends the message also pays for waking the
//! thread, and waking costs more than sending. While tail writes come in quick succession (40 us each, or less) and nothing
//! else comes, the thread therefore sleeps by the clock and then takes what has come.
//!
//! A read that waits for an answer meanwhile would be late. Drivers read registers in interrupt handlers, so an interrupt
//! ends the sleep, and the thread does not sleep for 300 us after an interrupt and after each answer. The thread sleeps
//! sooner if the function expects no read (`Function::expects_register_read`): the driver asked for the
//! interrupt's cause, causes are unmasked, and a read has flushed the last register write.
//!
//! A driver that writes the tail once for many frames would only lose time by such a sleep, and its messages come more
//! slowly.
//!
//! The thread runs under `SCHED_BATCH` and so does not preempt a running guest (`docs/decisions/scheduling-class.md`).
//! `docs/decisions/e1000-port-thread.md` has rejected variants.

use std::time::{Duration, Instant};

/// Length of one sleep.
const SLEEP: Duration = Duration::from_micros(100);
/// Messages count as closely spaced if their average distance is below this time.
const MOST_DISTANCE: Duration = Duration::from_micros(40);
/// How long after an answer or an interrupt the thread stays awake for further questions.
const AWAKE_AFTER_ANSWER: Duration = Duration::from_micros(300);

/// Decides when the thread sleeps, from the recent traffic of its connection.
#[derive(Debug, Default)]
pub struct Coalescing {
    last_message: Option<Instant>,
    last_answer: Option<Instant>,
}

impl Coalescing {
    /// Decides after all messages that had arrived are handled: `messages` of them, at least one of them with an answer
    /// if `answered`. `expects_read` tells whether the guest will probably read registers soon. Returns until when to
    /// sleep, or `None` to stay awake.
    pub fn after(
        &mut self,
        now: Instant,
        messages: u32,
        answered: bool,
        expects_read: impl FnOnce() -> bool,
    ) -> Option<Instant> {
        if answered {
            self.last_answer = Some(now);
        } else if self.last_answer.is_some_and(|last_answer| now - last_answer >= AWAKE_AFTER_ANSWER || !expects_read())
        {
            self.last_answer = None;
        }
        let soon =
            self.last_message.replace(now).is_some_and(|last_message| now - last_message < MOST_DISTANCE * messages);
        (soon && self.last_answer.is_none()).then(|| now + SLEEP)
    }

    /// Notes that there was an interrupt.
    pub fn interrupted(&mut self, now: Instant) {
        self.last_answer = Some(now);
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
        let (mut coalescing, start) = (Coalescing::default(), Instant::now());
        assert_eq!(coalescing.after(start, 1, false, || true), None, "the first");
        assert_eq!(coalescing.after(start + us(1_000), 1, false, || true), None, "long after it");
        assert_eq!(coalescing.after(start + us(1_010), 1, false, || true), Some(start + us(1_010) + SLEEP));
        assert_eq!(coalescing.after(start + us(1_120), 12, false, || true), Some(start + us(1_120) + SLEEP));
        assert_eq!(coalescing.after(start + us(1_230), 0, false, || true), None, "nothing came");
    }

    #[test]
    fn a_driver_that_writes_once_for_many_frames_is_heard_at_once() {
        let (mut coalescing, start) = (Coalescing::default(), Instant::now());
        assert!((0..20).all(|write| coalescing.after(start + us(60) * write, 1, false, || false).is_none()));
        coalescing.after(start + us(1_150), 1, false, || false).expect("one soon after the other");
        assert_eq!(coalescing.after(start + us(1_260), 2, false, || false), None, "which was not the rule");
    }

    #[test]
    fn whoever_asks_finds_the_thread_awake_for_the_next_question() {
        let (mut coalescing, start) = (Coalescing::default(), Instant::now());
        assert_eq!(coalescing.after(start, 1, true, || true), None);
        assert_eq!(coalescing.after(start + us(100), 9, false, || true), None, "there may be another question");
        assert_eq!(coalescing.after(start + us(200), 9, false, || true), None);
        assert!(coalescing.after(start + us(301), 9, false, || true).is_some());
        coalescing.interrupted(start + us(350));
        assert_eq!(
            coalescing.after(start + us(355), 9, false, || true),
            None,
            "the guest will ask what it was interrupted for"
        );
    }

    #[test]
    fn the_thread_sleeps_again_as_soon_as_no_question_is_open() {
        let (mut coalescing, start) = (Coalescing::default(), Instant::now());
        coalescing.interrupted(start);
        assert_eq!(coalescing.after(start + us(20), 1, true, || false), None, "an answer, and perhaps the next");
        assert_eq!(coalescing.after(start + us(30), 1, false, || true), None);
        assert_eq!(coalescing.after(start + us(40), 1, true, || false), None);
        assert_eq!(
            coalescing.after(start + us(50), 1, false, || false),
            Some(start + us(50) + SLEEP),
            "it was the last"
        );
    }
}
