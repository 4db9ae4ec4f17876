//! Files of reports: what `ringway bench --json` writes, and summaries of it.
//!
//! A summary has what the tables and plots of a document need: numbers of five digits, no windows, and the ratios of Ringway's curve only.
//! Each figure is one line of the file, so that a difference between two summaries shows figure by figure.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::report::{Figure, Point, Report};
use crate::series::RINGWAY;
use crate::stats::Summary;

/// Reads the reports of a file.
///
/// The text stays allocated until the program ends, as headings borrow from it.
///
/// # Errors
/// The file cannot be read, or has no reports.
pub fn read(file: &Path) -> io::Result<Vec<Report>> {
    let text: &'static str = Box::leak(fs::read_to_string(file)?.into_boxed_str());
    if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(io::Error::from)
    } else {
        serde_json::from_str(text).map(|report| vec![report]).map_err(io::Error::from)
    }
}

/// Writes reports to a file.
///
/// # Errors
/// The file cannot be written.
pub fn write(file: &Path, reports: &[Report]) -> io::Result<()> {
    let lines: Vec<String> = reports.iter().map(text).collect::<Result<_, _>>()?;
    fs::write(file, format!("[\n{}\n]\n", lines.join(",\n")))
}

/// Returns a report as JSON with one line for each figure.
fn text(report: &Report) -> serde_json::Result<String> {
    let Report { command, machine, pairs, quick, figures } = report;
    let facts = [
        ("command", serde_json::to_string(command)?),
        ("machine", serde_json::to_string(machine)?),
        ("pairs", serde_json::to_string(pairs)?),
        ("quick", serde_json::to_string(quick)?),
    ];
    let facts: Vec<String> = facts.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let figures: Vec<String> = figures.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(format!("{{{},\"figures\":[\n{}\n]}}", facts.join(","), figures.join(",\n")))
}

/// Leaves out what documents do not show.
#[must_use]
pub fn summary(report: Report) -> Report {
    let figures = report.figures.into_iter().map(|figure| Figure {
        points: figure.points.into_iter().map(summary_of_point).collect(),
        samples: Vec::new(),
        ..figure
    });
    Report { figures: figures.collect(), ..report }
}

fn summary_of_point(point: Point) -> Point {
    let is_ours = point.series == RINGWAY;
    let ratios: BTreeMap<_, _> =
        point.ratios.into_iter().filter(|_| is_ours).map(|(series, ratio)| (series, rounded(ratio))).collect();
    Point { value: rounded(point.value), ratios, line_round_trips: point.line_round_trips.map(rounded), ..point }
}

fn rounded(summary: Summary) -> Summary {
    let Summary { windows, median, lower_quartile, upper_quartile, min, max } = summary;
    Summary {
        windows,
        median: five_digits(median),
        lower_quartile: five_digits(lower_quartile),
        upper_quartile: five_digits(upper_quartile),
        min: five_digits(min),
        max: five_digits(max),
    }
}

fn five_digits(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}
