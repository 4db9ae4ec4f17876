//! What a change wants of programs that are not loaded yet.

use std::sync::{Arc, Mutex};

use ringway_config::{Name, ProgramKeys};
use ringway_switch::View;

use super::seen::Seen;

/// A program to be loaded. `P` is a loaded program, `R` the runtime of all programs.
#[derive(Debug)]
pub struct Wanted<P, R> {
    /// The switch.
    pub switch: Name,
    /// What to load.
    pub keys: ProgramKeys,
    /// Number of pollers.
    pub pollers: usize,
    /// The switch's ports.
    pub view: Arc<View>,
    /// The program that it replaces.
    pub before: Option<P>,
    /// The program before stays if its files are as they were.
    pub unless_same: bool,
    /// Only if what it needs is not this.
    pub unless_seen: Option<Box<Seen>>,
    /// The runtime of all programs.
    pub runtime: SharedRuntime<R>,
}

/// The runtime of all programs, which is started for the first one.
pub type SharedRuntime<R> = Arc<Mutex<Option<Arc<R>>>>;

/// Why a program is not loaded.
#[derive(Debug)]
pub struct NotLoaded {
    /// The reason, for users.
    pub what: String,
    /// The same files can never be loaded.
    pub is_final: bool,
}

impl From<String> for NotLoaded {
    /// Another try can be worth it.
    fn from(what: String) -> Self {
        Self { what, is_final: false }
    }
}
