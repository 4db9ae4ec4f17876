//! The columns, and the order of the rows.

use std::cmp::Ordering;

use clap::ValueEnum;
use ringway_commands::out::Scaled;

use super::rates::Port;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    Name,
    Switch,
    State,
    In,
    InBits,
    Out,
    OutBits,
    Kicks,
    Calls,
    Drops,
    Fill,
    #[value(skip)]
    Reasons,
}

impl Column {
    /// All of them, from left to right.
    pub const ALL: [Column; 12] = [
        Self::Name,
        Self::Switch,
        Self::State,
        Self::In,
        Self::InBits,
        Self::Out,
        Self::OutBits,
        Self::Kicks,
        Self::Calls,
        Self::Drops,
        Self::Fill,
        Self::Reasons,
    ];

    /// Its heading.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Name => "PORT",
            Self::Switch => "SWITCH",
            Self::State => "STATE",
            Self::In => "IN pps",
            Self::InBits => "IN bit/s",
            Self::Out => "OUT pps",
            Self::OutBits => "OUT bit/s",
            Self::Kicks => "KICKS/s",
            Self::Calls => "CALLS/s",
            Self::Drops => "DROPS/s",
            Self::Fill => "BUCKETS",
            Self::Reasons => "DROPPED AS",
        }
    }

    /// Returns true if it holds words, which are sorted by the alphabet rather than from the greatest.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Name | Self::Switch | Self::State | Self::Fill | Self::Reasons)
    }

    /// Returns a port's cell in this column.
    pub fn cell(self, port: &Port) -> String {
        let rate = |value: f64| Scaled(value).to_string().trim_end().to_owned();
        match self {
            Self::Name => port.name.clone(),
            Self::Switch => port.switch.clone(),
            Self::State => port.state.clone(),
            Self::In => rate(port.input.frames),
            Self::InBits => rate(port.input.bits),
            Self::Out => rate(port.output.frames),
            Self::OutBits => rate(port.output.bits),
            Self::Kicks => rate(port.kicks),
            Self::Calls => rate(port.calls),
            Self::Drops => rate(port.dropped()),
            Self::Fill => port.fill.text(),
            Self::Reasons => port.reasons(),
        }
    }

    /// The column `step` places to the right of it, among those that can be sorted by.
    pub fn beside(self, step: isize) -> Column {
        let sortable = Self::ALL.len() as isize - 1;
        let at = Self::ALL.iter().position(|&column| column == self).unwrap_or(0) as isize;
        Self::ALL[(at + step).rem_euclid(sortable) as usize]
    }
}

/// An order of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub column: Column,
    pub reversed: bool,
}

impl Order {
    /// By a column: words by the alphabet, the most of anything else first.
    pub fn new(column: Column) -> Order {
        Order { column, reversed: false }
    }

    /// Sorts ports. Those that are equal are in the order of their names.
    pub fn sort(self, ports: &mut [Port]) {
        let names = |a: &Port, b: &Port| (&a.switch, &a.name).cmp(&(&b.switch, &b.name));
        ports.sort_by(|a, b| {
            let order = self.compare(a, b);
            if self.reversed { order.reverse() } else { order }.then_with(|| names(a, b))
        });
    }

    fn compare(self, a: &Port, b: &Port) -> Ordering {
        let most = |value: fn(&Port) -> f64| value(b).total_cmp(&value(a));
        match self.column {
            Column::Name => a.name.cmp(&b.name),
            Column::Switch => a.switch.cmp(&b.switch),
            Column::State => a.state.cmp(&b.state),
            Column::In => most(|port| port.input.frames),
            Column::InBits => most(|port| port.input.bits),
            Column::Out => most(|port| port.output.frames),
            Column::OutBits => most(|port| port.output.bits),
            Column::Kicks => most(|port| port.kicks),
            Column::Calls => most(|port| port.calls),
            // The emptiest bucket first, and ports without a bucket last.
            Column::Fill => {
                let fill = |port: &Port| port.fill.least().unwrap_or(f64::INFINITY);
                fill(a).total_cmp(&fill(b))
            }
            Column::Drops | Column::Reasons => most(|port| port.dropped()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::rates::Flow;

    #[test]
    fn most_first_words_by_the_alphabet_and_the_other_way_round() {
        let port =
            |name: &str, frames: f64| Port { name: name.into(), input: Flow { frames, bits: 0.0 }, ..Port::default() };
        let mut ports = vec![port("c", 1.0), port("a", 2.0), port("b", 1.0)];
        let mut sorted = |column, reversed| {
            Order { column, reversed }.sort(&mut ports);
            ports.iter().map(|port| port.name.as_str()).collect::<String>()
        };
        assert_eq!(sorted(Column::In, false), "abc");
        assert_eq!(sorted(Column::In, true), "bca");
        assert_eq!(sorted(Column::Name, true), "cba");
        assert_eq!(sorted(Column::Drops, false), "abc");
    }

    #[test]
    fn going_round_the_columns_reaches_all_that_can_be_sorted_by() {
        assert_eq!((Column::Name.beside(1), Column::Name.beside(-1)), (Column::Switch, Column::Fill));
        assert_eq!(Column::Fill.beside(1), Column::Name);
    }
}
