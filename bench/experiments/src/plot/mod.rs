//! One SVG per figure: medians as lines, or as bars where the x axis has one or two places, with the quartiles as thin lines. Near cores are
//! drawn solid and far ones hollow. The legend stands beside the chart, so that it covers no curve.

mod colours;
mod scale;

use std::io;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::number::whole;
use crate::placement::Class;
use crate::report::{Axis, Figure, Point, RATE};
use crate::series::ANCHOR;
use scale::Scale;

/// Width and height of the chart, in pixels.
const CHART: (u32, u32) = (900, 560);
/// Space between a plot's edge and what is in it.
const MARGIN: u32 = 16;
/// Height of the title's text.
const TITLE_FONT: u32 = 18;
/// Length of the piece of a curve in the legend.
const LEGEND_LINE: i32 = 24;
/// Height of the legend's text.
const LEGEND_FONT: i32 = 13;
/// Height of one line of the legend.
const LEGEND_STEP: i32 = 18;
/// Most places on the x axis that are drawn as groups of bars.
const MOST_GROUPS: usize = 2;
/// Least ratio of values for a logarithmic axis. Bars show their ratio by their length, as long as the axis begins at 0.
const CURVES_RATIO: f64 = 4.0;
const BARS_RATIO: f64 = 50.0;
/// Part of a group's room that its bars take.
const BARS: f64 = 0.8;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes `DIR/NAME.svg`.
///
/// # Errors
/// The file cannot be written.
pub fn write(figure: &Figure, dir: &Path) -> io::Result<()> {
    let path = dir.join(format!("{}.svg", figure.heading.name));
    let describe = |error: String| io::Error::other(format!("cannot plot {}: {error}", path.display()));
    let mut svg = String::new();
    {
        let curves = curves(figure);
        let title = title(figure);
        let width = (CHART.0 + legend_width(&curves)).max(title_width(&title));
        let size = (width, CHART.1.max(legend_height(&curves)));
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(|error| describe(error.to_string()))?;
        let below = area.titled(&title, ("sans-serif", TITLE_FONT)).map_err(|error| describe(error.to_string()))?;
        let (chart, legend) = below.split_horizontally(CHART.0);
        draw(figure, &curves, &chart).map_err(describe)?;
        draw_legend(&curves, &legend).map_err(describe)?;
        area.present().map_err(|error| describe(error.to_string()))?;
    }
    std::fs::write(&path, svg).map_err(|error| describe(error.to_string()))
}

/// One line of a plot: a series at one distance of the cores.
struct Curve<'f> {
    label: String,
    colour: RGBColor,
    class: Class,
    /// In the order of their places.
    points: Vec<&'f Point>,
}

impl Curve<'_> {
    fn marker(&self) -> ShapeStyle {
        if self.class == Class::Far { self.colour.stroke_width(2) } else { self.colour.filled() }
    }

    fn line(&self) -> ShapeStyle {
        self.colour.mix(if self.class == Class::Far { 0.45 } else { 1.0 }).stroke_width(2)
    }
}

fn curves(figure: &Figure) -> Vec<Curve<'_>> {
    let one_class = only_class(figure).is_some();
    let mut curves = Vec::new();
    for series in figure.series().into_iter().filter(|series| is_drawn(figure, series)) {
        for class in [Class::Near, Class::Far, Class::Any] {
            let of = |point: &&Point| point.series == series && point.class == class;
            let mut points: Vec<&Point> = figure.points.iter().filter(of).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            if !points.is_empty() {
                let is_told = class != Class::Any && !one_class;
                let label = if is_told { format!("{series}, {}", class.name()) } else { series.to_owned() };
                curves.push(Curve { label, colour: colours::of(series), class, points });
            }
        }
    }
    curves
}

/// The distance of the cores in all windows, if it was the same.
fn only_class(figure: &Figure) -> Option<Class> {
    let first = figure.points.first()?.class;
    figure.points.iter().all(|point| point.class == first).then_some(first)
}

/// The figure's title; it names the distance of the cores, if that was the same in all windows.
fn title(figure: &Figure) -> String {
    let title = &figure.heading.title;
    match only_class(figure) {
        Some(class) if class != Class::Any => format!("{title} ({} cores)", class.name()),
        _ => title.clone(),
    }
}

/// Returns the width of a title, so that it is not cut.
fn title_width(title: &str) -> u32 {
    2 * MARGIN + title.chars().count() as u32 * TITLE_FONT / 2
}

