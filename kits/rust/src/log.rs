//! Lines of the log.

use core::fmt;

use crate::host;

/// Bytes of a line that Ringway takes.
const LONGEST: usize = 256;

/// Writes a line of Ringway's log. Longer ones than 256 bytes are cut; ten lines a second are written, the others are counted.
pub fn log(text: &str) {
    let text = cut(text);
    // SAFETY: the switch reads the bytes of the text.
    unsafe { host::log(text.as_ptr(), text.len()) }
}

/// The beginning of a text, at most 256 bytes, whole characters.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Writes a line of the log, as `println!` formats it.
#[macro_export]
macro_rules! log {
    ($($what:tt)+) => {
        $crate::log($crate::Line::new(format_args!($($what)+)).text())
    };
}

/// A line of text, at most 256 bytes, for programs without allocator.
#[derive(Clone, Copy)]
pub struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Line {
    /// The text that the arguments make, cut if it is longer: `Line::new(format_args!("port {}", 3))`.
    #[must_use]
    pub fn new(what: fmt::Arguments<'_>) -> Line {
        let mut line = Line { bytes: [0; LONGEST], length: 0 };
        // An error says that the line is full.
        let _ = fmt::write(&mut line, what);
        line
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = text.len().min(LONGEST - self.length);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes[self.length..self.length + end].copy_from_slice(&text.as_bytes()[..end]);
        self.length += end;
        if end == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters() {
        assert_eq!(Line::new(format_args!("{} {}", 1, "two")).text(), "1 two");
        let long = "é".repeat(200);
        assert_eq!(Line::new(format_args!("a{long}b")).text(), format!("a{}", "é".repeat(127)));
        assert_eq!(cut(&format!("a{long}")).len(), 255);
    }
}
