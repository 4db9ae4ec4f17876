//! The contents of the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use ringway_commands::out::Scaled;

use super::order::{Column, Order};
use super::rates::{Bucket, Poller, Port, Rates};

/// Most lines of pollers, and of buckets.
const LINES_MAX: usize = 8;
const BAR: usize = 24;

/// Everything that the screen shows.
#[derive(Debug)]
pub struct View {
    pub rates: Rates,
    pub order: Order,
    pub rows: TableState,
    pub is_still: bool,
    pub interval: String,
    /// Why the last reading failed.
    pub trouble: Option<String>,
}

/// The first line.
pub fn summary(rates: &Rates) -> String {
    let sum = |value: fn(&Port) -> f64| Scaled(rates.ports.iter().map(value).fold(0.0, |sum, rate| sum + rate));
    format!(
        "ringway {}, up {}; {} ports; in {}pps, {}bit/s; out {}pps, {}bit/s; dropped {}/s",
        rates.version,
        ringway_commands::out::time(rates.uptime),
        rates.ports.len(),
        sum(|port| port.input.frames),
        sum(|port| port.input.bits),
        sum(|port| port.output.frames),
        sum(|port| port.output.bits),
        sum(Port::dropped).to_string().trim_end(),
    )
}

/// A poller's line.
pub fn poller(poller: &Poller) -> String {
    format!(
        "poller {} {:<9} {} {:>5.1} % busy; {}passes/s, {}sleeps/s",
        poller.poller,
        poller.core.map_or_else(String::new, |core| format!("(CPU {core})")),
        bar(poller.busy),
        poller.busy * 100.0,
        Scaled(poller.passes),
        Scaled(poller.sleeps),
    )
}

/// A shared bucket's line.
pub fn bucket(bucket: &Bucket) -> String {
    let Bucket { name, rate, ports, fill, passed, refused } = bucket;
    let (bar, full, passed, refused) = (bar(*fill), fill * 100.0, Scaled(passed.bits), Scaled(*refused));
    format!("bucket {name:<9} {bar} {full:>5.1} % full; {rate} for {ports} ports; {passed}bit/s, {refused}pps refused")
}

/// A share from 0 to 1.
fn bar(share: f64) -> String {
    let filled = ((share * BAR as f64).round() as usize).min(BAR);
    format!("[{}{}]", "#".repeat(filled), " ".repeat(BAR - filled))
}

/// Returns a line for each, as far as there is room, and the number of those without a line.
fn lines<T>(all: &[T], line: impl Fn(&T) -> String, what: &str) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'_>> = all.iter().take(LINES_MAX).map(|one| Line::raw(line(one))).collect();
    if all.len() > LINES_MAX {
        lines.push(Line::raw(format!("and {} {what} more", all.len() - LINES_MAX)));
    }
    lines
}

impl View {
    /// Draws it.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let mut head = vec![Line::raw(summary(&self.rates))];
        head.extend(lines(&self.rates.pollers, poller, "pollers"));
        head.extend(lines(&self.rates.buckets, bucket, "buckets"));
        let height = u16::try_from(head.len()).unwrap_or(u16::MAX);
        let areas = Layout::vertical([Constraint::Length(height), Constraint::Min(0), Constraint::Length(1)]);
        let [top, middle, bottom] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(head), top);
        frame.render_stateful_widget(table(&self.rates.ports, self.order), middle, &mut self.rows);
        frame.render_widget(Paragraph::new(self.foot()), bottom);
    }

    fn foot(&self) -> Line<'static> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        if let Some(trouble) = &self.trouble {
            return Line::styled(trouble.clone(), bold.add_modifier(Modifier::REVERSED));
        }
        let still = if self.is_still { "standing still; " } else { "" };
        let keys = "left/right: sort  r: reverse  up/down: choose  space: stand still  +/-: interval  q: quit";
        Line::styled(format!("{still}every {}  {keys}", self.interval), bold)
    }
}

fn table(ports: &[Port], order: Order) -> Table<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let heading = |column: Column| {
        let right = !column.is_text();
        let sorted = column == order.column;
        let arrow = match (sorted, order.reversed != column.is_text()) {
            (false, _) => "",
            (true, false) => "v",
            (true, true) => "^",
        };
        let style = if sorted { bold.add_modifier(Modifier::REVERSED) } else { bold };
        let line = Line::raw(format!("{}{arrow}", column.heading()));
        Cell::new(if right { line.right_aligned() } else { line }).style(style)
    };
    let line = |port: &Port| {
        Row::new(Column::ALL.map(|column| {
            let line = Line::raw(column.cell(port));
            Cell::new(if column.is_text() { line } else { line.right_aligned() })
        }))
    };
    let longest = |value: fn(&Port) -> usize, heading: usize| {
        let longest = ports.iter().map(value).max().unwrap_or(0).max(heading + 1);
        Constraint::Length(u16::try_from(longest).unwrap_or(u16::MAX))
    };
    let widths = Column::ALL.map(|column| match column {
        Column::Name => longest(|port| port.name.len(), 4),
        Column::Switch => longest(|port| port.switch.len(), 6),
        Column::State => Constraint::Length(9),
        Column::Fill => longest(|port| port.fill.text().len(), 7),
        Column::Reasons => Constraint::Min(10),
        column => Constraint::Length(u16::try_from(column.heading().len() + 1).unwrap_or(u16::MAX).max(8)),
    });
    Table::new(ports.iter().map(line), widths)
        .header(Row::new(Column::ALL.map(heading)))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}
