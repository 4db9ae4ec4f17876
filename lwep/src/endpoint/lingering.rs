//! Connections that are over for both programs. Their last acknowledgement may have been lost: then the peer repeats its END, and needs
//! an answer to know that everything has arrived.

use std::collections::{HashMap, VecDeque};

use super::answer::Answer;
use super::share;
use super::stations::Stations;
use crate::connection::{Nanos, SECOND};
use crate::wire::Mac;

/// Repetitions are answered for so long: several of the longest retransmission timeouts of a peer.
const LINGER: Nanos = 5 * SECOND;
/// Most answers at once. Those of a station that has its share of them already are not kept.
const MOST: usize = 16_384;

/// The answers, by own identifier and secret.
#[derive(Debug, Default)]
pub struct Lingering {
    answers: HashMap<(u32, u32), Answer>,
    /// In the order in which they end, with the station that each is for.
    ends: VecDeque<(Nanos, (u32, u32), u32)>,
}

impl Lingering {
    /// Keeps the answer to repetitions that name this identifier and secret.
    pub fn add(&mut self, own: (u32, u32), answer: Answer, station: u32, stations: &mut Stations, now: Nanos) {
        self.expire(stations, now);
        let has = &mut stations.get(station).lingering;
        if !share::may_take(*has as usize, MOST - self.ends.len(), MOST, 1) {
            return;
        }
        *has += 1;
        self.answers.insert(own, answer);
        self.ends.push_back((now.saturating_add(LINGER), own, station));
    }

    /// Returns the answer to a station that repeats something.
    pub fn answer(&mut self, own: (u32, u32), from: Mac, stations: &mut Stations, now: Nanos) -> Option<Answer> {
        self.expire(stations, now);
        self.answers.get(&own).copied().filter(|answer| answer.to == from)
    }

    fn expire(&mut self, stations: &mut Stations, now: Nanos) {
        while let Some((_, own, station)) = self.ends.front().copied().filter(|(end, ..)| *end <= now) {
            self.answers.remove(&own);
            self.ends.pop_front();
            stations.get(station).lingering -= 1;
            stations.tidy(station);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;

    #[test]
    fn answers_are_kept_for_their_time_and_some_for_each_station() {
        let answer = |to, number| Answer {
            to,
            kind: Kind::Ack,
            connection: 0,
            token: 0,
            number,
            acknowledgement: 0,
            reason: None,
        };
        let (mut lingering, mut stations) = (Lingering::default(), Stations::default());
        let (many, few) = ([2; 6], [3; 6]);
        let number = stations.join(many);
        for own in 0..=MOST as u32 {
            lingering.add((own, 7), answer(many, own), number, &mut stations, 0);
        }
        let other = stations.join(few);
        lingering.add((0, 8), answer(few, 5), other, &mut stations, 0);
        assert!(lingering.answers.len() < MOST, "one station does not have all");
        let mut known = |own, from, now| lingering.answer(own, from, &mut stations, now).map(|answer| answer.number);
        assert_eq!((known((1, 7), many, 1), known((0, 8), few, 1)), (Some(1), Some(5)));
        assert_eq!((known((1, 8), many, 1), known((1, 7), few, 1)), (None, None));
        assert_eq!((known((1, 7), many, LINGER - 1), known((1, 7), many, LINGER)), (Some(1), None));
        assert_eq!((lingering.answers.len(), lingering.ends.len()), (0, 0));
        stations.leave(number);
        assert!(stations.of(many).is_none());
    }
}
