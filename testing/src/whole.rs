//! How often tests repeat what they do.

/// Set for the long form of the tests, which `make whole` runs.
const WHOLE: &str = "RINGWAY_WHOLE";

/// Returns `long` in the long form of the tests (`RINGWAY_WHOLE=1`), and otherwise `short`: as much as shows a regression in `make test`.
#[must_use]
pub fn whole<T>(short: T, long: T) -> T {
    if std::env::var_os(WHOLE).is_some() { long } else { short }
}
