//! A program that the daemon wants to load, one that it has loaded, and why it cannot load one.

#[cfg(not(feature = "programs"))]
use super::absent as loaded;

#[cfg(feature = "programs")]
use super::loaded;
use super::seen::Seen;
use super::wanted::{NotLoaded, Wanted};
use loaded::{LoadedProgram, Runtime};
use ringway_config::{Name, ProgramKeys};

/// A program to be loaded.
pub type WantedProgram = Wanted<LoadedProgram, Runtime>;

/// A program that was loaded for a change.
#[derive(Clone, Debug)]
pub struct ReadyProgram {
    pub(super) switch: Name,
    pub(super) keys: ProgramKeys,
    pub(super) pollers: usize,
    /// What it replaces, and whose state it may have.
    pub(super) before: Option<LoadedProgram>,
    pub(super) program: LoadedProgram,
}

impl ReadyProgram {
    /// Returns the switch.
    pub fn switch(&self) -> &Name {
        &self.switch
    }

    /// Returns true if it is for this switch.
    pub fn is_for(&self, switch: &Name) -> bool {
        self.switch == *switch
    }

    /// What was loaded.
    pub fn keys(&self) -> &ProgramKeys {
        &self.keys
    }

    /// Returns true if it is what this switch is to have.
    pub fn is(&self, switch: &Name, keys: &ProgramKeys, pollers: usize) -> bool {
        self.switch == *switch && is_same_program(&self.keys, keys) && self.pollers == pollers
    }

    /// Returns the program, if it is for so many pollers.
    pub fn for_pollers(&self, pollers: usize) -> Option<&LoadedProgram> {
        (self.pollers == pollers).then_some(&self.program)
    }

    /// Returns the program, if the switch still has the one that it replaces: while it was loaded, the switch may have got another, newer one.
    pub fn instead_of(&self, present: Option<&LoadedProgram>) -> Option<&LoadedProgram> {
        let is_present = match (&self.before, present) {
            (Some(before), Some(present)) => before.is_same(present),
            (before, present) => before.is_none() && present.is_none(),
        };
        is_present.then_some(&self.program)
    }
}

/// Returns true if both settings name the same program, started with the same text.
pub fn is_same_program(a: &ProgramKeys, b: &ProgramKeys) -> bool {
    (&a.program, &a.config, &a.config_file) == (&b.program, &b.config, &b.config_file)
}

/// A program cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[error("cannot load the program {path} of switch {switch}: {what}")]
pub struct CannotLoad {
    pub(super) switch: Name,
    pub(super) path: String,
    pub(super) what: String,
    /// The same files can never be loaded.
    pub(super) is_final: bool,
    /// It was not tried: what it needs is what it was at the last try.
    pub(super) is_unchanged: bool,
    /// What was to be loaded, for another try.
    pub(super) keys: Box<ProgramKeys>,
    /// The files, before they were read.
    pub(super) seen: Box<Seen>,
}

impl CannotLoad {
    /// The program of these keys cannot be loaded.
    pub(super) fn new(switch: Name, keys: ProgramKeys, seen: Seen, why: NotLoaded) -> Self {
        let (path, NotLoaded { what, is_final }) = (keys.program.display().to_string(), why);
        Self { switch, path, what, is_final, is_unchanged: false, keys: Box::new(keys), seen: Box::new(seen) }
    }

    /// The program of these keys was not tried.
    pub(super) fn unchanged(switch: Name, keys: ProgramKeys, seen: Seen) -> Self {
        let why = "nothing that it needs has changed".to_owned();
        Self { is_unchanged: true, ..Self::new(switch, keys, seen, why.into()) }
    }

    /// Returns true if it was not tried: what it needs is what it was at the last try.
    pub fn is_unchanged(&self) -> bool {
        self.is_unchanged
    }

    /// Returns the switch.
    pub fn switch(&self) -> &Name {
        &self.switch
    }

    /// What was to be loaded.
    pub fn keys(&self) -> &ProgramKeys {
        &self.keys
    }
}
