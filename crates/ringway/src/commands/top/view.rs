//! What the screen shows.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::cell;
use super::order::{Column, Order};
use super::rates::{Poller, Port, Rates};
use crate::out::Scaled;

/// Most pollers that have a line each; the others are behind them.
const POLLERS_MAX: usize = 8;
const BAR: usize = 24;

/// Everything there is to show.
#[derive(Debug)]
pub struct View {
    pub rates: Rates,
    pub order: Order,
    pub rows: TableState,
    pub is_still: bool,
    pub interval: String,
    /// Why there is nothing newer.
    pub trouble: Option<String>,
}

/// The first line.
pub fn summary(rates: &Rates) -> String {
    let sum = |value: fn(&Port) -> f64| Scaled(rates.ports.iter().map(value).sum());
    format!(
        "ringway {}, up {}; {} ports; in {}pps, {}bit/s; out {}pps, {}bit/s; dropped {}/s",
        rates.version,
        crate::out::time(rates.uptime),
        rates.ports.len(),
        sum(|port| port.input.frames),
        sum(|port| port.input.bits),
        sum(|port| port.output.frames),
        sum(|port| port.output.bits),
        sum(|port| port.drops.values().sum()).to_string().trim_end(),
    )
}

/// A poller's line.
pub fn poller(poller: &Poller) -> String {
    let filled = (poller.busy * BAR as f64).round() as usize;
    format!(
        "poller {} {:<9} [{}{}] {:>5.1} % busy; {}passes/s, {}sleeps/s",
        poller.poller,
        poller.core.map_or_else(String::new, |core| format!("(CPU {core})")),
        "#".repeat(filled),
        " ".repeat(BAR - filled.min(BAR)),
        poller.busy * 100.0,
        Scaled(poller.passes),
        Scaled(poller.sleeps),
    )
}

impl View {
    /// Draws it.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let mut head = vec![Line::raw(summary(&self.rates))];
        let shown = self.rates.pollers.iter().take(POLLERS_MAX);
        head.extend(shown.map(|one| Line::raw(poller(one))));
        if self.rates.pollers.len() > POLLERS_MAX {
            head.push(Line::raw(format!("and {} pollers more", self.rates.pollers.len() - POLLERS_MAX)));
        }
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
            let line = Line::raw(cell(port, column));
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
        Column::Reasons => Constraint::Min(10),
        column => Constraint::Length(u16::try_from(column.heading().len() + 1).unwrap_or(u16::MAX).max(8)),
    });
    Table::new(ports.iter().map(line), widths)
        .header(Row::new(Column::ALL.map(heading)))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}