fn legend_width(curves: &[Curve]) -> u32 {
    let longest = curves.iter().map(|curve| curve.label.chars().count() as u32).max().unwrap_or(0);
    // No letter of this size is wider on average, whatever font a viewer has.
    LEGEND_LINE as u32 + 8 + longest * 7 + MARGIN
}

fn legend_height(curves: &[Curve]) -> u32 {
    4 * MARGIN + curves.len() as u32 * LEGEND_STEP as u32
}

fn draw_legend(curves: &[Curve], area: &Area) -> Result<(), String> {
    let failed = |error: DrawingAreaErrorKind<_>| error.to_string();
    for (index, curve) in curves.iter().enumerate() {
        let y = MARGIN as i32 + LEGEND_STEP * index as i32 + LEGEND_STEP / 2;
        area.draw(&PathElement::new([(0, y), (LEGEND_LINE, y)], curve.line())).map_err(failed)?;
        area.draw(&Circle::new((LEGEND_LINE / 2, y), 4, curve.marker())).map_err(failed)?;
        let place = (LEGEND_LINE + 8, y - LEGEND_FONT / 2);
        area.draw(&Text::new(curve.label.clone(), place, ("sans-serif", LEGEND_FONT))).map_err(failed)?;
    }
    Ok(())
}

fn draw(figure: &Figure, curves: &[Curve], area: &Area) -> Result<(), String> {
    let drawn = || curves.iter().flat_map(|curve| &curve.points);
    let ys = drawn().flat_map(|point| [point.value.lower_quartile, point.value.upper_quartile]);
    let mut places: Vec<f64> = drawn().map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let (Some(&first), Some(&last), Some(y)) = (places.first(), places.last(), range(ys)) else { return Ok(()) };
    let axis = figure.heading.x;
    let are_groups = places.len() <= MOST_GROUPS;
    let x = match axis {
        _ if are_groups => Scale::groups(places.len()),
        Axis { label: "percentile", .. } => Scale::percentiles(&places),
        Axis { logarithmic: true, .. } if first > 0.0 => Scale::logarithmic((first, last), &places),
        _ => {
            let margin = (last - first) * 0.04;
            Scale::linear(first - margin, last + margin)
        }
    };
    let y = of_values(figure.heading.y, y, if are_groups { BARS_RATIO } else { CURVES_RATIO });
    on_axes(figure, curves, area, (x, y), are_groups.then_some(&places[..]))
}

/// The y axis. A logarithmic one begins where the values do, others begin at 0. Errors are on both sides of nothing.
fn of_values(axis: Axis, (low, high): (f64, f64), least_ratio: f64) -> Scale {
    if axis.logarithmic && low > 0.0 && high / low >= least_ratio {
        Scale::logarithmic((low, high), &[])
    } else {
        let high = if high > low.min(0.0) { high } else { low.min(0.0) + 1.0 };
        Scale::linear(low.min(0.0) * 1.1, high.max(low.abs() / 100.0) * 1.1)
    }
}

/// The bare ring's rate has no place among other things than rates.
fn is_drawn(figure: &Figure, series: &str) -> bool {
    series != ANCHOR || figure.heading.y.unit == RATE.unit
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// Draws the curves: as bars if the places of the x axis are `groups`.
fn on_axes(
    figure: &Figure,
    curves: &[Curve],
    area: &Area,
    (x, y): (Scale, Scale),
    groups: Option<&[f64]>,
) -> Result<(), String> {
    let failed = |error: DrawingAreaErrorKind<_>| error.to_string();
    let floor = y.floor();
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)
        .map_err(failed)?;
    let group = |place: f64| groups.and_then(|groups| groups.get(place as usize)).copied().unwrap_or(place);
    chart
        .configure_mesh()
        .x_desc(name(figure.heading.x))
        .y_desc(name(figure.heading.y))
        .x_label_formatter(&|value| tick(group(*value)))
        .y_label_formatter(&|value| tick(*value))
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .light_line_style(TRANSPARENT)
        .draw()
        .map_err(failed)?;
    for (number, curve) in curves.iter().enumerate() {
        // The middle of this curve's bar in its group.
        let width = BARS / curves.len() as f64;
        let shift = (number as f64 + 0.5) * width - BARS / 2.0;
        let place = |x: f64| match groups {
            Some(groups) => groups.iter().position(|group| *group == x).unwrap_or(0) as f64 + shift,
            None => x,
        };
        let medians = curve.points.iter().map(|point| (place(point.x), point.value.median));
        if groups.is_some() {
            let bar = |(x, value)| {
                Rectangle::new([(x - width * 0.45, floor), (x + width * 0.45, value)], curve.line().filled())
            };
            chart.draw_series(medians.map(bar)).map_err(failed)?;
        } else {
            chart.draw_series(LineSeries::new(medians.clone(), curve.line())).map_err(failed)?;
            chart.draw_series(medians.map(|place| Circle::new(place, 4, curve.marker()))).map_err(failed)?;
        }
        let colour = if groups.is_some() { BLACK } else { curve.colour };
        let quartiles = curve.points.iter().map(|point| {
            let (low, high) = (point.value.lower_quartile, point.value.upper_quartile);
            PathElement::new([(place(point.x), low), (place(point.x), high)], colour.stroke_width(1))
        });
        chart.draw_series(quartiles).map_err(failed)?;
    }
    Ok(())
}

