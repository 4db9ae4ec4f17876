//! Programs that the configuration names and that could not be loaded when the daemon started: their switches drop all frames. They are
//! tried again when one of their files is another one, when there is a compiler, and each minute.

use std::collections::BTreeMap;
use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

#[cfg(not(feature = "programs"))]
use super::absent as loaded;
#[cfg(feature = "programs")]
use super::loaded;
use super::ready::{CannotLoad, is_same_program};
use crate::api::program::ProgramStatus;
use crate::config::{Name, ProgramKeys};

/// The time after which a program is tried again whose files have not changed.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What a file is: device, inode, size and time of its last change.
type FileState = Option<(u64, u64, u64, i64, i64)>;

/// A program that is not loaded.
#[derive(Debug)]
struct Missing {
    keys: Box<ProgramKeys>,
    why: String,
    at: Instant,
    seen: ([FileState; 2], bool),
}

impl Missing {
    fn is_due(&self) -> bool {
        self.at.elapsed() >= AGAIN_AFTER || self.seen != look(&self.keys)
    }
}

/// Looks at what a program needs.
fn look(keys: &ProgramKeys) -> ([FileState; 2], bool) {
    let state = |path: &Path| {
        let about = metadata(path).ok()?;
        Some((about.dev(), about.ino(), about.size(), about.mtime(), about.mtime_nsec()))
    };
    ([state(&keys.program), state(&keys.config_file)], loaded::can_load().is_ok())
}

/// Programs that are not loaded, by switch.
#[derive(Debug, Default)]
pub struct MissingPrograms(BTreeMap<Name, Missing>);

impl MissingPrograms {
    /// Returns true if the program of a switch is not loaded, and not to be tried. `retries`: those are tried that are due.
    pub(super) fn waits(&self, switch: &Name, keys: &ProgramKeys, retries: bool) -> bool {
        let missing = self.0.get(switch).filter(|missing| is_same_program(&missing.keys, keys));
        missing.is_some_and(|missing| !(retries && missing.is_due()))
    }

    /// Goes on without a program that was tried just now. Returns true if the reason is a new one.
    pub fn note(&mut self, failed: CannotLoad) -> bool {
        let why = failed.to_string();
        let CannotLoad { switch, keys, .. } = failed;
        let is_new = self.0.get(&switch).is_none_or(|before| before.why != why);
        let seen = look(&keys);
        self.0.insert(switch, Missing { keys, why, at: Instant::now(), seen });
        is_new
    }

    /// Returns true if the daemon should try a missing program again. Forgets those that `is_configured` says no of.
    pub fn has_due(&mut self, is_configured: impl Fn(&Name, &ProgramKeys) -> bool) -> bool {
        self.0.retain(|switch, missing| is_configured(switch, &missing.keys));
        self.0.values().any(Missing::is_due)
    }

    /// The switch has its program.
    pub fn note_loaded(&mut self, switch: &Name) {
        self.0.remove(switch);
    }

    /// Returns the status of a program that is not loaded.
    pub fn status(&self, switch: &Name, keys: &ProgramKeys) -> Option<ProgramStatus> {
        let missing = self.0.get(switch).filter(|missing| is_same_program(&missing.keys, keys))?;
        let detail = format!("{}; the switch drops all frames until it can be loaded", missing.why);
        Some(ProgramStatus { state: "failed".to_owned(), detail: Some(detail), ..ProgramStatus::default() })
    }
}
