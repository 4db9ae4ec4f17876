//! How closely received frames are checked.

use ringway_traffic::{Checker, Level, Origin};

/// What is checked of each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Check {
    /// Nothing: frames are counted
    Count,
    /// Loss, order, duplicates and the headers
    Sequence,
    /// Loss, order, duplicates, the headers and every byte of the payload
    Full,
}

impl Check {
    /// Returns a checker of this level.
    pub fn checker(self, origin: Origin) -> Checker {
        let level = match self {
            Check::Count => Level::Count,
            Check::Sequence => Level::Sequence,
            Check::Full => Level::Full,
        };
        Checker::new(level, origin)
    }
}
