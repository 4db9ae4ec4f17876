//! Results of the demo's parts, and the flag that ends the demo.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a part of the demo has no result.
#[derive(Debug, Clone)]
pub enum NotDone {
    /// The part cannot be shown here, for this reason.
    Skipped(String),
    /// The part failed, for this reason.
    Failed(String),
    /// Ctrl-C.
    Interrupted,
}

/// The result of a part.
pub type Outcome<T> = Result<T, NotDone>;

/// A flag that Ctrl-C sets.
#[derive(Debug, Clone)]
pub struct Stop(pub Arc<AtomicBool>);

impl Stop {
    /// Returns an error once the flag is set.
    pub fn check(&self) -> Outcome<()> {
        if self.0.load(Ordering::Relaxed) { Err(NotDone::Interrupted) } else { Ok(()) }
    }

    /// The flag itself.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
