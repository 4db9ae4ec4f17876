//! The interface of tables of keys. The macro `keys!` implements it.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::key::{Key, Mutability};
use super::reader::Keys;

/// Settings that are a table of keys.
pub trait Table {
    /// Returns the keys with their values in this table, in the order of the documentation.
    fn keys(&self) -> Vec<Key>;

    /// Returns the values of the keys as JSON, null for no value.
    fn values(&self) -> Vec<(&'static str, Mutability, Json)>;

    /// Reads the values that are written. Notes a mistake for each one that cannot be used.
    fn read(&mut self, keys: &Keys<'_>);

    /// Returns the table as JSON, without keys that have no value.
    fn to_json(&self) -> Json {
        let values = self.values().into_iter().filter(|(.., value)| !value.is_null());
        Json::Object(values.map(|(name, _, value)| (name.to_owned(), value)).collect())
    }
}

/// A table whose keys depend on each other.
pub trait Validate: Table {
    /// Notes combinations of keys that are not valid, and sets the values that follow from other keys. Called after [`Table::read`].
    fn validate(&mut self, keys: &Keys<'_>) {
        let _ = keys;
    }
}

/// Returns the keys whose values are not those of `defaults`, which has the same keys in the same order.
pub fn differing(
    values: Vec<(&str, Mutability, Json)>,
    defaults: Vec<(&str, Mutability, Json)>,
) -> BTreeMap<String, Json> {
    let differs = |(value, default): &(&(&str, Mutability, Json), &(&str, Mutability, Json))| value.2 != default.2;
    let written = values.iter().zip(&defaults).filter(differs).filter(|((.., value), _)| !value.is_null());
    written.map(|((key, _, value), _)| ((*key).to_owned(), value.clone())).collect()
}
