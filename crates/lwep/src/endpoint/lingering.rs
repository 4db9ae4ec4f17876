//! Connections that are over for both programs. Their last acknowledgement may have been lost: then the peer repeats its END, and needs
//! an answer to know that everything has arrived.

use std::collections::{HashMap, VecDeque};

use super::answer::Answer;
use crate::connection::{Nanos, SECOND};

/// Repetitions are answered for so long: several of the longest retransmission timeouts of a peer.
const LINGER: Nanos = 5 * SECOND;
/// More than so many push out the oldest.
const MOST: usize = 16_384;

/// The answers, by own identifier and secret.
#[derive(Debug, Default)]
pub struct Lingering {
    answers: HashMap<(u32, u32), Answer>,
    /// In the order in which they end.
    ends: VecDeque<(Nanos, (u32, u32))>,
}

impl Lingering {
    /// Keeps the answer to repetitions that name this identifier and secret.
    pub fn add(&mut self, own: (u32, u32), answer: Answer, now: Nanos) {
        while let Some((_, oldest)) = self.ends.front().filter(|(end, _)| *end <= now || self.ends.len() >= MOST) {
            self.answers.remove(oldest);
            self.ends.pop_front();
        }
        self.answers.insert(own, answer);
        self.ends.push_back((now.saturating_add(LINGER), own));
    }

    /// Returns the answer to a station that repeats something.
    pub fn answer(&mut self, own: (u32, u32), from: [u8; 6], now: Nanos) -> Option<Answer> {
        while let Some((_, oldest)) = self.ends.front().filter(|(end, _)| *end <= now) {
            self.answers.remove(oldest);
            self.ends.pop_front();
        }
        self.answers.get(&own).copied().filter(|answer| answer.to == from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;

    #[test]
    fn answers_are_kept_for_their_time_and_not_too_many() {
        let answer = |number| Answer {
            to: [2; 6],
            kind: Kind::Ack,
            connection: 0,
            token: 0,
            number,
            acknowledgement: 0,
            reason: None,
        };
        let mut lingering = Lingering::default();
        for number in 0..=MOST as u32 {
            lingering.add((number, 7), answer(number), 0);
        }
        let mut known = |own, from, now| lingering.answer(own, from, now).map(|answer| answer.number);
        assert_eq!((known((0, 7), [2; 6], 1), known((1, 7), [2; 6], 1)), (None, Some(1)));
        assert_eq!((known((1, 8), [2; 6], 1), known((1, 7), [3; 6], 1)), (None, None));
        assert_eq!((known((1, 7), [2; 6], LINGER - 1), known((1, 7), [2; 6], LINGER)), (Some(1), None));
        assert_eq!((lingering.answers.len(), lingering.ends.len()), (0, 0));
    }
}
