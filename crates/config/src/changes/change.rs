//! The difference of the running configuration from the file.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::section::{Id, Part, Section};
use crate::keys::Name;
use crate::model::Config;

/// A section that commands added, changed or deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The section as the file had it; none: the file had none.
    pub file: Option<Section>,
    /// The section as commands left it; none: they deleted it.
    pub now: Option<Section>,
}

/// The sections that commands changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(pub BTreeMap<Id, Change>);

/// A key with its value in the file and its value now. No value: the key is not written, and has its default.
pub type ChangedKey<'a> = (&'a str, Option<&'a Json>, Option<&'a Json>);

impl Change {
    /// Returns what commands did to the section.
    pub fn word(&self) -> &'static str {
        match (&self.file, &self.now) {
            (None, _) => "added",
            (_, None) => "deleted",
            _ => "changed",
        }
    }

    /// Returns the keys that commands changed, of a section that they neither added nor deleted.
    pub fn keys(&self) -> Vec<ChangedKey<'_>> {
        let (Some(file), Some(now)) = (&self.file, &self.now) else { return Vec::new() };
        let names: BTreeSet<&String> = file.0.keys().chain(now.0.keys()).collect();
        let keys = names.into_iter().map(|key| (key.as_str(), file.0.get(key), now.0.get(key)));
        keys.filter(|(_, file, now)| file != now).collect()
    }
}

impl Changes {
    /// Returns what makes `now` of the file.
    pub fn between(file: &Config, now: &Config) -> Self {
        let mut changes = Self::default();
        for part in Part::ALL {
            for name in different(part, file, now) {
                let id = Id { part, name };
                let change = Change { file: Section::of(file, &id), now: Section::of(now, &id) };
                // Values that no key has are the same in both.
                if change.file != change.now {
                    changes.0.insert(id, change);
                }
            }
        }
        changes
    }

    /// Returns true if commands changed nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the names of the sections that differ.
fn different(part: Part, one: &Config, other: &Config) -> BTreeSet<Name> {
    fn names<T: PartialEq>(one: &BTreeMap<Name, T>, other: &BTreeMap<Name, T>) -> BTreeSet<Name> {
        let all = one.keys().chain(other.keys());
        all.filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
    }
    match part {
        Part::Switch => names(&one.switches, &other.switches),
        Part::Bucket => names(&one.buckets, &other.buckets),
        Part::Port => names(&one.ports, &other.ports),
    }
}
