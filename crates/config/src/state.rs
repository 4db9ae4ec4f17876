//! `[state]`: where run-time changes are kept, and what holds where the file contradicts them.

use std::path::PathBuf;

use crate::keys::form::{Choice, Text};
use crate::keys::{Keys, Table, keys};

/// What holds where the file was edited after a command had changed the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// The file.
    #[default]
    File,
    /// The change at run time.
    Runtime,
}

impl Conflict {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 2] = [("file", Self::File), ("runtime", Self::Runtime)];
}

/// The form of `file`.
const FILE: Text<PathBuf> = Text {
    word: "FILE",
    wanted: "an absolute path like \"/var/lib/ringway/state.toml\"",
    read: read_path,
    write: |path| path.display().to_string(),
};

fn read_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() && path.file_name().is_some() && !text.ends_with('/') {
        return Ok(path);
    }
    Err(format!("{text:?} is not the absolute path of a file; write one like \"/var/lib/ringway/state.toml\""))
}

keys! {
    /// What is kept of the changes that commands make.
    pub struct State {
        file: PathBuf = PathBuf::new(), FILE, Live, "The file that keeps what commands changed; by default state.toml in the runtime directory, which a reboot empties.", "Its folder must exist. A change of this key holds from the next start on.";
        conflict: Conflict = Conflict::File, Choice(&Conflict::WORDS), Live, "What holds where the configuration file was edited after a command had changed the same key: the file, or the change at run time.";
    }
}

impl State {
    /// Reads `[state]`.
    pub fn read_section(keys: Keys<'_>) -> Self {
        let mut state = Self::default();
        state.read(&keys);
        keys.finish();
        state
    }
}
