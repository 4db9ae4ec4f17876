//! Results: figures made of windows, as JSON and as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::number::{short, significant};
use crate::placement::Class;
use crate::series::{ANCHOR, RINGWAY};
use crate::stats::Summary;
use crate::table::Table;
use crate::trial::{Outcome, Sample};

/// The results of one run of `ringway bench`.
#[derive(Deserialize, Serialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Report {
    /// The command line of the run.
    pub command: String,
    /// The machine and the build.
    pub machine: Machine,
    /// Rounds that the command line asks for.
    pub pairs: usize,
    /// True for a quick run. Its figures show only that everything works.
    pub quick: bool,
    /// The figures, in the order they were measured.
    pub figures: Vec<Figure>,
}

/// An axis.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Axis {
    /// The quantity.
    pub label: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// True if a plot has a logarithmic scale.
    pub logarithmic: bool,
}

impl Axis {
    /// Formats a value: indices and shares near 1 with more digits than others.
    pub(crate) fn number(&self, value: f64) -> String {
        match self.unit {
            "Jain's index" => significant(value, 5),
            "times" => significant(value, 4),
            _ => short(value),
        }
    }
}

/// Rates, in million frames per second.
pub const RATE: Axis = Axis { label: "rate", unit: "Mframe/s", logarithmic: true };
/// Time per frame or per round trip, in nanoseconds.
pub const TIME: Axis = Axis { label: "time", unit: "ns", logarithmic: true };

/// Name, title and axes of a figure.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Heading {
    /// Short name, also that of the plot's file.
    pub name: String,
    /// Title.
    pub title: String,
    /// Paper and section that the experiment comes from.
    pub source: &'static str,
    /// The quantity that was varied.
    pub x: Axis,
    /// The quantity that was measured.
    pub y: Axis,
}

/// A peer that could not be measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Unavailable {
    /// Name of its curve.
    pub peer: String,
    /// The reason.
    pub reason: String,
    /// A program or a header that it needs is not installed.
    #[serde(default)]
    pub lacks_tool: bool,
}

/// One figure.
#[derive(Deserialize, Serialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Figure {
    /// Name, title and axes.
    #[serde(flatten)]
    pub heading: Heading,
    /// The command line that measures it.
    pub command: String,
    /// Medians and ratios.
    pub points: Vec<Point>,
    /// Number of windows discarded because the cores moved, or because this program lost its core.
    pub discarded: usize,
    /// Curves of the discarded windows.
    pub disturbed: BTreeSet<String>,
    /// Peers that could not be measured.
    pub unavailable: Vec<Unavailable>,
    /// Remarks, such as failures.
    pub notes: Vec<String>,
    /// Every window that counts. Empty in a summary.
    #[serde(default)]
    pub samples: Vec<Sample>,
}

/// One curve at one place, for one distance of the cores.
#[derive(Deserialize, Serialize)]
pub struct Point {
    /// The curve.
    pub series: String,
    /// Place on the x axis.
    pub x: f64,
    /// Distance of the cores.
    pub class: Class,
    /// In the unit of the y axis.
    pub value: Summary,
    /// Ratios to the other curves at the same place: each window divided by the other curve's window of the same round and class.
    pub ratios: BTreeMap<String, Summary>,
    /// Of a time: the value in round trips of a cache line between the cores, by the probes around each window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_round_trips: Option<Summary>,
}

impl Figure {
    /// Sorts an outcome's windows into points.
    #[must_use]
    pub fn new(heading: Heading, command: String, outcome: Outcome, unavailable: Vec<Unavailable>) -> Figure {
        let Outcome { samples, discarded, disturbed, notes } = outcome;
        let points = points(&samples, heading.y.unit == TIME.unit);
        Figure { heading, command, points, discarded, disturbed, unavailable, notes, samples }
    }

