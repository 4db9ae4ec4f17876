//! Reads a table by key and notes every mistake.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use ringway_api::Mistake;
use ringway_api::units;

use super::key::Key;
use super::mistake::{alternatives, nearest};
use super::node::{Entry, Node, Value};

/// The keys of one table. Read every key that is known, then call [`Keys::finish`], which reports the others.
///
/// Every getter returns `None` if the key is absent, or after it has noted a mistake.
#[derive(Debug)]
pub struct Keys<'a> {
    path: String,
    entries: &'a [Entry],
    span: Option<Range<usize>>,
    known: RefCell<Vec<&'static str>>,
    /// The keys that a form has read, and whether their values can be used.
    read: RefCell<Vec<(&'static str, bool)>>,
    /// False if the present values of keys are not known: a command does not know those of the daemon.
    knows_present: bool,
    mistakes: &'a RefCell<Vec<Mistake>>,
}

impl<'a> Keys<'a> {
    /// The keys of `node`, which messages call `path`. A node that is no table is a mistake and has no keys. `span` is the place that
    /// messages give for a missing key.
    pub fn new(path: &str, node: &'a Node, span: Option<Range<usize>>, mistakes: &'a RefCell<Vec<Mistake>>) -> Self {
        let entries: &[Entry] = if let Value::Table(entries) | Value::Part(entries) = &node.value {
            entries
        } else {
            let what = format!("expected a table of keys, found {}", node.describe());
            let right = if path.is_empty() { String::new() } else { format!("write [{path}] and its keys below") };
            mistakes.borrow_mut().push(Mistake { key: path.to_owned(), span: node.span.clone(), what, right });
            &[]
        };
        Self {
            path: path.to_owned(),
            entries,
            span,
            known: RefCell::default(),
            read: RefCell::default(),
            knows_present: true,
            mistakes,
        }
    }

    /// Returns the keys for a reader that does not know the present values: it checks parts of tables value by value only.
    #[must_use]
    pub fn without_present(self) -> Self {
        Self { knows_present: false, ..self }
    }

    /// Returns true if the present values of keys are known.
    pub fn knows_present(&self) -> bool {
        self.knows_present
    }

    /// Returns the entry of `key`, which is a known key from now on.
    pub fn entry(&self, key: &'static str) -> Option<&'a Entry> {
        self.known.borrow_mut().push(key);
        self.entries.iter().find(|e| e.key == key)
    }

    /// Returns true if the value of the key was read before.
    pub fn was_read(&self, key: &str) -> bool {
        self.read.borrow().iter().any(|(read, _)| *read == key)
    }

    /// Notes that the value of the key was read, and whether it can be used.
    pub fn note_read(&self, key: &'static str, usable: bool) {
        self.read.borrow_mut().push((key, usable));
    }

    /// Returns true if the key was written, whether or not its value can be used.
    pub fn has(&self, key: &'static str) -> bool {
        self.entry(key).is_some()
    }

    /// Returns true if a form has read a usable value of the key.
    pub fn understood(&self, key: &str) -> bool {
        self.read.borrow().iter().any(|(read, usable)| *read == key && *usable)
    }

    /// Returns the place of a key.
    pub fn span_of_key(&self, key: &'static str) -> Option<Range<usize>> {
        self.entry(key).and_then(|entry| entry.span.clone())
    }

    /// Returns the place of a key's value.
    pub fn span_of_value(&self, key: &'static str) -> Option<Range<usize>> {
        self.entry(key).and_then(|entry| entry.node.span.clone())
    }

    /// Returns all entries, for tables whose keys are names.
    pub fn entries(&self) -> &'a [Entry] {
        self.entries
    }

    /// Returns the path of a key, for example `port.vm1`.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Notes that the value of `key` is wrong.
    pub fn wrong(&self, key: &str, span: Option<Range<usize>>, what: impl Into<String>, right: impl Into<String>) {
        let mistake = Mistake { key: self.path_of(key), span, what: what.into(), right: right.into() };
        self.mistakes.borrow_mut().push(mistake);
    }

    /// Notes that `key` is required and absent.
    pub fn missing(&self, key: &str, right: impl Into<String>) {
        self.wrong(key, self.span.clone(), "missing", right);
    }

