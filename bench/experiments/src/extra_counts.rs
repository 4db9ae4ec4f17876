//! Figures of further counts that the windows of another figure took.

use std::cell::RefCell;
use std::rc::Rc;

use crate::placement::Class;
use crate::report::{Figure, Heading};
use crate::trial::{Outcome, Sample};

/// Counts of several kinds, noted window by window. Clones share them.
#[derive(Clone, Default)]
pub struct ExtraCounts(Rc<RefCell<Vec<(usize, Sample)>>>);

impl ExtraCounts {
    /// Notes a count of kind `kind` that a window of this curve took at this place.
    pub fn note(&self, kind: usize, series: &str, x: f64, value: f64) {
        let mut notes = self.0.borrow_mut();
        let same = |(other, sample): &&(usize, Sample)| *other == kind && sample.series == series && sample.x == x;
        let round = notes.iter().filter(same).count() + 1;
        let (series, class, crossing_ns) = (series.to_owned(), Class::Any, [0.0; 2]);
        notes.push((kind, Sample { series, x, round, class, crossing_ns, value }));
    }

    /// Returns the figure of one kind of count. `of` is the figure whose windows took them.
    #[must_use]
    pub fn figure(&self, kind: usize, heading: Heading, of: &Figure) -> Figure {
        let notes = self.0.borrow();
        let samples = notes.iter().filter(|(other, _)| *other == kind).map(|(_, sample)| sample.clone()).collect();
        let outcome = Outcome { samples, discarded: 0, disturbed: of.disturbed.clone(), notes: of.notes.clone() };
        Figure::new(heading, of.command.clone(), outcome, of.unavailable.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Axis;
    use crate::series::RINGWAY;

    #[test]
    fn counts_become_a_figure_with_the_rounds_they_were_taken_in() {
        let extra_counts = ExtraCounts::default();
        for value in [1.0, 3.0, 2.0] {
            extra_counts.note(0, RINGWAY, 64.0, value);
            extra_counts.note(1, RINGWAY, 64.0, 10.0 * value);
            extra_counts.clone().note(0, "other", 64.0, value / 2.0);
        }
        let axis = Axis { label: "", unit: "", logarithmic: false };
        let heading = Heading { name: "n".into(), title: "t".into(), source: "s", x: axis, y: axis };
        let of = Figure::new(heading.clone(), "command".into(), Outcome::default(), Vec::new());
        let figure = extra_counts.figure(0, heading, &of);
        assert_eq!((figure.samples.len(), figure.samples[4].round), (6, 3));
        let point = &figure.points[0];
        assert_eq!((point.series.as_str(), point.value.median, point.ratios["other"].median), (RINGWAY, 2.0, 2.0));
    }
}
