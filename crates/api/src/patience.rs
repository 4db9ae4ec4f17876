//! How long to wait for a peer that may hang.
//!
//! In builds with the feature `inject`, the variable `RINGWAY_PATIENCE` has seconds that such a wait lasts at least: a machine that stands
//! still for half a minute then fails no test.

use std::time::Duration;

/// Returns the longest wait for a peer that may hang: `usual`, or in tests the seconds of `RINGWAY_PATIENCE` if they are more.
#[inline]
pub fn patience(usual: Duration) -> Duration {
    #[cfg(feature = "inject")]
    {
        static LEAST: std::sync::OnceLock<Duration> = std::sync::OnceLock::new();
        let seconds = || std::env::var("RINGWAY_PATIENCE").ok()?.parse().ok();
        usual.max(*LEAST.get_or_init(|| Duration::from_secs(seconds().unwrap_or(0))))
    }
    #[cfg(not(feature = "inject"))]
    usual
}