    fn expected<T>(&self, key: &str, node: &Node, wanted: &str) -> Option<T> {
        self.wrong(key, node.span.clone(), format!("expected {wanted}, found {}", node.describe()), "");
        None
    }

    /// Reads a string by the function `read`, which returns the value or the text of the mistake.
    pub fn parsed<T>(&self, key: &'static str, wanted: &str, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let entry = self.entry(key)?;
        self.parse_node(key, &entry.node, wanted, read)
    }

    fn parse_node<T>(
        &self,
        key: &str,
        node: &Node,
        wanted: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = match (&node.value, &node.word) {
            (Value::Text(text), _) | (_, Some(text)) => text,
            _ => return self.expected(key, node, wanted),
        };
        read(text).map_err(|what| self.wrong(key, node.span.clone(), what, "")).ok()
    }

    /// Reads a list of strings, or one string with commas between its parts. Returns each value with its place. No part has a comma.
    pub fn parsed_list<T>(
        &self,
        key: &'static str,
        wanted: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<(T, Option<Range<usize>>)>> {
        let node = &self.entry(key)?.node;
        let parts = |text: &str| -> Vec<Node> {
            let part = |part: &str| Node { span: node.span.clone(), ..Node::new(Value::Text(part.trim().to_owned())) };
            text.split(',').map(part).collect()
        };
        let nodes = match &node.value {
            Value::List(list) => list.clone(),
            Value::Text(text) if text.contains(',') => parts(text),
            _ => vec![node.clone()],
        };
        let item = |n: &Node| Some((self.parse_node(key, n, wanted, &read)?, n.span.clone()));
        let read: Vec<_> = nodes.iter().map(item).collect();
        read.into_iter().collect()
    }

    /// Reads a list of up to `most` addresses without duplicates.
    pub fn distinct<T: Ord + Copy + fmt::Display>(
        &self,
        key: &'static str,
        wanted: &str,
        most: usize,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<BTreeSet<T>> {
        let mut all = BTreeSet::new();
        for (one, span) in self.parsed_list(key, wanted, read)? {
            if !all.insert(one) {
                self.wrong(key, span, format!("{one} is listed twice"), "list it once");
            } else if all.len() == most + 1 {
                self.wrong(key, span, "too many addresses", format!("a port can have up to {most}"));
            }
        }
        Some(all)
    }

    /// Reads a list of whole numbers. Returns each with its place.
    pub fn integers(&self, key: &'static str, wanted: &str) -> Option<Vec<(i64, Option<Range<usize>>)>> {
        let node = &self.entry(key)?.node;
        let Value::List(list) = &node.value else { return self.expected(key, node, wanted) };
        let item = |n: &Node| match n.value {
            Value::Integer(value) => Some((value, n.span.clone())),
            _ => self.expected(key, n, wanted),
        };
        let read: Vec<_> = list.iter().map(item).collect();
        read.into_iter().collect()
    }

    /// Reads one of a few words.
    pub fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let words = || choices.iter().map(|(word, _)| *word);
        self.parsed(key, &alternatives(words()), |text| {
            let found = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
            found.ok_or_else(|| match nearest(text, words()) {
                Some(near) => {
                    format!("unknown value {text:?}; did you mean \"{near}\"? ({} can be used)", alternatives(words()))
                }
                None => format!("unknown value {text:?}; write {}", alternatives(words())),
            })
        })
    }

    /// Reads a whole number within `range`.
    pub fn integer(&self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let node = &self.entry(key)?.node;
        let wanted = || format!("a whole number from {} to {}", range.start(), range.end());
        let Value::Integer(n) = node.value else { return self.expected(key, node, &wanted()) };
        match u32::try_from(n).ok().filter(|n| range.contains(n)) {
            Some(n) => Some(n),
            None => {
                self.wrong(key, node.span.clone(), format!("{n} is out of range"), format!("write {}", wanted()));
                None
            }
        }
    }

    /// Reads true or false.
    pub fn boolean(&self, key: &'static str) -> Option<bool> {
        let node = &self.entry(key)?.node;
        let Value::Boolean(b) = node.value else { return self.expected(key, node, "true or false") };
        Some(b)
    }

    /// Reads a duration within `range`.
    pub fn duration(&self, key: &'static str, range: RangeInclusive<Duration>) -> Option<Duration> {
        self.parsed(key, "a duration like \"300s\"", |text| {
            let value = units::duration(text)?;
            let (low, high) = (units::show_duration(*range.start()), units::show_duration(*range.end()));
            let outside = || format!("{text} is out of range; write {low} to {high}");
            range.contains(&value).then_some(value).ok_or_else(outside)
        })
    }

    /// Reads a size in bytes within `range`.
    pub fn size(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.parsed(key, "a size like \"64MiB\"", |text| {
            let value = units::size(text)?;
            let (low, high) = (units::show_size(*range.start()), units::show_size(*range.end()));
            let outside = || format!("{text} is out of range; write {low} to {high}");
            range.contains(&value).then_some(value).ok_or_else(outside)
        })
    }

    /// Reads a rate in frames per second within `range`.
    pub fn rate(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.parsed(key, "a rate of frames like \"10kpps\"", |text| {
            let value = units::rate(text)?;
            let (low, high) = (units::show_rate(*range.start()), units::show_rate(*range.end()));
            let outside = || format!("{text} is out of range; write {low} to {high}");
            range.contains(&value).then_some(value).ok_or_else(outside)
        })
    }

    /// Reads a rate in bits per second within `range`.
    pub fn bits(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.parsed(key, "a rate like \"500Mbit\"", |text| {
            let value = units::bits(text)?;
            let (low, high) = (units::show_bits(*range.start()), units::show_bits(*range.end()));
            let outside = || format!("{text} is out of range; write {low} to {high}");
            range.contains(&value).then_some(value).ok_or_else(outside)
        })
    }

    /// Returns the keys of a nested table. `wanted` is the expectation in messages.
    pub fn table(&self, key: &'static str, wanted: &str) -> Option<Keys<'a>> {
        let entry = self.entry(key)?;
        match entry.node.value {
            Value::Table(_) | Value::Part(_) => {
                let inner = Keys::new(&self.path_of(key), &entry.node, entry.span.clone(), self.mistakes);
                Some(Keys { knows_present: self.knows_present, ..inner })
            }
            _ => self.expected(key, &entry.node, wanted),
        }
    }

    /// Notes every key that is not known, and keys that are given twice.
    pub fn finish(self) {
        self.finish_among(Vec::new);
    }

    /// Notes every key that is not known, and keys that are given twice. A key that belongs into a table among `keys` is told so.
    pub fn finish_among(self, keys: impl Fn() -> Vec<Key>) {
        let mut known: Vec<&str> = self.known.borrow().clone();
        known.sort_unstable();
        known.dedup();
        let is_known = |key: &str| known.binary_search(&key).is_ok();
        let unknown = |entry: &Entry, key: &str, below: &str| {
            let tables: Vec<String> = keys().iter().filter_map(|table| table.with_key(key)).collect();
            let right = match nearest(key, known.iter().copied()) {
                _ if below.is_empty() && !tables.is_empty() => {
                    format!("did you mean {}?", alternatives(tables.iter().map(String::as_str)))
                }
                Some(near) => format!("did you mean \"{near}{below}\"?"),
                None if known.is_empty() => String::new(),
                None => format!("the keys here are {}", known.join(", ")),
            };
            self.wrong(&format!("{key}{below}"), entry.span.clone(), "unknown key", right);
        };
        for (number, entry) in self.entries.iter().enumerate() {
            match &entry.node.value {
                Value::Part(parts) if !is_known(&entry.key) => {
                    parts.iter().for_each(|part| unknown(part, &entry.key, &format!(".{}", part.key)));
                }
                _ if !is_known(&entry.key) => unknown(entry, &entry.key, ""),
                // `ingress={...} ingress.rate=1Gbit`.
                _ if self.entries[..number].iter().any(|before| before.key == entry.key) => {
                    let right = "give it whole, or its keys with a dot";
                    self.wrong(&entry.key, entry.span.clone(), "given twice", right);
                }
                _ => {}
            }
        }
    }
}