    /// Returns a figure of the same windows in nanoseconds per frame (VALE's figure 7 from its figure 6).
    #[must_use]
    pub fn per_frame(&self, name: &str, title: &str, source: &'static str) -> Figure {
        let mut heading = self.heading.clone();
        (heading.name, heading.title, heading.source) = (name.to_owned(), title.to_owned(), source);
        heading.y = Axis { label: "time per frame", ..TIME };
        self.otherwise(heading, |sample| 1e3 / sample.value)
    }

    /// Returns a figure of the same windows in another unit; `by` gives how many of the new unit are one of the old at a place.
    #[must_use]
    pub fn scaled(&self, heading: Heading, by: impl Fn(f64) -> f64) -> Figure {
        let mut scaled = self.otherwise(heading, |sample| sample.value * by(sample.x));
        // The bare ring's rate has no such unit.
        scaled.samples.retain(|sample| sample.series != ANCHOR);
        scaled.points.retain(|point| point.series != ANCHOR);
        scaled
    }

    /// Returns a figure of the same windows with another value of each.
    #[must_use]
    pub fn otherwise(&self, heading: Heading, value: impl Fn(&Sample) -> f64) -> Figure {
        let mut samples = self.samples.clone();
        samples.iter_mut().for_each(|sample| sample.value = value(sample));
        Figure {
            heading,
            command: self.command.clone(),
            points: points(&samples, false),
            discarded: self.discarded,
            disturbed: self.disturbed.clone(),
            unavailable: self.unavailable.clone(),
            notes: self.notes.clone(),
            samples,
        }
    }

    /// Names of the curves, in the order they were first measured.
    #[must_use]
    pub fn series(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for point in &self.points {
            if !names.contains(&point.series.as_str()) {
                names.push(point.series.as_str());
            }
        }
        names
    }

    /// Returns true if it has a point of Ringway's own curve.
    #[must_use]
    pub fn has_ours(&self) -> bool {
        self.points.iter().any(|point| point.series == RINGWAY)
    }

    /// Returns true if all windows of Ringway's own curve were discarded, which tells of the machine only.
    #[must_use]
    pub fn was_disturbed(&self) -> bool {
        !self.has_ours() && self.disturbed.contains(RINGWAY)
    }

    /// Returns true if Ringway's own curve is left out because a tool is not installed.
    #[must_use]
    pub fn lacks_tool(&self) -> bool {
        !self.has_ours() && self.unavailable.iter().any(|curve| curve.peer == RINGWAY && curve.lacks_tool)
    }

    /// Returns a table for a terminal, one line per point.
    #[must_use]
    pub fn text(&self) -> String {
        let Heading { name, title, source, x, y } = &self.heading;
        let divisors: Vec<&str> = self.series().into_iter().filter(|name| self.divides(name)).collect();
        let mut headings: Vec<String> =
            ["series", "cores", x.label, y.unit, "quartiles", "n"].map(str::to_owned).into();
        headings.extend(divisors.iter().map(|divisor| format!("/ {divisor}")));
        if self.points.iter().any(|point| point.line_round_trips.is_some()) {
            headings.push("line round trips".to_owned());
        }
        let mut table = Table::new(headings, 2);
        for point in &self.points {
            let Summary { median, lower_quartile, upper_quartile, windows, .. } = point.value;
            let quartiles = format!("{} .. {}", y.number(lower_quartile), y.number(upper_quartile));
            let words = [point.series.clone(), point.class.name().to_owned()];
            let numbers = [point.x.to_string(), y.number(median), quartiles, windows.to_string()];
            let ratio = |divisor: &&str| point.ratios.get(*divisor).map_or(String::new(), |ratio| short(ratio.median));
            let trips = point.line_round_trips.map(|trips| short(trips.median));
            table.row(words.into_iter().chain(numbers).chain(divisors.iter().map(ratio)).chain(trips).collect());
        }
        let mut text = format!("{name}: {title} ({source})\n  {}\n{}", self.command, table.text());
        for Unavailable { peer, reason, .. } in &self.unavailable {
            let _ = writeln!(text, "  peer {peer} not available: {reason}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "  note: {note}");
        }
        if self.discarded > 0 {
            let _ = writeln!(
                text,
                "  {} windows discarded: the cores moved, or something else ran on them",
                self.discarded
            );
        }
        text
    }

    fn divides(&self, series: &str) -> bool {
        self.points.iter().any(|point| point.ratios.contains_key(series))
    }
}

impl Report {
    /// Returns the machine and all tables, for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let Machine { cpu, kernel, processors, cores, version, commit, date, .. } = &self.machine;
        let mut text = format!(
            "ringway {version} ({}), {date}\n{cpu}, {processors} processors, Linux {kernel}; generator on core {}, switch on core {}\n",
            commit.as_deref().unwrap_or("commit unknown"),
            cores.generator,
            cores.switch
        );
        if self.quick {
            text.push_str("A quick run: these figures show that everything works, not how fast it is.\n");
        }
        for figure in &self.figures {
            text.push('\n');
            text.push_str(&figure.text());
        }
        text
    }
}

