//! One axis of a plot: where a value lies on it, and its round ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// Most places on the x axis that are ticks themselves.
const MOST_PLACES: usize = 12;
/// Least ratio of neighbouring ticks on a logarithmic axis, so that labels do not touch.
const APART: f64 = 1.4;
/// Ticks that a linear axis has about.
const ABOUT: f64 = 8.0;

/// How values are spread on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spread {
    Linear,
    Logarithmic,
    /// Per cent, with the same room for each nine: 90, 99, 99.9.
    Percentile,
}

impl Spread {
    fn place(self, value: f64) -> f64 {
        match self {
            Spread::Linear => value,
            Spread::Logarithmic => value.ln(),
            Spread::Percentile => -(1.0 - value / 100.0).ln(),
        }
    }
}

/// An axis with its ticks.
#[derive(Clone, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    spread: Spread,
    ticks: Vec<f64>,
}

impl Scale {
    /// An axis with a place for each of `count` groups of bars, numbered from 0.
    pub fn groups(count: usize) -> Scale {
        let ticks = (0..count).map(|place| place as f64).collect();
        Scale { low: -0.5, high: count as f64 - 0.5, spread: Spread::Linear, ticks }
    }

    /// An axis of percentiles, with ticks at these.
    pub fn percentiles(places: &[f64]) -> Scale {
        let highest = places.iter().copied().fold(0.0, f64::max);
        let lowest = places.iter().copied().fold(highest, f64::min);
        // A quarter of a nine on both sides.
        let beyond = |value: f64, nines: f64| (100.0 - (100.0 - value) * 10_f64.powf(-nines)).max(0.0);
        let (low, high) = (beyond(lowest, -0.25), beyond(highest, 0.25));
        let ticks = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999].into_iter();
        let ticks = ticks.filter(|tick| places.contains(tick) || (lowest..=highest).contains(tick)).collect();
        Scale { low, high, spread: Spread::Percentile, ticks }
    }

    /// A logarithmic axis over these values, which are above 0. Few places that lie apart are ticks themselves.
    pub fn logarithmic((low, high): (f64, f64), places: &[f64]) -> Scale {
        let (low, high) = (low / 1.25, high * 1.25);
        let are_apart = places.windows(2).all(|pair| pair[1] / pair[0] >= APART);
        let ticks = if (2..=MOST_PLACES).contains(&places.len()) && are_apart {
            places.to_vec()
        } else {
            logarithmic_ticks(low, high)
        };
        Scale { low, high, spread: Spread::Logarithmic, ticks }
    }

    /// A linear axis from `low` to `high`.
    pub fn linear(low: f64, high: f64) -> Scale {
        let step = round_above((high - low) / ABOUT);
        let ticks = ((low / step).ceil() as i64..=(high / step).floor() as i64).map(|tick| tick as f64 * step);
        Scale { low, high, spread: Spread::Linear, ticks: ticks.collect() }
    }

    /// Where bars begin: at nothing, or at the edge of an axis that does not have it.
    pub fn floor(&self) -> f64 {
        if self.spread == Spread::Linear { self.low.max(0.0) } else { self.low }
    }
}

/// 1, 2 and 5 times the powers of ten; over more than three decades the powers alone.
fn logarithmic_ticks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let steps: &[f64] = if high / low > 1000.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

/// The least of 1, 2 and 5 times a power of ten that is not below `value`.
fn round_above(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(10.0 * power)
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let [low, value, high] = [self.low, *value, self.high].map(|value| self.spread.place(value));
        limit.0 + (f64::from(limit.1 - limit.0) * (value - low) / (high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        assert_eq!(Scale::linear(0.0, 70.0).ticks, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]);
        assert_eq!(Scale::linear(-3.0, 3.0).ticks, [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]);
        assert_eq!(Scale::logarithmic((3.0, 80.0), &[]).ticks, [5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(Scale::logarithmic((0.5, 90_000.0), &[]).ticks, [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
    }

    #[test]
    fn few_places_are_ticks_and_crowded_ones_are_not() {
        let places = [1.0, 2.0, 4.0, 1024.0];
        assert_eq!(Scale::logarithmic((1.0, 1024.0), &places).ticks, places);
        assert_eq!(Scale::logarithmic((60.0, 80.0), &[60.0, 64.0, 80.0]).ticks, [50.0, 100.0]);
    }

    #[test]
    fn each_nine_of_a_percentile_has_the_same_room() {
        let scale = Scale::percentiles(&[50.0, 99.0, 99.9]);
        assert_eq!(scale.ticks, [50.0, 90.0, 99.0, 99.9]);
        let place = |value: f64| scale.map(&value, (0, 10_000));
        assert!((place(99.0) - place(90.0) - (place(99.9) - place(99.0))).abs() <= 1);
        assert!(0 < place(50.0) && place(99.9) < 10_000);
    }
}
