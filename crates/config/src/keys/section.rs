//! The interface of tables of keys. The macro `keys!` implements it.

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
