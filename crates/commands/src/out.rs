//! Writing to stdout. A reader that has gone (`ringway status | head -1`) ends the command without a message.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// Writes all of `text`; false when its reader has gone.
///
/// # Errors
/// It cannot be written.
pub fn write(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(e),
    }
}

/// Writes a value as a line of JSON, as [`write()`].
///
/// # Errors
/// It cannot be written.
pub fn write_json(value: &impl serde::Serialize) -> io::Result<bool> {
    write(&(serde_json::to_string(value)? + "\n"))
}

/// Writes all of `text`.
pub fn print(text: &str) -> ExitCode {
    match write(text) {
        Ok(_) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ringway: cannot write to stdout: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Writes a value as JSON, for programs.
pub fn print_json(value: &impl serde::Serialize) -> ExitCode {
    match serde_json::to_string(value) {
        Ok(json) => print(&(json + "\n")),
        Err(e) => {
            eprintln!("ringway: cannot write JSON: {e}");
            ExitCode::FAILURE
        }
    }
}

/// A number with a decimal prefix: `12.3 M`.
pub struct Scaled(pub f64);

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            v if v >= 1e9 => write!(f, "{:.2} G", v / 1e9),
            v if v >= 1e6 => write!(f, "{:.2} M", v / 1e6),
            v if v >= 1e3 => write!(f, "{:.2} k", v / 1e3),
            v => write!(f, "{v:.0} "),
        }
    }
}

/// How long something has lasted: `3 min 5 s`.
pub fn time(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

/// A table with aligned columns: text to the left, numbers to the right.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|h| (*h).to_owned()).collect()] }
    }

    /// Adds a row, one cell per heading.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text, each row ended by a newline.
    pub fn text(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let is_number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit());
        // A column goes by its first row, so that its heading stands where its values do.
        let right = |column: usize| self.rows.get(1).is_some_and(|row| is_number(&row[column]));
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                // Not by a format's width, which panics beyond 65,535.
                let padding = " ".repeat(widths[column] - cell.chars().count());
                let (before, after) = if right(column) { (padding.as_str(), "") } else { ("", padding.as_str()) };
                line.extend([before, cell, after, "  "]);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["PORT", "FRAMES"]);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["longer".into(), "12345678".into()]);
        assert_eq!(table.text(), "PORT      FRAMES\na              1\nlonger  12345678\n");
    }

    #[test]
    fn a_cell_may_have_any_length() {
        let mut table = Table::new(&["A", "B"]);
        let long = "x".repeat(100_000);
        table.row(vec![long.clone(), "1".into()]);
        assert_eq!(table.text(), format!("A{}  B\n{long}  1\n", " ".repeat(99_999)));
    }
}