fn name(axis: Axis) -> String {
    if axis.unit.is_empty() || axis.label.ends_with(axis.unit) {
        axis.label.to_owned()
    } else {
        format!("{} ({})", axis.label, axis.unit)
    }
}

/// A number as short as it can be.
fn tick(value: f64) -> String {
    if value.abs() >= 1000.0 { whole(value) } else { format!("{}", (value * 1000.0).round() / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Heading, RATE};
    use crate::trial::{Outcome, Sample};

    fn figure(values: impl Fn(f64) -> f64) -> Figure {
        let x = Axis { label: "destinations", unit: "ports", logarithmic: true };
        let heading = Heading { name: "plotted".into(), title: "A <title> & more".into(), source: "none", x, y: RATE };
        let mut samples = Vec::new();
        for (series, factor) in [("anchor", 100.0), ("ringway", 40.0), ("linux-bridge", 0.8)] {
            for x in [1.0, 2.0, 4.0, 8.0] {
                for (class, slow) in [(Class::Near, 1.0), (Class::Far, 0.4)] {
                    for (round, noise) in [0.9, 1.0, 1.1].into_iter().enumerate() {
                        let value = values(factor * slow * noise / x);
                        samples.push(Sample { series: series.into(), x, round, class, crossing_ns: [1.0; 2], value });
                    }
                }
            }
        }
        Figure::new(heading, String::new(), Outcome { samples, ..Outcome::default() }, Vec::new())
    }

    #[test]
    fn a_plot_names_its_axes_with_units_and_its_curves_with_their_class() {
        let dir = std::env::temp_dir().join(format!("ringway-plot-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        write(&figure(|value| value), &dir).unwrap();
        let svg = std::fs::read_to_string(dir.join("plotted.svg")).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        for text in ["destinations (ports)", "rate (Mframe/s)", "ringway, near", "ringway, far", "&lt;title&gt;"] {
            assert!(svg.contains(text), "{text} is missing");
        }
    }

    #[test]
    fn the_legend_stands_beside_the_chart() {
        let figure = figure(|value| value);
        let dir = std::env::temp_dir().join(format!("ringway-legend-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        write(&figure, &dir).unwrap();
        let svg = std::fs::read_to_string(dir.join("plotted.svg")).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let lines: Vec<&str> = svg.lines().collect();
        let place_of = |index: usize| -> u32 {
            let x = lines[index].split_once(" x=\"").unwrap().1;
            x.split_once('"').unwrap().0.parse().unwrap()
        };
        let labels: Vec<usize> = (1..lines.len())
            .filter(|&index| lines[index].ends_with(", near") || lines[index].ends_with(", far"))
            .collect();
        assert_eq!(labels.len(), 6, "{svg}");
        for label in labels {
            assert!(place_of(label - 1) >= CHART.0, "{} covers the chart", lines[label]);
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let error = write(&figure(|value| value), Path::new("/no/such/folder")).unwrap_err().to_string();
        assert!(error.contains("/no/such/folder/plotted.svg"), "{error}");
    }

    #[test]
    fn a_figure_of_zeros_or_of_nothing_is_still_drawn() {
        let dir = std::env::temp_dir();
        let name = |figure: &mut Figure| figure.heading.name = format!("ringway-empty-{}", std::process::id());
        let mut zeros = figure(|_| 0.0);
        name(&mut zeros);
        write(&zeros, &dir).unwrap();
        zeros.points.clear();
        write(&zeros, &dir).unwrap();
        std::fs::remove_file(dir.join(format!("{}.svg", zeros.heading.name))).unwrap();
    }
}
