//! A switch, bucket or port as its keys: those without the default value, each whole.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;

use crate::keys::{Keys, Mistake, Mutability, Name, Node, Table, differing};
use crate::limit::{Bucket, BucketKeys};
use crate::model::Config;
use crate::port::{self, CallInterval, DynamicPorts, Port};
use crate::switch::Switch;

/// A part of the configuration whose sections have names that users choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// `[switch.NAME]`.
    Switch,
    /// `[bucket.NAME]`.
    Bucket,
    /// `[port.NAME]`.
    Port,
}

impl Part {
    /// All parts, in an order in which each needs parts before it only.
    pub const ALL: [Self; 3] = [Self::Switch, Self::Bucket, Self::Port];

    /// Returns the word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Bucket => "bucket",
            Self::Port => "port",
        }
    }
}

/// The part and name of a section. Displays as `port "vm1"`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The part.
    pub part: Part,
    /// The name.
    pub name: Name,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.part.as_str(), self.name)
    }
}

/// The keys of a section that do not have their default values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section(pub BTreeMap<String, Json>);

impl Section {
    /// Returns this section of a configuration.
    pub fn of(config: &Config, id: &Id) -> Option<Self> {
        match id.part {
            Part::Switch => config.switches.get(&id.name).map(Self::of_switch),
            Part::Bucket => config.buckets.get(&id.name).map(Self::of_bucket),
            Part::Port => config.ports.get(&id.name).map(|port| Self::of_port(&id.name, port)),
        }
    }

    /// Returns the keys of a table.
    pub fn of_table(table: &dyn Table, defaults: &dyn Table) -> Self {
        Self::of_values(table.values(), defaults.values())
    }

    fn of_switch(switch: &Switch) -> Self {
        Self::of_table(switch, &Switch::default())
    }

    fn of_bucket(bucket: &Bucket) -> Self {
        Self::of_table(&bucket.keys(), &BucketKeys::default())
    }

    fn of_port(name: &Name, port: &Port) -> Self {
        let default = Port::new(port.switch.clone(), port.kind(), name);
        let values = |port: &Port| port.values().into_iter().chain(port.settings.own().values()).collect();
        let mut section = Self::of_values(values(port), values(&default));
        if !matches!(port.calls.interval, CallInterval::Fixed(interval) if !interval.is_zero()) {
            // Without an interval it does nothing, and is refused.
            section.0.remove("call_above");
        }
        section.0.insert("switch".to_owned(), port.switch.to_string().into());
        section.0.insert("kind".to_owned(), port.kind().as_str().into());
        section
    }

    fn of_values(values: Vec<(&str, Mutability, Json)>, defaults: Vec<(&str, Mutability, Json)>) -> Self {
        Self(differing(values, defaults))
    }

    /// Puts the section into a configuration, by the same functions that read a file.
    ///
    /// # Errors
    /// Its keys are wrong, together or in this version.
    pub fn put(&self, id: &Id, config: &mut Config) -> Result<(), Vec<Mistake>> {
        let mistakes = RefCell::default();
        let node = Node::from_json(&Json::Object(self.0.clone().into_iter().collect()));
        let keys = Keys::new(&format!("{}.{}", id.part.as_str(), id.name), &node, None, &mistakes);
        let name = id.name.clone();
        match id.part {
            Part::Switch => {
                config.switches.insert(name, Switch::read_section(keys, &Switch::default()));
            }
            Part::Bucket => config.buckets.extend(Bucket::read(keys).map(|bucket| (name, bucket))),
            Part::Port => {
                let port = Port::read_section(&name, &keys, &DynamicPorts::new());
                port::finish(keys);
                config.ports.extend(port.map(|port| (name, port)));
            }
        }
        let mistakes = mistakes.into_inner();
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }

    /// Removes the section of this name from a configuration.
    pub fn remove(id: &Id, config: &mut Config) {
        match id.part {
            Part::Switch => drop(config.switches.remove(&id.name)),
            Part::Bucket => drop(config.buckets.remove(&id.name)),
            Part::Port => drop(config.ports.remove(&id.name)),
        }
    }
}
