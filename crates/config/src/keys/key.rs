//! The description of a key: its name, its meaning, whether it can change at run time, and the shape of its values. The help of
//! commands, the manual page, `/openapi.json` and shell completion are made from it.

use serde_json::Value as Json;

/// Whether a key can change at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutability {
    /// It can change while frames flow.
    Live,
    /// It cannot change while the port exists.
    Fixed,
}

/// The description of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, in one line.
    pub about: &'static str,
    /// Further facts, for the manual page.
    pub more: &'static str,
    /// Whether it can change at run time.
    pub mutability: Mutability,
    /// The shape of its values.
    pub shape: Shape,
    /// Its value in the table that it was read from, as JSON: the default in a table of defaults. Null: no value.
    pub value: Json,
}

impl Key {
    /// Returns `TABLE.KEY` if the value is a table that has this key.
    pub fn with_key(&self, key: &str) -> Option<String> {
        let (Class::Table(inner) | Class::TableOrWord(inner)) = &self.shape.class else { return None };
        inner.iter().any(|inner| inner.name == key).then(|| format!("{}.{key}", self.name))
    }

    /// Returns the value as TOML. Returns `None` for no value, an empty list and an empty table.
    pub fn toml(&self) -> Option<String> {
        let is_empty = match &self.value {
            Json::Null => true,
            Json::Array(list) => list.is_empty(),
            Json::Object(table) => table.is_empty(),
            _ => false,
        };
        (!is_empty).then(|| toml(&self.value))
    }
}

/// Returns the value as TOML, in one line.
pub fn toml(value: &Json) -> String {
    match value {
        Json::Array(list) => format!("[{}]", list.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Json::Object(table) => {
            let keys: Vec<String> = table.iter().map(|(key, value)| format!("{key} = {}", toml(value))).collect();
            format!("{{ {} }}", keys.join(", "))
        }
        // TOML and JSON escape the same characters in the same way, but for this one.
        other => other.to_string().replace('\u{7f}', "\\u007f"),
    }
}

/// The shape of a key's values, for people and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The placeholder after `KEY=` in help: `1..64`, `up|down`, `TIME`.
    pub word: String,
    /// A description that completes the sentence "The value is ...".
    pub text: String,
    /// The type of the value.
    pub class: Class,
    /// Words that are values, for completion.
    pub words: Vec<String>,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Class {
    /// A text.
    Text,
    /// A whole number with its bounds.
    Integer(u64, u64),
    /// True or false.
    Boolean,
    /// A list of texts; one text is a list of one.
    Texts,
    /// A list of whole numbers.
    Numbers,
    /// A whole number with its bounds, or one of the words.
    IntegerOrWord(u64, u64),
    /// A list of whole numbers and texts, or one of the words.
    NumbersOrWord,
    /// A table with these keys.
    Table(Vec<Key>),
    /// A table with these keys, or one of the words.
    TableOrWord(Vec<Key>),
}

impl Shape {
    /// The shape of a text.
    pub fn text(word: &str, text: impl Into<String>) -> Self {
        Self { word: word.to_owned(), text: text.into(), class: Class::Text, words: Vec::new() }
    }

    /// Returns the shape with another class.
    #[must_use]
    pub fn class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// Returns the shape with these words.
    #[must_use]
    pub fn words(self, words: &[&str]) -> Self {
        Self { words: words.iter().map(|word| (*word).to_owned()).collect(), ..self }
    }
}
