//! Medians and spreads.

use serde::{Deserialize, Serialize};

/// What several windows of one kind came to.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Summary {
    /// How many windows.
    pub windows: usize,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The lower quartile (nearest rank).
    pub lower_quartile: f64,
    /// The upper quartile (nearest rank).
    pub upper_quartile: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarises `values`; nothing when there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let windows = sorted.len();
        let rank = |quarters: usize| sorted[(windows * quarters).div_ceil(4).max(1) - 1];
        let median = f64::midpoint(sorted[(windows - 1) / 2], sorted[windows / 2]);
        Some(Summary { windows, median, lower_quartile: rank(1), upper_quartile: rank(3), min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_nothing_is_nothing() {
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let summary = Summary::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((summary.median, summary.min, summary.max, summary.windows), (2.5, 1.0, 4.0, 4));
    }

    #[test]
    fn quartiles_are_values_that_were_measured() {
        let summary = Summary::of((1..=8).map(f64::from)).unwrap();
        assert_eq!((summary.lower_quartile, summary.upper_quartile), (2.0, 6.0));
        let one = Summary::of([7.0]).unwrap();
        assert_eq!((one.lower_quartile, one.median, one.upper_quartile), (7.0, 7.0, 7.0));
    }
}