/// Groups windows by curve, place and class, in the order measured, near before far.
fn points(samples: &[Sample], round_trips: bool) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for class in [Class::Near, Class::Far, Class::Any] {
        for first in samples.iter().filter(|sample| sample.class == class) {
            if points.iter().any(|point| point.class == class && point.series == first.series && point.x == first.x) {
                continue;
            }
            let own: Vec<&Sample> = samples
                .iter()
                .filter(|other| other.class == class && other.series == first.series && other.x == first.x)
                .collect();
            let Some(value) = Summary::of(own.iter().map(|sample| sample.value)) else { continue };
            let trips = own.iter().map(|sample| sample.value / (sample.crossing_ns[0] + sample.crossing_ns[1]));
            points.push(Point {
                series: first.series.clone(),
                x: first.x,
                class,
                value,
                ratios: ratios(samples, &own),
                line_round_trips: Summary::of(trips).filter(|_| round_trips),
            });
        }
    }
    points
}

/// Divides each window of `own` by every other curve's window of the same place, round and class.
fn ratios(samples: &[Sample], own: &[&Sample]) -> BTreeMap<String, Summary> {
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    if own.iter().any(|sample| sample.series.starts_with(ANCHOR)) {
        return BTreeMap::new();
    }
    for sample in own {
        let same = |other: &&Sample| {
            other.series != sample.series
                && (other.round, other.class) == (sample.round, sample.class)
                && other.x == sample.x
        };
        // A count of 0 has no ratio.
        for other in samples.iter().filter(same).filter(|other| other.value != 0.0) {
            ratios.entry(other.series.clone()).or_default().push(sample.value / other.value);
        }
    }
    ratios.into_iter().filter_map(|(series, values)| Some((series, Summary::of(values)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(series: &str, round: usize, class: Class, value: f64) -> Sample {
        let crossing_ns = if class == Class::Near { [50.0, 50.0] } else { [200.0, 200.0] };
        Sample { series: series.to_owned(), x: 1.0, round, class, crossing_ns, value }
    }

    fn figure(samples: Vec<Sample>, y: Axis) -> Figure {
        let x = Axis { label: "destinations", unit: "ports", logarithmic: true };
        let heading = Heading { name: "test".into(), title: "Test".into(), source: "none", x, y };
        let reason = String::from("vde_switch is not installed");
        let unavailable = vec![Unavailable { peer: "vde".into(), reason, lacks_tool: false }];
        Figure::new(heading, "ringway bench test".into(), Outcome { samples, ..Outcome::default() }, unavailable)
    }

    #[test]
    fn near_is_compared_with_near_and_far_with_far() {
        let figure = figure(
            vec![
                sample("anchor", 1, Class::Near, 100.0),
                sample("ringway", 1, Class::Near, 50.0),
                sample("anchor", 2, Class::Far, 40.0),
                sample("ringway", 2, Class::Far, 30.0),
                // The cores moved between these two windows: they must not give a ratio.
                sample("anchor", 3, Class::Near, 100.0),
                sample("ringway", 3, Class::Far, 1.0),
            ],
            RATE,
        );
        let ratio = |class| {
            let point = figure.points.iter().find(|point| point.series == "ringway" && point.class == class).unwrap();
            point.ratios["anchor"]
        };
        assert_eq!((ratio(Class::Near).median, ratio(Class::Near).windows), (0.5, 1));
        assert_eq!((ratio(Class::Far).median, ratio(Class::Far).windows), (0.75, 1));
    }

    #[test]
    fn errors_are_told_in_another_unit_and_the_bare_rings_rate_is_not() {
        let percent = Axis { label: "error", unit: "%", logarithmic: false };
        let windows = vec![sample("anchor", 1, Class::Near, 100.0), sample("ringway", 1, Class::Near, -0.5)];
        let figure = figure(windows, percent);
        let heading = Heading { y: Axis { unit: "frames", ..percent }, ..figure.heading.clone() };
        let frames = figure.scaled(heading, |x| 82.0 * x);
        assert_eq!(frames.series(), ["ringway"]);
        assert_eq!((frames.points[0].value.median, frames.samples.len()), (-41.0, 1));
    }

    #[test]
    fn a_ratio_is_the_median_of_each_rounds_ratio() {
        let rounds = [(10.0, 100.0), (40.0, 200.0), (90.0, 300.0)];
        let samples = rounds.iter().enumerate().flat_map(|(round, &(own, anchor))| {
            [sample("anchor", round, Class::Near, anchor), sample("ringway", round, Class::Near, own)]
        });
        let figure = figure(samples.collect(), RATE);
        let point = figure.points.iter().find(|point| point.series == "ringway").unwrap();
        assert_eq!(point.ratios["anchor"].median, 0.2);
    }

    #[test]
    fn a_ratio_to_nothing_is_left_out_so_that_a_report_reads_back() {
        let samples = vec![sample("other", 1, Class::Near, 0.0), sample("ringway", 1, Class::Near, 50.0)];
        let figure = figure(samples, RATE);
        let json: &'static str = Box::leak(serde_json::to_string(&figure).unwrap().into_boxed_str());
        let read: Figure = serde_json::from_str(json).unwrap();
        assert!(read.points.iter().all(|point| !point.ratios.contains_key("other")));
        assert_eq!(read.points.len(), 2);
    }

    #[test]
    fn round_trips_are_also_stated_in_round_trips_of_a_line() {
        let times = figure(vec![sample("ringway", 1, Class::Far, 2000.0)], TIME);
        assert_eq!(times.points[0].line_round_trips.unwrap().median, 5.0);
        let rates = figure(vec![sample("ringway", 1, Class::Far, 2000.0)], RATE);
        assert!(rates.points[0].line_round_trips.is_none());
    }

    #[test]
    fn no_two_columns_of_a_table_touch() {
        let name = "ringway e1000e, mapped, to fill, switch stopped";
        let mut samples = vec![
            sample(name, 1, Class::Near, 12_345_678.0),
            sample("qemu virtio-net, linux bridge", 1, Class::Near, 1.0),
        ];
        samples.iter_mut().for_each(|sample| sample.x = 1_000_000_000_000.5);
        let text = figure(samples, RATE).text();
        let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        let columns: Vec<&str> = line.trim().split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(columns[..4], [name, "near", "1000000000000.5", "12,345,678"], "{text}");
    }

    #[test]
    fn the_table_names_a_peer_that_is_missing() {
        let text = figure(vec![sample("ringway", 1, Class::Near, 1.0)], RATE).text();
        assert!(text.contains("peer vde not available: vde_switch is not installed"), "{text}");
    }

    #[test]
    fn time_per_frame_is_the_inverse_of_the_rate() {
        let rates = figure(vec![sample("ringway", 1, Class::Near, 20.0)], RATE);
        let times = rates.per_frame("times", "Times", "none");
        assert_eq!(times.points[0].value.median, 50.0);
    }
}
