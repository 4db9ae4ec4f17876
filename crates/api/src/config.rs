//! The running configuration, and what commands changed of the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The running configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConfigStatus {
    /// All of it as TOML, with marks where commands changed it.
    pub running: String,
    /// The sections that commands changed, as TOML: each is whole, and replaces that of the file.
    pub changed: String,
    /// What commands changed of the file.
    pub changes: Vec<ChangedSection>,
}

/// A section that commands changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChangedSection {
    /// `port`, `bucket` or `switch`.
    pub section: String,
    /// Its name.
    pub name: String,
    /// `added`, `changed` or `deleted`.
    pub change: String,
    /// The keys of a changed section that differ from those of the file.
    #[serde(default)]
    pub keys: BTreeMap<String, ChangedKey>,
    /// Why the change is not in force; null: it is.
    #[serde(default)]
    pub not_in_force: Option<String>,
}

/// A key that a command changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChangedKey {
    /// The value in the file; null: the default.
    pub file: Value,
    /// The value now; null: the default.
    pub now: Value,
}
