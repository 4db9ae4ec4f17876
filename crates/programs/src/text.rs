//! Texts of modules and compilers, for messages.

/// Longest reason in characters.
const LONGEST_REASON: usize = 512;

/// All causes of an error, in one line. Some quote names of the module.
pub(crate) fn reason(error: &wasmtime::Error) -> String {
    let causes: Vec<String> = error.chain().map(|cause| cause.to_string().replace('\n', " ")).collect();
    cut(&causes.join(": "))
}

/// A reason, for messages.
pub(crate) fn cut(reason: &str) -> String {
    shown(reason, LONGEST_REASON)
}

/// A text with names of the module, for messages: control characters escaped, and cut.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map_or(text.len(), |(end, _)| end);
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let cut = if end < text.len() { "..." } else { "" };
    text[..end].chars().map(escaped).collect::<String>() + cut
}
