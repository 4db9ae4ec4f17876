//! The keys of ports, buckets and switches: in the help of commands, and for shell completion. All of it comes from the tables of
//! keys in ringway-control.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use ringway_control::config::form::Class;
use ringway_control::config::port::PortKey;
use ringway_control::config::table::{Key, When};
use ringway_control::config::{Kind, Subject};

/// Width of the column of `KEY=VALUE`.
const COLUMN: usize = 32;

/// Width of a line.
const WIDTH: usize = 98;

/// What keys are given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// All settings: of a new port, of a bucket.
    New,
    /// What is to change.
    Changed,
}

/// The keys that can be given.
fn keys(subject: Subject, given: Given) -> Vec<PortKey> {
    let mut keys = subject.keys();
    keys.retain(|known| given == Given::New || known.key.when == When::Live);
    keys
}

/// The list of keys for the help of a command, and an example.
pub fn help(subject: Subject, given: Given, example: &str) -> String {
    let rest = match (subject, given) {
        (Subject::Port, Given::Changed) => "; what is left out stays as it is, all else is fixed when the port is made",
        (_, Given::Changed) => "; what is left out stays as it is",
        (Subject::Bucket, Given::New) => "; what is left out is the default again",
        (_, Given::New) => "",
    };
    let mut text = format!("Keys, as in {} of the configuration{rest}:\n", subject.section());
    let all = keys(subject, given);
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

/// A key, what it means, and its default; then the keys of a table.
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

/// `KEY=` of every key that can be given, the keys of tables with a dot, and what each means.
pub fn words(subject: Subject, given: Given) -> Vec<(String, &'static str)> {
    fn add(words: &mut Vec<(String, &'static str)>, before: &str, key: &Key) {
        words.push((format!("{before}{}=", key.name), key.about));
        if let Class::Table(inner) = &key.shape.class {
            inner.iter().for_each(|inner| add(words, &format!("{before}{}.", key.name), inner));
        }
    }
    let mut words = Vec::new();
    keys(subject, given).iter().for_each(|known| add(&mut words, "", &known.key));
    words
}

/// Takes every word, and completes those of keys: [`ringway_control::config::Subject::check`] says more of a wrong one than clap
/// could.
#[derive(Clone, Copy, Debug)]
pub struct KeyValue(pub Subject, pub Given);

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
