//! Writing to stdout, and the name of the command.

use ringway_commands::out;

/// Writes to stdout.
pub fn say(text: &str) {
    let _ = out::print(text);
}

/// The name by which the user called this command.
pub fn called() -> String {
    std::env::args().next().unwrap_or_else(|| "ringway".to_owned())
}
