//! The JSON of a switch's forwarding program.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A switch's forwarding program at one moment. Counters since the program was loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProgramStatus {
    /// `running`; `loading`: the daemon has started without it, and the switch forwards nothing yet; or `failed`: taken out after faults, or not
    /// loaded when the daemon started, and then the switch forwards nothing until it can be loaded.
    pub state: String,
    /// Why it failed; null if it has not.
    pub detail: Option<String>,
    /// Instances, one for each poller.
    pub instances: usize,
    /// Calls of `ringway_frames`.
    pub batches: u64,
    /// Frames that it dropped, by its own reasons.
    pub drops: BTreeMap<String, u64>,
    /// Faults, by name.
    pub faults: BTreeMap<String, u64>,
    /// The last fault; null: none.
    pub last_fault: Option<String>,
    /// Seconds since the last fault; null: none.
    pub last_fault_age: Option<f64>,
    /// Its own counters.
    pub counters: BTreeMap<String, u64>,
    /// Its own gauges, the sum of all instances.
    pub gauges: BTreeMap<String, i64>,
    /// Entries of the map that its instances share.
    pub map_entries: usize,
    /// Lines of its log that were not written, because they were too many.
    pub lost_lines: u64,
}

/// A message to a forwarding program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The message.
    pub text: String,
}
