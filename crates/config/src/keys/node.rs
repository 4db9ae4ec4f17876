//! Values with their places, from TOML, `KEY=VALUE` words or JSON.

use std::ops::Range;

use ringway_api::Mistake;
use toml::de::{DeTable, DeValue};
use toml_parser::Source;
use toml_parser::lexer::TokenKind;

/// Most parts of a dotted key. No key has as many; each part is a table within a table, which recursion goes through.
const MOST_PARTS: usize = 32;

/// A value of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its place in the text, if it comes from a text.
    pub span: Option<Range<usize>>,
    /// The word itself, if it comes from a command line: in `device=0` the `0` is a name although it is also a number.
    pub word: Option<String>,
}

/// What a [`Node`] holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Boolean(bool),
    /// An array.
    List(Vec<Node>),
    /// A table, in the order of its keys.
    Table(Vec<Entry>),
    /// Keys of a table that are written one by one with a dot (`ingress.rate`). The other keys of the table keep their values.
    Part(Vec<Entry>),
    /// A value that no key takes. The text names it for messages ("a date", "null").
    Other(&'static str),
}

/// One key of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The place of the key in the text.
    pub span: Option<Range<usize>>,
    /// The value.
    pub node: Node,
}

impl Node {
    /// A value without a place.
    pub fn new(value: Value) -> Self {
        Self { value, span: None, word: None }
    }

    /// Reads TOML text.
    ///
    /// # Errors
    /// Every place where the text is not TOML, or the first key of more parts than any key has.
    pub fn from_toml(text: &str) -> Result<Self, Vec<Mistake>> {
        if let Some(span) = too_many_parts(text) {
            let what = format!("a key of more than {MOST_PARTS} parts");
            let right = "keys have a few parts, as in `ingress.rate`".to_owned();
            return Err(vec![Mistake { key: String::new(), span: Some(span), what, right }]);
        }
        let (document, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let mistake = |e: toml::de::Error| Mistake {
                key: String::new(),
                span: Some(e.span().unwrap_or(0..0)),
                what: e.message().trim_end().replace('\n', "; "),
                right: String::new(),
            };
            return Err(errors.into_iter().map(mistake).collect());
        }
        Ok(from_table(document.get_ref(), None))
    }

    /// Reads the value of a `KEY=VALUE` word: as TOML if it is valid TOML, else as a string.
    pub fn from_word(word: &str) -> Self {
        let text = || Self::new(Value::Text(word.to_owned()));
        let mut node = match too_many_parts(word) {
            Some(_) => text(),
            None => DeValue::parse(word).map_or_else(|_| text(), |v| from_value(v.get_ref(), None)),
        };
        if !matches!(node.value, Value::List(_) | Value::Table(_) | Value::Text(_)) {
            node.word = Some(word.to_owned());
        }
        node.forget_places();
        node
    }

    /// Reads JSON.
    pub fn from_json(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let entry =
            |(key, value): (&String, &Json)| Entry { key: key.clone(), span: None, node: Self::from_json(value) };
        Self::new(match json {
            Json::Null => Value::Other("null"),
            Json::Bool(b) => Value::Boolean(*b),
            Json::Number(n) => n.as_i64().map_or(Value::Other("a number that is not whole"), Value::Integer),
            Json::String(s) => Value::Text(s.clone()),
            Json::Array(list) => Value::List(list.iter().map(Self::from_json).collect()),
            Json::Object(table) => Value::Table(table.iter().map(entry).collect()),
        })
    }

    /// A table of texts, for keys that a program writes.
    pub fn of_texts(texts: &[(&str, &str)]) -> Self {
        let entry = |(key, text): &(&str, &str)| Entry {
            key: (*key).to_owned(),
            span: None,
            node: Self::new(Value::Text((*text).to_owned())),
        };
        Self::new(Value::Table(texts.iter().map(entry).collect()))
    }

    /// Returns the table with its dotted keys (`ingress.rate`) as parts of tables. TOML's parser does this itself. A key of more parts than
    /// any key has stays as it is, so that it is reported as unknown.
    #[must_use]
    pub fn with_dotted_keys(self) -> Self {
        match self.value {
            Value::Table(entries) => Self { value: Value::Table(split_dots(entries)), ..self },
            _ => self,
        }
    }

