//! Tables: columns aligned for a terminal, or Markdown.

/// A table: cells by row. The first row has the headings.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// How many columns, from the left, are words; the others are numbers, aligned to the right.
    words: usize,
}

impl Table {
    /// A table with these headings, the first `words` of them over words.
    pub(crate) fn new(headings: Vec<String>, words: usize) -> Table {
        Table { rows: vec![headings], words }
    }

    /// Adds a row; cells that are missing at its end are empty.
    pub(crate) fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.rows[0].len(), String::new());
        self.rows.push(cells);
    }

    /// Returns one line for each row. Two spaces stand between columns, however wide a cell is.
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let padding = " ".repeat(widths[column] - cell.chars().count());
                let (before, after) = if column < self.words { ("", padding.as_str()) } else { (padding.as_str(), "") };
                line.extend(["  ", before, cell, after]);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Returns the rows in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            format!("| {} |\n", cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
        };
        let rule = (0..self.rows[0].len()).map(|column| if column < self.words { "---|" } else { "---:|" });
        let rule = format!("|{}\n", rule.collect::<String>());
        let (headings, rows) = self.rows.split_first().expect("a table has headings");
        line(headings) + &rule + &rows.iter().map(|row| line(row)).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> Table {
        let mut table = Table::new(vec!["series".into(), "rate".into()], 1);
        table.row(vec![name.into(), "12345678901234567890".into()]);
        table.row(vec!["b".into()]);
        table
    }

    #[test]
    fn no_two_columns_touch_however_wide_a_cell_is() {
        let name = "ringway e1000e, mapped, to fill, switch stopped";
        let text = table(name).text();
        assert!(text.contains(&format!("  {name}  12345678901234567890\n  b\n")), "{text}");
        assert_eq!(text.lines().next().map(str::len), Some(2 + name.len() + 2 + 20));
    }

    #[test]
    fn markdown_aligns_numbers_to_the_right() {
        assert_eq!(
            table("a|b").markdown(),
            "| series | rate |\n|---|---:|\n| a\\|b | 12345678901234567890 |\n| b |  |\n"
        );
    }
}
