//! How a run of `gen` ends: its report, or an error.

use ringway_traffic::e1000::Counters;
use serde::Serialize;

use crate::out;

/// Why a run failed.
#[derive(Debug)]
pub enum GenError {
    /// The command line is wrong. Exits 2.
    Usage(String),
    /// The run could not be done, or a check failed. Exits 1.
    Failed(String),
}

/// Writes a result as text or as JSON, with the counts of the driver's accesses if there are any.
pub fn report<R: Serialize + std::fmt::Display>(result: &R, driver: Option<Counters>, json: bool) {
    #[derive(Serialize)]
    struct Driven<'r, R> {
        #[serde(flatten)]
        result: &'r R,
        #[serde(skip_serializing_if = "Option::is_none")]
        driver: Option<Counters>,
    }
    let _ = match driver {
        _ if json => out::print_json(&Driven { result, driver }),
        Some(driver) => out::print(&format!("{result}\n{driver}\n")),
        None => out::print(&format!("{result}\n")),
    };
}