    /// Returns the node as JSON, with dotted keys for parts of tables. A value that no key takes becomes the word itself, so that the
    /// daemon can report it.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Text(text) => text.as_str().into(),
            Value::Integer(number) => (*number).into(),
            Value::Boolean(boolean) => (*boolean).into(),
            Value::List(list) => list.iter().map(Self::to_json).collect(),
            Value::Table(table) | Value::Part(table) => {
                let mut object = serde_json::Map::new();
                write_entries(table, "", &mut object);
                object.into()
            }
            Value::Other(_) => self.word.as_deref().into(),
        }
    }

    /// Returns a description of the value, for "expected a string, found ...".
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Text(t) => format!("{t:?}"),
            Value::Integer(n) => n.to_string(),
            Value::Boolean(b) => b.to_string(),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) | Value::Part(_) => "a table".to_owned(),
            Value::Other(what) => (*what).to_owned(),
        }
    }

    fn forget_places(&mut self) {
        self.span = None;
        match &mut self.value {
            Value::List(list) => list.iter_mut().for_each(Self::forget_places),
            Value::Table(table) | Value::Part(table) => {
                for entry in table {
                    entry.span = None;
                    entry.node.forget_places();
                }
            }
            _ => {}
        }
    }
}

fn write_entries(entries: &[Entry], before: &str, object: &mut serde_json::Map<String, serde_json::Value>) {
    for entry in entries {
        let key = format!("{before}{}", entry.key);
        match &entry.node.value {
            Value::Part(parts) => write_entries(parts, &format!("{key}."), object),
            _ => drop(object.insert(key, entry.node.to_json())),
        }
    }
}

/// Returns the place of the first key of TOML text that has more than [`MOST_PARTS`] parts. The parser would make a table for each part, and
/// the stack would not hold the recursion through them. The parser's own lexer tells dots from those in strings and comments.
fn too_many_parts(text: &str) -> Option<Range<usize>> {
    let (mut start, mut dots) = (0, 0);
    for token in Source::new(text).lex() {
        let place = token.span();
        match token.kind() {
            TokenKind::Dot => dots += 1,
            TokenKind::Atom | TokenKind::BasicString | TokenKind::LiteralString | TokenKind::Whitespace => continue,
            // Ends a key, or is between values.
            _ => (start, dots) = (place.end(), 0),
        }
        if dots >= MOST_PARTS {
            return Some(start..place.start());
        }
    }
    None
}

fn split_dots(entries: Vec<Entry>) -> Vec<Entry> {
    let mut split: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries {
        let is_key = entry.key.bytes().filter(|&byte| byte == b'.').nth(MOST_PARTS - 1).is_none();
        let (head, rest) = match entry.key.split_once('.') {
            Some((head, rest)) if is_key && !head.is_empty() && !rest.is_empty() => (head.to_owned(), rest.to_owned()),
            _ => {
                split.push(entry);
                continue;
            }
        };
        let entry = Entry { key: rest, ..entry };
        let parts = split.iter_mut().find_map(|before| match &mut before.node.value {
            Value::Part(parts) if before.key == head => Some(parts),
            _ => None,
        });
        match parts {
            Some(parts) => parts.push(entry),
            None => split.push(Entry { key: head, span: None, node: Node::new(Value::Part(vec![entry])) }),
        }
    }
    for entry in &mut split {
        if let Value::Part(parts) = &mut entry.node.value {
            *parts = split_dots(std::mem::take(parts));
        }
    }
    split
}

fn from_table(table: &DeTable<'_>, span: Option<Range<usize>>) -> Node {
    let entry = |(key, value): (&toml::Spanned<toml::de::DeString<'_>>, &toml::Spanned<DeValue<'_>>)| Entry {
        key: key.get_ref().to_string(),
        span: Some(key.span()),
        node: from_value(value.get_ref(), Some(value.span())),
    };
    Node { value: Value::Table(table.iter().map(entry).collect()), span, word: None }
}

fn from_value(value: &DeValue<'_>, span: Option<Range<usize>>) -> Node {
    let value = match value {
        DeValue::String(s) => Value::Text(s.to_string()),
        DeValue::Integer(n) => {
            // The parser has removed underscores and the prefix of the base.
            i64::from_str_radix(n.as_str(), n.radix()).map_or(Value::Other("a number too large"), Value::Integer)
        }
        DeValue::Float(_) => Value::Other("a number that is not whole"),
        DeValue::Boolean(b) => Value::Boolean(*b),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(list) => Value::List(list.iter().map(|v| from_value(v.get_ref(), Some(v.span()))).collect()),
        DeValue::Table(table) => return from_table(table, span),
    };
    Node { value, span, word: None }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
