//! The retransmission timeout, by measured round trips (RFC 6298).

use super::number::{MILLISECOND, Nanos, SECOND};

/// The timeout before the first sample.
const FIRST: Nanos = 5 * MILLISECOND;
/// The longest timeout.
const MOST: Nanos = SECOND;

/// Measured round trips.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    /// Smoothed round trip and its variation; 0 before the first sample.
    smoothed: Nanos,
    variation: Nanos,
    /// Timeouts since the last answer.
    backoff: u32,
}

impl RoundTrip {
    /// The least timeout.
    pub const LEAST: Nanos = MILLISECOND;

    /// Takes a sample (RFC 6298, 2.2 and 2.3).
    #[inline]
    pub fn sample(&mut self, took: Nanos) {
        // A longer sample changes nothing: the timeout is at its bound.
        let took = took.clamp(1, 8 * MOST);
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (took, took / 2);
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(took)) / 4;
            self.smoothed = (7 * self.smoothed + took) / 8;
        }
        self.backoff = 0;
    }

    /// Returns the timeout, with what earlier timeouts added (RFC 6298, 2.3, 2.4, 5.5).
    #[inline]
    pub fn timeout(&self) -> Nanos {
        let base =
            if self.smoothed == 0 { FIRST } else { (self.smoothed + 4 * self.variation).clamp(Self::LEAST, MOST) };
        (base << self.backoff.min(16)).min(MOST)
    }

    /// A timeout has passed (RFC 6298, 5.5).
    pub fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// The other end has answered.
    #[inline]
    pub fn answered(&mut self) {
        self.backoff = 0;
    }

    /// Returns the number of timeouts since the last answer.
    pub fn timeouts(&self) -> u32 {
        self.backoff
    }

    /// Returns the smoothed round trip, if one was measured.
    pub fn smoothed(&self) -> Option<Nanos> {
        (self.smoothed > 0).then_some(self.smoothed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::number::MICROSECOND;

    #[test]
    fn a_timeout_follows_the_round_trips_within_its_bounds() {
        let mut trip = RoundTrip::default();
        assert_eq!(trip.timeout(), FIRST);
        trip.sample(MILLISECOND);
        assert_eq!(trip.timeout(), 3 * MILLISECOND);
        (0..200).for_each(|_| trip.sample(2 * MICROSECOND));
        assert_eq!((trip.timeout(), trip.smoothed()), (RoundTrip::LEAST, Some(2 * MICROSECOND)));
        (0..200).for_each(|_| trip.sample(Nanos::MAX));
        assert_eq!(trip.timeout(), MOST);
    }

    #[test]
    fn a_timeout_doubles_until_there_is_an_answer() {
        let mut trip = RoundTrip::default();
        trip.sample(MICROSECOND);
        trip.back_off();
        assert_eq!(trip.timeout(), 2 * RoundTrip::LEAST);
        (0..100).for_each(|_| trip.back_off());
        assert_eq!((trip.timeout(), trip.timeouts()), (MOST, 101));
        trip.answered();
        assert_eq!(trip.timeout(), RoundTrip::LEAST);
    }
}
