//! The tables of an experiment: one for each x axis, with rows for the curves and the ratios of each figure.

use crate::number::{short, whole};
use crate::placement::Class;
use crate::report::{Axis, Figure, Point};
use crate::series::{ANCHOR, RINGWAY};
use crate::stats::Summary;
use crate::table::Table;

const CLASSES: [Class; 3] = [Class::Near, Class::Far, Class::Any];

/// Returns the tables of an experiment's figures. Figures with the same x axis share a table.
pub(super) fn of(figures: &[&Figure]) -> Vec<Table> {
    let is_same = |a: &Axis, b: &Axis| (a.label, a.unit) == (b.label, b.unit);
    let mut groups: Vec<Vec<&Figure>> = Vec::new();
    for figure in figures {
        match groups.iter_mut().find(|group| is_same(&group[0].heading.x, &figure.heading.x)) {
            Some(group) => group.push(figure),
            None => groups.push(vec![figure]),
        }
    }
    groups.iter().map(|group| table(group)).collect()
}

/// Returns one table. With several figures, a row with a figure's title precedes its rows.
fn table(figures: &[&Figure]) -> Table {
    let mut places: Vec<f64> = figures.iter().flat_map(|figure| &figure.points).map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let is_one_quantity = figures.iter().all(|figure| quantity(figure) == quantity(figures[0]));
    let first = if is_one_quantity { quantity(figures[0]) } else { "quantity".to_owned() };
    let mut headings = vec![first, "cores".into(), "n".into()];
    let Axis { label, unit, .. } = figures[0].heading.x;
    // "idle ports 64" needs no unit.
    let unit = if label.ends_with(unit) { String::new() } else { format!(", {unit}") };
    headings.extend(places.iter().enumerate().map(|(index, place)| match index {
        0 => format!("{label}{unit}: {}", whole(*place)),
        _ => whole(*place),
    }));
    let mut table = Table::new(headings, 2);
    for figure in figures {
        if figures.len() > 1 {
            let quantity = if is_one_quantity { String::new() } else { format!(" ({})", quantity(figure)) };
            table.row(vec![format!("**{}**{quantity}", figure.heading.title)]);
        }
        rows(figure, &places, &mut table);
    }
    table
}

fn quantity(figure: &Figure) -> String {
    let Axis { label, unit, .. } = figure.heading.y;
    if unit.is_empty() { label.to_owned() } else { format!("{label}, {unit}") }
}

/// Adds the rows of a figure: curves, then ratios, then times in round trips of a line.
fn rows(figure: &Figure, places: &[f64], table: &mut Table) {
    let series = figure.series();
    let axis = figure.heading.y;
    for curve in &series {
        add(figure, places, table, (curve, curve), &|point| Some(point.value), &|value| axis.number(value));
    }
    for other in series.iter().filter(|other| **other != RINGWAY) {
        let name = format!("ringway / {other}");
        let ratio = |point: &Point| point.ratios.get(*other).copied();
        add(figure, places, table, (&name, RINGWAY), &ratio, &short);
    }
    for curve in series.iter().filter(|curve| **curve != ANCHOR) {
        let name = format!("{curve}, in round trips of a line");
        add(figure, places, table, (&name, curve), &|point| point.line_round_trips, &short);
    }
}

/// Adds one row for each distance at which `curve` has a `value`.
fn add(
    figure: &Figure,
    places: &[f64],
    table: &mut Table,
    (name, curve): (&str, &str),
    value: &dyn Fn(&Point) -> Option<Summary>,
    number: &dyn Fn(f64) -> String,
) {
    for class in CLASSES {
        let at = |place: &f64| {
            let is_it = |point: &&Point| point.series == curve && point.class == class && point.x == *place;
            figure.points.iter().find(is_it).and_then(value)
        };
        let cells: Vec<Option<Summary>> = places.iter().map(at).collect();
        let windows = || cells.iter().flatten().map(|summary| summary.windows);
        if let (Some(fewest), Some(most)) = (windows().min(), windows().max()) {
            let n = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
            let cores = if class == Class::Any { "" } else { class.name() };
            let cells = cells.iter().map(|cell| cell.map_or(String::new(), |summary| cell_of(summary, number)));
            table.row([name.to_owned(), cores.to_owned(), n].into_iter().chain(cells).collect());
        }
    }
}

/// Returns the median and, of more than one window, the quartiles.
fn cell_of(summary: Summary, number: &dyn Fn(f64) -> String) -> String {
    let Summary { windows, median, lower_quartile, upper_quartile, .. } = summary;
    match windows {
        1 => number(median),
        _ => format!("{} ({} to {})", number(median), number(lower_quartile), number(upper_quartile)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Heading, RATE, TIME};
    use crate::trial::{Outcome, Sample};

    fn figure(title: &str, x: Axis, y: Axis, values: &[(&str, Class, f64, f64)]) -> Figure {
        let heading = Heading { name: "name".into(), title: title.into(), source: "none", x, y };
        let samples = values.iter().enumerate().map(|(round, &(series, class, x, value))| {
            let (series, crossing_ns) = (series.to_owned(), [25.0; 2]);
            Sample { series, x, round: round / 2, class, crossing_ns, value }
        });
        let outcome = Outcome { samples: samples.collect(), ..Outcome::default() };
        Figure::new(heading, "ringway bench test".into(), outcome, Vec::new())
    }

    const SIZE: Axis = Axis { label: "frame size", unit: "bytes", logarithmic: false };
    const PORTS: Axis = Axis { label: "idle ports", unit: "ports", logarithmic: false };

    #[test]
    fn rows_are_contestants_by_distance_and_then_the_ratios_of_the_same_round() {
        use Class::{Far, Near};
        let values = [
            (RINGWAY, Near, 60.0, 10.0),
            ("vde", Near, 60.0, 5.0),
            (RINGWAY, Near, 60.0, 30.0),
            ("vde", Near, 60.0, 10.0),
            (RINGWAY, Far, 1514.0, 1000.0),
        ];
        let tables = of(&[&figure("A title", SIZE, RATE, &values)]);
        assert_eq!(
            tables[0].markdown(),
            "| rate, Mframe/s | cores | n | frame size, bytes: 60 | 1,514 |\n|---|---|---:|---:|---:|\n\
             | ringway | near | 2 | 20.0 (10.0 to 30.0) |  |\n\
             | ringway | far | 1 |  | 1,000 |\n\
             | vde | near | 2 | 7.50 (5.00 to 10.0) |  |\n\
             | ringway / vde | near | 2 | 2.50 (2.00 to 3.00) |  |\n"
        );
        assert_eq!(tables.len(), 1);
    }

    #[test]
    fn figures_share_a_table_if_they_have_the_same_axis() {
        let value = |x| [(RINGWAY, Class::Any, x, 100.0)];
        let rates = figure("Rates", SIZE, RATE, &value(60.0));
        let times = figure("Times", SIZE, Axis { label: "time", ..TIME }, &value(1514.0));
        let ports = figure("Ports", PORTS, RATE, &value(1.0));
        let texts: Vec<String> = of(&[&rates, &ports, &times]).iter().map(Table::markdown).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].starts_with("| quantity | cores | n | frame size, bytes: 60 | 1,514 |\n"), "{}", texts[0]);
        assert!(texts[0].contains("| **Rates** (rate, Mframe/s) |"), "{}", texts[0]);
        assert!(texts[0].contains("| **Times** (time, ns) |"), "{}", texts[0]);
        assert!(texts[1].starts_with("| rate, Mframe/s | cores | n | idle ports: 1 |\n"), "{}", texts[1]);
    }
}
