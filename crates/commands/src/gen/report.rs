//! How a run of `gen` ends: its report, or an error.

use std::fmt;

use ringway_traffic::LinkCounters;
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

/// What a driver has counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Driver {
    /// That of an e1000 behind a socket.
    E1000(Counters),
    /// That of a NIC.
    Link(LinkCounters),
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Driver::E1000(counters) => counters.fmt(f),
            Driver::Link(counters) => counters.fmt(f),
        }
    }
}

/// Writes a result as text or as JSON, with the counts of the driver's accesses if there are any.
pub fn report<R: Serialize + std::fmt::Display>(result: &R, driver: Option<Driver>, json: bool) {
    #[derive(Serialize)]
    struct Driven<'r, R> {
        #[serde(flatten)]
        result: &'r R,
        #[serde(skip_serializing_if = "Option::is_none")]
        driver: Option<Driver>,
    }
    let _ = match driver {
        _ if json => out::print_json(&Driven { result, driver }),
        Some(driver) => out::print(&format!("{result}\n{driver}\n")),
        None => out::print(&format!("{result}\n")),
    };
}
