//! Writes runs as Markdown: for each experiment its command, what it ran on, and one table for each of its figures.
//!
//! Rows are curves, columns are places on the x axis. Rows of ratios follow: Ringway's windows divided by those of another
//! curve in the same round.

use std::fmt::Write as _;
use std::path::Path;

use crate::placement::Class;
use crate::report::{Axis, Figure, Point, Report, short};
use crate::session::RINGWAY;
use crate::stats::Summary;
use crate::table::Table;
use crate::trial::ANCHOR;

/// Returns the document of `runs`, in their order. `plots` is the folder with the plots, as the document should link it.
#[must_use]
pub fn document(runs: &[Report], plots: Option<&Path>) -> String {
    let mut text = String::from(
        "# Benchmarks\n\n\
         Made by `ringway bench --report`. A cell has the median of n windows and, in brackets, the quartiles. *Near* and *far*: how \
         long a cache line takes between the two cores, below 110 ns and above 150 ns. Rows of ratios are medians of the ratios of \
         windows of the same round. The anchor is a bare ring between the same two cores that hands over one copied frame.\n",
    );
    for run in runs {
        let mut experiment = "";
        for (index, figure) in run.figures.iter().enumerate() {
            let name = experiment_of(&figure.command);
            if name != experiment {
                experiment = name;
                let _ = write!(text, "\n## {name}\n\n{}\n", origin(run, figure));
            }
            let is_only = run.figures.iter().filter(|other| experiment_of(&other.command) == name).count() == 1;
            let _ = write!(text, "\n{}\n", section(figure, is_only, plots));
            let is_last = run.figures.get(index + 1).is_none_or(|next| experiment_of(&next.command) != name);
            if is_last {
                text.push_str(&missing(run, name));
            }
        }
    }
    text
}

/// The experiment that `ringway bench NAME ...` runs.
fn experiment_of(command: &str) -> &str {
    command.strip_prefix("ringway bench ").unwrap_or(command).split(' ').next().unwrap_or(command)
}

/// The command, the build and the machine.
fn origin(run: &Report, figure: &Figure) -> String {
    let machine = &run.machine;
    let date = machine.date.split('T').next().unwrap_or(&machine.date);
    let commit = machine.commit.as_deref().unwrap_or("unknown");
    let quick = if run.quick { " **A quick run: it shows that everything works, not how fast it is.**" } else { "" };
    format!(
        "Command: `{}`; commit {commit}, {date}; {}, {} processors, Linux {}.{quick}",
        figure.command, machine.cpu, machine.processors, machine.kernel
    )
}

/// A figure's title, table and notes.
fn section(figure: &Figure, is_only: bool, plots: Option<&Path>) -> String {
    let heading = &figure.heading;
    let mark = if is_only { "" } else { "### " };
    let mut text = format!("{mark}{} ({})", heading.title, heading.source);
    if let Some(plots) = plots {
        let _ = write!(text, " ([plot]({}))", plots.join(format!("{}.svg", heading.name)).display());
    }
    let _ = write!(text, "\n\n{}", table(figure).markdown());
    for note in &figure.notes {
        let _ = write!(text, "\nNote: {note}.\n");
    }
    if figure.discarded > 0 {
        let _ =
            write!(text, "\n{} windows discarded: the cores moved, or something else ran on them.\n", figure.discarded);
    }
    text
}

/// Peers that an experiment could not measure, each once.
fn missing(run: &Report, experiment: &str) -> String {
    let figures = run.figures.iter().filter(|figure| experiment_of(&figure.command) == experiment);
    let mut lines: Vec<String> = Vec::new();
    for peer in figures.flat_map(|figure| &figure.unavailable) {
        let line = format!("\nPeer {} is not available: {}.\n", peer.peer, peer.reason);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.concat()
}

/// Curves by places, with the rows of ratios at the end.
fn table(figure: &Figure) -> Table {
    let mut places: Vec<f64> = figure.points.iter().map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let Axis { label, unit, .. } = figure.heading.y;
    let mut headings = vec![format!("{label}, {unit}"), "cores".into(), "n".into()];
    let x = figure.heading.x;
    headings.extend(places.iter().enumerate().map(|(index, place)| match (index, x.unit) {
        (0, unit) if !unit.is_empty() => format!("{} {place} {unit}", x.label),
        (0, _) => format!("{} {place}", x.label),
        _ => format!("{place}"),
    }));
    let mut table = Table::new(headings, 2);
    let mut row = |name: &str, class: Class, summary: &dyn Fn(&Point) -> Option<Summary>, owner: &str| {
        let at = |place: &f64| {
            let is_it = |point: &&Point| point.series == owner && point.class == class && point.x == *place;
            figure.points.iter().find(is_it).and_then(summary)
        };
        let cells: Vec<Option<Summary>> = places.iter().map(at).collect();
        let windows = || cells.iter().flatten().map(|summary| summary.windows);
        if let (Some(fewest), Some(most)) = (windows().min(), windows().max()) {
            let n = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
            let cores = if class == Class::Any { "" } else { class.name() };
            let cells = cells.into_iter().map(|cell| cell.map_or(String::new(), cell_of));
            table.row([name.to_owned(), cores.to_owned(), n].into_iter().chain(cells).collect());
        }
    };
    let classes = [Class::Near, Class::Far, Class::Any];
    let series = figure.series();
    for series in &series {
        classes.into_iter().for_each(|class| row(series, class, &|point| Some(point.value), series));
    }
    for other in series.iter().filter(|other| **other != RINGWAY) {
        let name = format!("ringway / {other}");
        classes.into_iter().for_each(|class| row(&name, class, &|point| point.ratios.get(*other).copied(), RINGWAY));
    }
    for series in series.iter().filter(|series| **series != ANCHOR) {
        let name = format!("{series}, in round trips of a line");
        classes.into_iter().for_each(|class| row(&name, class, &|point| point.line_round_trips, series));
    }
    table
}

/// The median and, of more than one window, the quartiles.
fn cell_of(summary: Summary) -> String {
    let Summary { windows, median, lower_quartile, upper_quartile, .. } = summary;
    match windows {
        1 => short(median),
        _ => format!("{} ({} to {})", short(median), short(lower_quartile), short(upper_quartile)),
    }
}
