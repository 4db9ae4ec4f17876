//! The JSON of a switch's settings.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::schema::SwitchKeysSchema;
use crate::config::Switch;
use crate::config::table::Table;

/// The keys of a switch and their values, as in `[switch.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SwitchKeys(pub BTreeMap<String, Json>);

impl SwitchKeys {
    /// The settings of a switch, all of them.
    pub fn of(switch: &Switch) -> Self {
        Self(switch.values().into_iter().map(|(key, _, value)| (key.to_owned(), value)).collect())
    }

    /// The value of a key that is a text; empty where it is none.
    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Json::as_str).unwrap_or_default()
    }
}

impl PartialSchema for SwitchKeys {
    fn schema() -> RefOr<Schema> {
        SwitchKeysSchema::schema()
    }
}

impl ToSchema for SwitchKeys {
    fn name() -> Cow<'static, str> {
        SwitchKeysSchema::name()
    }
}
