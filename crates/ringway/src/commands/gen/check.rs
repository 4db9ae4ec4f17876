//! The level of the check of received frames.

use ringway_traffic::{Checker, Level, Origin};

/// What is checked of each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Check {
    /// Nothing: frames are counted
    Count,
    /// Loss, order, duplicates and the headers
    Sequence,
    /// The same, and every byte of the payload
    Full,
}

impl Check {
    /// A checker of this level.
    pub fn checker(self, origin: Origin) -> Checker {
        let level = match self {
            Check::Count => Level::Count,
            Check::Sequence => Level::Sequence,
            Check::Full => Level::Full,
        };
        Checker::new(level, origin)
    }
}
