//! Texts of modules and compilers, for messages.

use rustix::io::Errno;

/// Longest reason in characters.
const LONGEST_REASON: usize = 512;

/// All causes of an error, in one line. Some quote names of the module.
pub(crate) fn reason(error: &wasmtime::Error) -> String {
    let causes: Vec<String> = error.chain().map(|cause| cause.to_string().replace('\n', " ")).collect();
    cut(&causes.join(": "))
}

/// Returns true if the kernel gave no memory.
pub(crate) fn is_out_of_memory(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| {
        let of_io = cause.downcast_ref::<std::io::Error>().and_then(Errno::from_io_error);
        cause.downcast_ref::<Errno>().copied().or(of_io) == Some(Errno::NOMEM)
    })
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_error_of_want_of_memory_is_told_from_others_below_whatever_was_added_to_it() {
        let judge = |error: wasmtime::Error| is_out_of_memory(&error.context("loading").context("a module"));
        assert!(judge(Errno::NOMEM.into()));
        assert!(judge(io::Error::from(Errno::NOMEM).into()));
        assert!(!judge(Errno::ACCESS.into()));
        assert!(!judge(io::Error::other("out of memory").into()));
    }
}
