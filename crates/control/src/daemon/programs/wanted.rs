//! What a change wants of programs that are not loaded yet.

use std::sync::Arc;

use ringway_switch::View;

use crate::config::{Name, ProgramKeys};

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
    /// The runtime of all programs. `None`: it has to be started.
    pub runtime: Option<Arc<R>>,
}
