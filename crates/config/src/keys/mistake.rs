//! Mistakes with the text that has them, and what its writer may have meant.

use std::fmt;

use ringway_api::Mistake;

/// Mistakes with the text that has them. Displays each as a line `file:line:column: ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The name of the text, usually a path.
    pub source: String,
    /// The text.
    pub text: String,
    /// At least one, in the order of the text.
    pub mistakes: Vec<Mistake>,
}

impl Rejected {
    /// Sorts `mistakes` into the order of `text`.
    pub fn new(source: &str, text: &str, mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by_key(|m| m.span.as_ref().map_or(0, |s| s.start));
        Self { source: source.to_owned(), text: text.to_owned(), mistakes }
    }
}

impl Rejected {
    /// Returns the lines `file:line:column: ...`, one for each, with `kind` before what they say.
    pub fn lines(&self, kind: &str) -> impl Iterator<Item = String> {
        self.mistakes.iter().map(move |mistake| {
            let place = mistake.span.as_ref().map(|span| line_column(&self.text, span.start));
            let place = place.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"));
            format!("{}{place}: {kind}{mistake}", self.source)
        })
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.lines("").enumerate() {
            f.write_str(if number > 0 { "\n" } else { "" })?;
            f.write_str(&line)?;
        }
        Ok(())
    }
}

impl std::error::Error for Rejected {}

/// Returns line and column, both from 1, of the byte at `offset`. Columns count characters.
pub fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
    (line, column)
}

/// Returns the candidate with the smallest edit distance to `word`, if that is small enough for a typing error.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|c| (strsim::osa_distance(&word, &c.to_lowercase()), c))
        .filter(|&(distance, c)| distance <= 1.max(c.len().min(word.len()) / 3))
        .min()
        .map(|(_, c)| c)
}

/// Returns `"a", "b" or "c"`, for messages.
pub fn alternatives<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|w| format!("\"{w}\"")).collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_from_one() {
        let text = "a = 1\nü = \"x\" # y\n";
        assert_eq!(line_column(text, 0), (1, 1));
        assert_eq!(line_column(text, text.find('"').unwrap()), (2, 5));
        assert_eq!(line_column(text, 1000), (3, 1));
    }

    #[test]
    fn nearest_finds_slips_of_the_finger_and_no_more() {
        let keys = ["weight", "switch", "kind", "mac"];
        assert_eq!(nearest("wieght", keys), Some("weight"));
        assert_eq!(nearest("swich", keys), Some("switch"));
        assert_eq!(nearest("macs", keys), Some("mac"));
        assert_eq!(nearest("colour", keys), None);
    }
}
