//! Reads a table by key and notes every mistake on the way.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use super::mistake::{Mistake, alternatives, nearest};
use super::node::{Entry, Node, Value};
use super::units;

/// The keys of one table. Ask for each key that may be there, then call [`Keys::finish`], which reports the others.
///
/// Every getter gives `None` when the key is absent or unusable; in the second case a mistake has been noted.
#[derive(Debug)]
pub struct Keys<'a> {
    path: String,
    entries: &'a [Entry],
    span: Option<Range<usize>>,
    asked: RefCell<Vec<&'static str>>,
    mistakes: &'a RefCell<Vec<Mistake>>,
}

impl<'a> Keys<'a> {
    /// The keys of `node`, which is called `path` in messages. A node that is no table is a mistake and has no keys.
    /// `span` is where to point when a key is missing.
    pub fn new(path: &str, node: &'a Node, span: Option<Range<usize>>, mistakes: &'a RefCell<Vec<Mistake>>) -> Self {
        let entries: &[Entry] = if let Value::Table(entries) = &node.value {
            entries
        } else {
            let what = format!("expected a table of keys, found {}", node.describe());
            let right = if path.is_empty() { String::new() } else { format!("write [{path}] and its keys below") };
            mistakes.borrow_mut().push(Mistake { key: path.to_owned(), span: node.span.clone(), what, right });
            &[]
        };
        Self { path: path.to_owned(), entries, span, asked: RefCell::default(), mistakes }
    }

    /// The entry of `key`.
    pub fn entry(&self, key: &'static str) -> Option<&'a Entry> {
        self.asked.borrow_mut().push(key);
        self.entries.iter().find(|e| e.key == key)
    }

    /// All entries, for tables whose keys are names.
    pub fn entries(&self) -> &'a [Entry] {
        self.entries
    }

    /// A child table's path: `port.vm1`.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Notes that the value of `key` is wrong.
    pub fn wrong(&self, key: &str, span: Option<Range<usize>>, what: impl Into<String>, right: impl Into<String>) {
        let mistake = Mistake { key: self.path_of(key), span, what: what.into(), right: right.into() };
        self.mistakes.borrow_mut().push(mistake);
    }

    /// Notes that `key` must be there and is not.
    pub fn missing(&self, key: &str, right: impl Into<String>) {
        self.wrong(key, self.span.clone(), "missing", right);
    }

    fn expected<T>(&self, key: &str, node: &Node, wanted: &str) -> Option<T> {
        self.wrong(key, node.span.clone(), format!("expected {wanted}, found {}", node.describe()), "");
        None
    }

    /// A string that `read` turns into a value or explains.
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

    /// A list of strings, or one string for a list of one; each with its place. None of these strings has a comma.
    pub fn parsed_list<T>(
        &self,
        key: &'static str,
        wanted: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<(T, Option<Range<usize>>)>> {
        let node = &self.entry(key)?.node;
        let nodes = if let Value::List(list) = &node.value { list } else { std::slice::from_ref(node) };
        if let Value::Text(text) = &node.value
            && text.contains(',')
        {
            let parts: Vec<String> = text.split(',').map(|part| format!("{:?}", part.trim())).collect();
            let (what, right) =
                (format!("{text:?} is not one"), format!("write several as a list: [{}]", parts.join(", ")));
            self.wrong(key, node.span.clone(), what, right);
            return None;
        }
        let item = |n: &Node| Some((self.parse_node(key, n, wanted, &read)?, n.span.clone()));
        let read: Vec<_> = nodes.iter().map(item).collect();
        read.into_iter().collect()
    }

    /// A list of whole numbers, each with its place.
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

    /// One of a few words.
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

    /// A whole number within `range`.
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

    /// True or false.
    pub fn boolean(&self, key: &'static str) -> Option<bool> {
        let node = &self.entry(key)?.node;
        let Value::Boolean(b) = node.value else { return self.expected(key, node, "true or false") };
        Some(b)
    }

    /// A duration within `range`.
    pub fn duration(&self, key: &'static str, range: RangeInclusive<Duration>) -> Option<Duration> {
        self.parsed(key, "a duration like \"300s\"", |text| {
            let value = units::duration(text)?;
            let (low, high) = (units::show_duration(*range.start()), units::show_duration(*range.end()));
            let outside = || format!("{text} is out of range; write {low} to {high}");
            range.contains(&value).then_some(value).ok_or_else(outside)
        })
    }

    /// A size in bytes within `range`.
    pub fn size(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.parsed(key, "a size like \"64MiB\"", |text| {
            let value = units::size(text)?;
            let (low, high) = (units::show_size(*range.start()), units::show_size(*range.end()));
            let outside = || format!("{text} is out of range; write {low} to {high}");
            range.contains(&value).then_some(value).ok_or_else(outside)
        })
    }

    /// A rate in frames per second within `range`.
    pub fn rate(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.parsed(key, "a rate of frames like \"10kpps\"", |text| {
            let value = units::rate(text)?;
            let (low, high) = (units::show_rate(*range.start()), units::show_rate(*range.end()));
            let outside = || format!("{text} is out of range; write {low} to {high}");
            range.contains(&value).then_some(value).ok_or_else(outside)
        })
    }

    /// A rate in bits per second within `range`.
    pub fn bits(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.parsed(key, "a rate like \"500Mbit\"", |text| {
            let value = units::bits(text)?;
            let (low, high) = (units::show_bits(*range.start()), units::show_bits(*range.end()));
            let outside = || format!("{text} is out of range; write {low} to {high}");
            range.contains(&value).then_some(value).ok_or_else(outside)
        })
    }

    /// The keys of a table; `wanted` is what it should be.
    pub fn table(&self, key: &'static str, wanted: &str) -> Option<Keys<'a>> {
        let entry = self.entry(key)?;
        match entry.node.value {
            Value::Table(_) => Some(Keys::new(&self.path_of(key), &entry.node, entry.span.clone(), self.mistakes)),
            _ => self.expected(key, &entry.node, wanted),
        }
    }

    /// Reports a key of a later version, whose absence would surprise, as such.
    pub fn later(&self, key: &'static str) {
        self.asked.borrow_mut().retain(|k| *k != key);
        if let Some(entry) = self.entries.iter().find(|e| e.key == key) {
            self.wrong(key, entry.span.clone(), "not available in this version", "leave it out");
            self.asked.borrow_mut().push(key);
        }
    }

    /// Reports every key that nobody asked for.
    pub fn finish(self) {
        let asked = self.asked.borrow();
        for entry in self.entries.iter().filter(|e| !asked.iter().any(|k| *k == e.key)) {
            let mut known: Vec<&str> = asked.clone();
            known.sort_unstable();
            known.dedup();
            let right = match nearest(&entry.key, known.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None if known.is_empty() => String::new(),
                None => format!("the keys here are {}", known.join(", ")),
            };
            self.wrong(&entry.key, entry.span.clone(), "unknown key", right);
        }
    }
}
