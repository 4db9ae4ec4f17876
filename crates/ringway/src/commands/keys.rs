//! The keys of ports, buckets and switches in the help of commands and for shell completion, from the tables of keys in
//! ringway-config.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use ringway_config::keys::Class;
use ringway_config::keys::{Key, Mutability};
use ringway_config::port::PortKey;
use ringway_config::{KeyScope, Kind};

/// Width of the column of `KEY=VALUE`.
const COLUMN: usize = 32;

/// Width of a line.
const WIDTH: usize = 98;

/// The operation that keys are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new port, or all settings of a bucket.
    Create,
    /// A change of a port or switch.
    Update,
}

/// Returns the keys that the operation takes.
fn keys(scope: KeyScope, operation: Operation) -> Vec<PortKey> {
    let mut keys = scope.keys();
    keys.retain(|known| operation == Operation::Create || known.key.mutability == Mutability::Live);
    keys
}

/// Returns the list of keys for the help of a command, with an example.
pub fn help(scope: KeyScope, operation: Operation, example: &str) -> String {
    let rest = match (scope, operation) {
        (KeyScope::Port, Operation::Update) => {
            "; what is left out stays as it is, all else is fixed when the port is made"
        }
        (_, Operation::Update) => "; what is left out stays as it is",
        (KeyScope::Bucket, Operation::Create) => "; what is left out is the default again",
        (_, Operation::Create) => "",
    };
    let mut text = format!("Keys, as in {} of the configuration{rest}:\n", scope.section());
    let all = keys(scope, operation);
    for known in all.iter().filter(|known| known.kinds.is_empty()) {
        line(&mut text, "", &known.key);
    }
    let mut groups: Vec<&[Kind]> = Vec::new();
    for known in all.iter().filter(|known| !known.kinds.is_empty()) {
        if !groups.contains(&known.kinds.as_slice()) {
            groups.push(&known.kinds);
        }
    }
    for kinds in groups {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        text.push_str(&format!("Of {} ports:\n", names.join(", ")));
        for known in all.iter().filter(|known| known.kinds == kinds) {
            line(&mut text, "", &known.key);
        }
    }
    text + &format!("\nExample:\n  {example}")
}

/// Writes a key with its meaning and default; then the keys of a table.
fn line(text: &mut String, before: &str, key: &Key) {
    let head = format!("  {before}{}={}", key.name, key.shape.word);
    let default = key.toml().filter(|_| !matches!(key.shape.class, Class::Table(_)));
    let about = match default {
        Some(default) => format!("{} [default: {}]", key.about, default.trim_matches('"')),
        None => key.about.to_owned(),
    };
    let mut row = format!("{head:COLUMN$}");
    if head.len() >= COLUMN {
        text.push_str(&head);
        text.push('\n');
        row = " ".repeat(COLUMN);
    }
    for word in about.split(' ') {
        if row.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(row.trim_end());
            text.push('\n');
            row = " ".repeat(COLUMN);
        }
        row.push(' ');
        row.push_str(word);
    }
    text.push_str(row.trim_end());
    text.push('\n');
    if let Class::Table(inner) = &key.shape.class {
        inner.iter().for_each(|inner| line(text, &format!("{before}{}.", key.name), inner));
    }
}

/// Returns `KEY=` and the meaning of every key that the operation takes. Keys of tables have a dot.
pub fn words(scope: KeyScope, operation: Operation) -> Vec<(String, &'static str)> {
    fn add(words: &mut Vec<(String, &'static str)>, before: &str, key: &Key) {
        words.push((format!("{before}{}=", key.name), key.about));
        if let Class::Table(inner) = &key.shape.class {
            inner.iter().for_each(|inner| add(words, &format!("{before}{}.", key.name), inner));
        }
    }
    let mut words = Vec::new();
    keys(scope, operation).iter().for_each(|known| add(&mut words, "", &known.key));
    words
}

/// Completes the words of keys, and accepts every word: [`KeyScope::check`] reports mistakes better than clap.
#[derive(Clone, Copy, Debug)]
pub struct KeyValue(pub KeyScope, pub Operation);

impl TypedValueParser for KeyValue {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        clap::builder::StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(words(self.0, self.1).into_iter().map(|(word, _)| PossibleValue::new(word))))
    }
}
