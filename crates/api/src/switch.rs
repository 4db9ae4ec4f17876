//! The JSON of a switch's settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The keys of a switch and their values, as in `[switch.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SwitchKeys(pub BTreeMap<String, Json>);

impl SwitchKeys {
    /// Returns the value of a key as text, empty if it has none.
    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Json::as_str).unwrap_or_default()
    }
}

/// Name of the keys of a switch in `/openapi.json`. The server describes them, from the table of keys.
pub const SWITCH_KEYS: &str = "SwitchKeys";

#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use utoipa::openapi::schema::Schema;
    use utoipa::openapi::{Ref, RefOr};
    use utoipa::{PartialSchema, ToSchema};

    use super::{SWITCH_KEYS, SwitchKeys};

    impl PartialSchema for SwitchKeys {
        fn schema() -> RefOr<Schema> {
            Ref::from_schema_name(SWITCH_KEYS).into()
        }
    }

    impl ToSchema for SwitchKeys {
        fn name() -> Cow<'static, str> {
            SWITCH_KEYS.into()
        }
    }
}
