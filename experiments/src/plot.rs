//! One SVG per figure: medians as lines, quartiles as bars, near cores drawn solid and far ones hollow.

use std::io;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::placement::Class;
use crate::report::{Axis, Figure, Point, RATE};
use crate::trial::ANCHOR;

const SIZE: (u32, u32) = (900, 560);
const COLOURS: [RGBColor; 8] = [
    RGBColor(90, 90, 90),
    RGBColor(0, 90, 180),
    RGBColor(210, 90, 0),
    RGBColor(0, 130, 80),
    RGBColor(150, 60, 160),
    RGBColor(190, 30, 60),
    RGBColor(120, 100, 0),
    RGBColor(0, 140, 160),
];

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
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|error| describe(error.to_string()))?;
        draw(figure, &area).map_err(describe)?;
        area.present().map_err(|error| describe(error.to_string()))?;
    }
    std::fs::write(&path, svg).map_err(|error| describe(error.to_string()))
}

fn draw(figure: &Figure, area: &Area) -> Result<(), String> {
    let drawn = || figure.points.iter().filter(|point| is_drawn(figure, &point.series));
    let xs = drawn().map(|point| point.x);
    let ys = drawn().flat_map(|point| [point.value.lower_quartile, point.value.upper_quartile]);
    let (Some(x), Some(y)) = (range(xs), range(ys)) else { return Ok(()) };
    match (figure.heading.x.logarithmic && x.0 > 0.0, figure.heading.y.logarithmic && y.0 > 0.0) {
        (true, true) => {
            on_axes(figure, area, (x.0 / 1.2..x.1 * 1.2).log_scale().base(2.0), (y.0 / 1.5..y.1 * 2.0).log_scale())
        }
        (false, true) => on_axes(figure, area, widened(x), (y.0 / 1.5..y.1 * 2.0).log_scale()),
        (true, false) => on_axes(figure, area, (x.0 / 1.2..x.1 * 1.2).log_scale().base(2.0), from_zero(y)),
        (false, false) => on_axes(figure, area, widened(x), from_zero(y)),
    }
}

/// The bare ring's rate has no place among other things than rates.
fn is_drawn(figure: &Figure, series: &str) -> bool {
    series != ANCHOR || figure.heading.y.unit == RATE.unit
}

/// Errors are on both sides of nothing.
fn from_zero((low, high): (f64, f64)) -> std::ops::Range<f64> {
    low.min(0.0) * 1.1..high.max(low.abs() / 100.0) * 1.1
}

fn widened((low, high): (f64, f64)) -> std::ops::Range<f64> {
    let margin = if high > low { (high - low) * 0.04 } else { 1.0 };
    low - margin..high + margin
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

fn on_axes<X, Y>(
    figure: &Figure,
    area: &Area,
    x: impl AsRangedCoord<CoordDescType = X, Value = f64>,
    y: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
) -> Result<(), String>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let failed = |error: DrawingAreaErrorKind<_>| error.to_string();
    let mut chart = ChartBuilder::on(area)
        .caption(&figure.heading.title, ("sans-serif", 18))
        .margin(16)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .x_desc(name(figure.heading.x))
        .y_desc(name(figure.heading.y))
        .x_label_formatter(&|value| tick(*value))
        .y_label_formatter(&|value| tick(*value))
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .light_line_style(RGBColor(240, 240, 240))
        .draw()
        .map_err(failed)?;
    let series = figure.series().into_iter().filter(|series| is_drawn(figure, series));
    for (index, series) in series.enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        for class in [Class::Near, Class::Far, Class::Any] {
            let of = |point: &&Point| point.series == series && point.class == class;
            let mut points: Vec<&Point> = figure.points.iter().filter(of).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            if points.is_empty() {
                continue;
            }
            let marker = if class != Class::Far { colour.filled() } else { colour.stroke_width(2) };
            let line = colour.mix(if class != Class::Far { 1.0 } else { 0.45 }).stroke_width(2);
            chart
                .draw_series(LineSeries::new(points.iter().map(|point| (point.x, point.value.median)), line))
                .map_err(failed)?
                .label(format!("{series}, {}", class.name()))
                .legend(move |(x, y)| {
                    EmptyElement::at((x, y))
                        + PathElement::new([(0, 0), (24, 0)], line)
                        + Circle::new((12, 0), 4, marker)
                });
            chart
                .draw_series(points.iter().map(|point| {
                    let (low, high) = (point.value.lower_quartile, point.value.upper_quartile);
                    PathElement::new([(point.x, low), (point.x, high)], colour.stroke_width(1))
                }))
                .map_err(failed)?;
            chart
                .draw_series(points.iter().map(|point| Circle::new((point.x, point.value.median), 4, marker)))
                .map_err(failed)?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .legend_area_size(30)
        .label_font(("sans-serif", 13))
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .draw()
        .map_err(failed)
}

fn name(axis: Axis) -> String {
    format!("{} ({})", axis.label, axis.unit)
}

/// A number as short as it can be.
fn tick(value: f64) -> String {
    if value.abs() >= 10.0 { format!("{value:.0}") } else { format!("{}", (value * 1000.0).round() / 1000.0) }
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
