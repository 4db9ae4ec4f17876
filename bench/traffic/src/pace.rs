//! Rate control by a token bucket over the caller's clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::wire::MAX_FRAME;

/// Highest rate, in frames or bits per second.
const LARGEST: f64 = 1e13;
const NANOS: u128 = 1_000_000_000;

/// A send rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rate {
    /// As fast as the endpoint takes frames.
    #[default]
    Max,
    /// Frames per second.
    Frames(u64),
    /// Bits per second, of whole frames without FCS, preamble and gap.
    Bits(u64),
}

/// Text that is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a rate: write `max`, frames each second as in 1.5Mpps, or bits each second as in 10Gbit")]
pub struct RateError(String);

impl Rate {
    /// Parses `max`, `1.5Mpps`, `10Gbit`, `64kbit/s`: a number above 0, an optional k, M, G or T, and pps, bit or
    /// bit/s.
    ///
    /// # Errors
    /// The text has another form.
    pub fn parse(text: &str) -> Result<Rate, RateError> {
        if text == "max" {
            return Ok(Rate::Max);
        }
        parse_number(text).ok_or_else(|| RateError(text.to_owned()))
    }
}

fn parse_number(text: &str) -> Option<Rate> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim_start();
    let (factor, unit) = match unit.chars().next()? {
        'k' | 'K' => (1e3, &unit[1..]),
        'M' => (1e6, &unit[1..]),
        'G' => (1e9, &unit[1..]),
        'T' => (1e12, &unit[1..]),
        _ => (1.0, unit),
    };
    let value = (number * factor).round();
    if !(1.0..=LARGEST).contains(&value) {
        return None;
    }
    match unit {
        "pps" => Some(Rate::Frames(value as u64)),
        "bit" | "bit/s" => Some(Rate::Bits(value as u64)),
        _ => None,
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Rate, RateError> {
        Rate::parse(text)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match *self {
            Rate::Max => return f.write_str("max"),
            Rate::Frames(value) => (value, "pps"),
            Rate::Bits(value) => (value, "bit"),
        };
        let prefixes = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
        match prefixes.into_iter().find(|(factor, _)| value % factor == 0 && value > 0) {
            Some((factor, prefix)) => write!(f, "{}{prefix}{unit}", value / factor),
            None => write!(f, "{value}{unit}"),
        }
    }
}

/// A token bucket. Over any period it admits at most rate times time, plus one burst and one frame of the largest size.
/// It admits exactly the rate while the caller never falls behind by more than a burst.
///
/// Times count from any fixed moment. The arithmetic uses integers, so nothing drifts.
#[derive(Debug, Clone)]
pub struct Pacer {
    rate: Rate,
    /// Tokens, in frames or bits, times 10^9.
    credit: u128,
    /// Size of the bucket, in the same unit as `credit`.
    burst: u128,
    filled: Duration,
}

/// Size of the bucket as time: a sender that was delayed longer does not catch up the rest.
const BURST: Duration = Duration::from_millis(5);

impl Pacer {
    /// An empty bucket for `rate` at time 0. It holds 5 ms of credit.
    #[must_use]
    pub fn new(rate: Rate) -> Pacer {
        Pacer::with_burst(rate, BURST)
    }

    /// A bucket that holds the credit of `burst` and one frame.
    #[must_use]
    pub fn with_burst(rate: Rate, burst: Duration) -> Pacer {
        let burst = u128::from(per_second(rate)) * burst.as_nanos();
        Pacer { rate, credit: 0, burst, filled: Duration::ZERO }
    }

    /// Adds the credit of the time since the last call.
    #[inline]
    pub fn refill(&mut self, now: Duration) {
        if self.rate == Rate::Max {
            return;
        }
        let passed = now.saturating_sub(self.filled);
        self.filled = now.max(self.filled);
        // One frame more than the burst, so that a slow rate admits frames at all, and credit that remains after a
        // frame is kept.
        let most = self.burst + self.cost(MAX_FRAME);
        self.credit = (self.credit + u128::from(per_second(self.rate)) * passed.as_nanos()).min(most);
    }

    /// Returns true if a frame of `len` bytes may be sent now.
    #[inline]
    #[must_use]
    pub fn ready(&self, len: usize) -> bool {
        self.rate == Rate::Max || self.credit >= self.cost(len)
    }

