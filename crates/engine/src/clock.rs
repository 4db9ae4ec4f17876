//! Time as the data path sees it.

use std::sync::OnceLock;
use std::time::Instant;

/// Seconds since the process first asked: the time of the MAC table.
#[must_use]
pub fn seconds(now: Instant) -> u32 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    // Starting at 1 keeps 0 free; 136 years fit.
    now.saturating_duration_since(start).as_secs() as u32 + 1
}
