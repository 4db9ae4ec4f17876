//! Time limits of the dialogues.

use std::time::Duration;

/// Time limits of the dialogues.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimits {
    /// For a client's request.
    pub request_within: Duration,
    /// How long a registration that is refused for the moment, or gets too few extra buffers, is tried again: what a program closed a
    /// moment ago still has its memory.
    pub tries_for: Duration,
}

impl Default for TimeLimits {
    fn default() -> TimeLimits {
        TimeLimits { request_within: Duration::from_secs(2), tries_for: Duration::from_secs(1) }
    }
}