    /// Takes the credit of a sent frame for which [`ready`](Pacer::ready) returned true.
    #[inline]
    pub fn spend(&mut self, len: usize) {
        if self.rate != Rate::Max {
            self.credit = self.credit.saturating_sub(self.cost(len));
        }
    }

    /// Returns the time until a frame of `len` bytes is ready.
    #[must_use]
    pub fn delay(&self, len: usize) -> Duration {
        let missing = if self.rate == Rate::Max { 0 } else { self.cost(len).saturating_sub(self.credit) };
        let nanos = missing.div_ceil(u128::from(per_second(self.rate).max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    #[inline]
    fn cost(&self, len: usize) -> u128 {
        match self.rate {
            Rate::Max => 0,
            Rate::Frames(_) => NANOS,
            Rate::Bits(_) => len as u128 * 8 * NANOS,
        }
    }
}

fn per_second(rate: Rate) -> u64 {
    match rate {
        Rate::Max => 0,
        Rate::Frames(value) | Rate::Bits(value) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_read_as_people_write_them() {
        assert_eq!(Rate::parse("max"), Ok(Rate::Max));
        assert_eq!(Rate::parse("1.5Mpps"), Ok(Rate::Frames(1_500_000)));
        assert_eq!(Rate::parse("10Gbit"), Ok(Rate::Bits(10_000_000_000)));
        assert_eq!(Rate::parse("64kbit/s"), Ok(Rate::Bits(64_000)));
        assert_eq!(Rate::parse("200 pps"), Ok(Rate::Frames(200)));
    }

    #[test]
    fn what_is_no_rate_is_refused_with_its_text() {
        for wrong in ["", "10", "Mpps", "0pps", "-1pps", "1.2.3pps", "5Mbyte", "99999Tbit", "nanpps", "1µbit"] {
            let error = Rate::parse(wrong).expect_err(wrong);
            assert!(error.to_string().contains(&format!("`{wrong}`")));
        }
    }

    /// Returns how many frames a sender may send that reads the clock at each of `times`.
    fn admitted(pacer: &mut Pacer, len: usize, times: impl IntoIterator<Item = Duration>) -> u64 {
        let mut frames = 0;
        for now in times {
            pacer.refill(now);
            while pacer.ready(len) {
                pacer.spend(len);
                frames += 1;
            }
        }
        frames
    }

    #[test]
    fn a_second_holds_exactly_the_rate() {
        let every_17_us =
            || (0..=1_000_000 / 17).map(|i| Duration::from_micros(i * 17)).chain([Duration::from_secs(1)]);
        for rate in [1, 7, 999_983, 14_880_952] {
            assert_eq!(admitted(&mut Pacer::new(Rate::Frames(rate)), 60, every_17_us()), rate);
        }
        assert_eq!(admitted(&mut Pacer::new(Rate::Bits(1_000_000_000)), 1250, every_17_us()), 100_000);
    }

    #[test]
    fn a_held_up_sender_does_not_catch_up_more_than_a_burst() {
        let mut pacer = Pacer::with_burst(Rate::Frames(1_000_000), Duration::from_millis(2));
        assert_eq!(admitted(&mut pacer, 60, [Duration::from_secs(3)]), 2001);
    }

    #[test]
    fn after_its_delay_a_frame_is_ready() {
        let mut pacer = Pacer::new(Rate::Bits(997));
        pacer.refill(Duration::from_millis(1));
        let delay = pacer.delay(1514);
        pacer.refill(Duration::from_millis(1) + delay - Duration::from_nanos(1));
        assert!(!pacer.ready(1514));
        pacer.refill(Duration::from_millis(1) + delay);
        assert!(pacer.ready(1514));
    }

    proptest! {
        #[test]
        fn no_stretch_exceeds_rate_times_time_plus_burst(
            rate in prop_oneof![1u64..1_000, 1_000u64..50_000_000], burst_us in 0u64..20_000,
            steps in prop::collection::vec(0u64..100_000, 1..200)
        ) {
            // Steps are thousandths of the time of a frame.
            let burst = Duration::from_micros(burst_us);
            let mut pacer = Pacer::with_burst(Rate::Frames(rate), burst);
            let mut now = Duration::ZERO;
            let mut frames = 0;
            for step in steps {
                now += Duration::from_nanos(step * 1_000_000 / rate);
                frames += admitted(&mut pacer, 60, [now]);
                let most = u128::from(rate) * (now + burst).as_nanos() / NANOS + 1;
                prop_assert!(u128::from(frames) <= most);
            }
        }
    }
}
