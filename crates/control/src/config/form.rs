//! Forms of values: what the value of a key looks like, with its unit and bounds.
//!
//! A [`Form`] reads a value and notes what is wrong with it, writes a value back, and describes itself ([`Shape`]). From the
//! description follow the help of commands, the manual page, the description of the API and shell completion.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value as Json;

use super::keys::Keys;
use super::node::Value;
use super::table::{Key, Section};
use super::units;

/// The form of a key's values.
pub trait Form {
    /// The values.
    type Value;

    /// True for the form of a table, whose keys can be written one by one with a dot.
    const IS_TABLE: bool = false;

    /// Reads the value of `key`, which is `now` at present. Returns `None` when the key is absent, or after noting a mistake.
    fn read(&self, keys: &Keys<'_>, key: &'static str, now: Option<&Self::Value>) -> Option<Self::Value>;

    /// The value as it is written in JSON, null for none.
    fn write(&self, value: &Self::Value) -> Json;

    /// What the values look like.
    fn shape(&self) -> Shape;
}

/// What values look like, for people and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The text behind `KEY=` in help: `1..64`, `up|down`, `TIME`.
    pub word: String,
    /// A description that ends the sentence "The value is ...".
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
    Whole(u64, u64),
    /// True or false.
    Flag,
    /// A list of texts; one text is a list of one.
    Texts,
    /// A list of whole numbers.
    Numbers,
    /// A whole number with its bounds, or one of the words.
    WholeOrWord(u64, u64),
    /// A list of whole numbers and texts, or one of the words.
    NumbersOrWord,
    /// A table with these keys.
    Table(Vec<Key>),
}

impl Shape {
    /// A text.
    pub fn text(word: &str, text: impl Into<String>) -> Self {
        Self { word: word.to_owned(), text: text.into(), class: Class::Text, words: Vec::new() }
    }

    /// Values of another class.
    #[must_use]
    pub fn class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// Words that are values.
    #[must_use]
    pub fn words(self, words: &[&str]) -> Self {
        Self { words: words.iter().map(|word| (*word).to_owned()).collect(), ..self }
    }
}

/// A whole number within bounds.
#[derive(Clone, Debug)]
pub struct Whole<T>(pub RangeInclusive<T>);

impl<T: Copy + TryFrom<u32> + Into<u32>> Form for Whole<T> {
    type Value = T;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&T>) -> Option<T> {
        let (low, high) = (*self.0.start(), *self.0.end());
        keys.integer(key, low.into()..=high.into()).and_then(|number| T::try_from(number).ok())
    }

    fn write(&self, value: &T) -> Json {
        (*value).into().into()
    }

    fn shape(&self) -> Shape {
        let (low, high): (u32, u32) = ((*self.0.start()).into(), (*self.0.end()).into());
        Shape::text(&format!("{low}..{high}"), format!("a whole number from {low} to {high}"))
            .class(Class::Whole(low.into(), high.into()))
    }
}

/// True or false.
#[derive(Clone, Copy, Debug)]
pub struct Flag;

impl Form for Flag {
    type Value = bool;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&bool>) -> Option<bool> {
        keys.boolean(key)
    }

    fn write(&self, value: &bool) -> Json {
        (*value).into()
    }

    fn shape(&self) -> Shape {
        Shape::text("true|false", "true or false").class(Class::Flag).words(&["true", "false"])
    }
}

/// A duration within bounds.
#[derive(Clone, Debug)]
pub struct Time(pub RangeInclusive<Duration>);

impl Form for Time {
    type Value = Duration;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&Duration>) -> Option<Duration> {
        keys.duration(key, self.0.clone())
    }

    fn write(&self, value: &Duration) -> Json {
        units::show_duration(*value).into()
    }

    fn shape(&self) -> Shape {
        let [low, high] = [self.0.start(), self.0.end()].map(|bound| units::show_duration(*bound));
        Shape::text("TIME", format!("a duration from {low} to {high}, like \"50us\""))
    }
}

/// Forms of numbers with a unit: the name, the word for help, the words for people, and how they are read and shown.
macro_rules! quantities {
    ($($(#[$doc:meta])* $Form:ident, $word:literal, $text:literal, $read:ident, $show:path;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug)]
            pub struct $Form(pub RangeInclusive<u64>);

            impl Form for $Form {
                type Value = u64;

                fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&u64>) -> Option<u64> {
                    keys.$read(key, self.0.clone())
                }

                fn write(&self, value: &u64) -> Json {
                    $show(*value).into()
                }

                fn shape(&self) -> Shape {
                    let [low, high] = [self.0.start(), self.0.end()].map(|bound| $show(*bound));
                    Shape::text($word, format!($text, low, high))
                }
            }
        )*
    };
}

quantities! {
    /// Bytes, within bounds.
    Size, "SIZE", "a size from {} to {}, like \"64KiB\"", size, units::show_size;
    /// Bits per second, within bounds.
    Bits, "RATE", "a rate in bits per second from {} to {}, like \"500Mbit\"", bits, units::show_bits;
    /// Frames per second, within bounds.
    Frames, "RATE", "a rate in frames per second from {} to {}, like \"10kpps\"", rate, units::show_rate;
}

/// One of a few words.
#[derive(Clone, Copy, Debug)]
pub struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Form for Choice<T> {
    type Value = T;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&T>) -> Option<T> {
        keys.choice(key, self.0)
    }

    fn write(&self, value: &T) -> Json {
        self.0.iter().find(|(_, known)| known == value).map(|(word, _)| *word).into()
    }

    fn shape(&self) -> Shape {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        let text = super::mistake::alternatives(words.iter().copied());
        Shape::text(&words.join("|"), text).words(&words)
    }
}

/// A text that a function reads.
#[derive(Clone, Copy, Debug)]
pub struct Text<T> {
    /// For help: `NAME`.
    pub word: &'static str,
    /// What is expected, for messages and people: `a switch's name`.
    pub wanted: &'static str,
    /// Reads the text, or says what is wrong with it.
    pub read: fn(&str) -> Result<T, String>,
    /// Writes the text; an empty one stands for no value.
    pub write: fn(&T) -> String,
}

impl<T> Form for Text<T> {
    type Value = T;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&T>) -> Option<T> {
        keys.parsed(key, self.wanted, self.read)
    }

    fn write(&self, value: &T) -> Json {
        Some((self.write)(value)).filter(|text| !text.is_empty()).into()
    }

    fn shape(&self) -> Shape {
        Shape::text(self.word, self.wanted)
    }
}

/// A value that can be absent.
#[derive(Clone, Copy, Debug)]
pub struct Maybe<F>(pub F);

impl<F: Form> Form for Maybe<F> {
    type Value = Option<F::Value>;

    fn read(&self, keys: &Keys<'_>, key: &'static str, now: Option<&Self::Value>) -> Option<Self::Value> {
        self.0.read(keys, key, now.and_then(Option::as_ref)).map(Some)
    }

    fn write(&self, value: &Self::Value) -> Json {
        value.as_ref().map_or(Json::Null, |value| self.0.write(value))
    }

    fn shape(&self) -> Shape {
        self.0.shape()
    }
}

/// A value of which one, `none`, stands for "not written" and cannot be written.
#[derive(Clone, Copy, Debug)]
pub struct Unless<F: Form> {
    /// That value.
    pub none: F::Value,
    /// The form of the others.
    pub form: F,
}

impl<F: Form<Value: PartialEq>> Form for Unless<F> {
    type Value = F::Value;

    fn read(&self, keys: &Keys<'_>, key: &'static str, now: Option<&Self::Value>) -> Option<Self::Value> {
        self.form.read(keys, key, now)
    }

    fn write(&self, value: &Self::Value) -> Json {
        if *value == self.none { Json::Null } else { self.form.write(value) }
    }

    fn shape(&self) -> Shape {
        self.form.shape()
    }
}

/// A table of keys.
#[derive(Clone, Copy, Debug)]
pub struct TableOf<T> {
    /// What is expected, for messages: `a limit like { rate = "1Gbit" }`.
    pub wanted: &'static str,
    /// The table without any key.
    pub empty: fn() -> T,
}

impl<T: Section + Clone> Form for TableOf<T> {
    type Value = T;

    const IS_TABLE: bool = true;

    fn read(&self, keys: &Keys<'_>, key: &'static str, now: Option<&T>) -> Option<T> {
        let is_part = matches!(keys.entry(key)?.node.value, Value::Part(_));
        let inner = keys.table(key, self.wanted)?;
        let mut table = now.filter(|_| is_part).cloned().unwrap_or_else(self.empty);
        table.read(&inner);
        if !is_part || keys.knows_present() {
            table.agree(&inner);
        }
        inner.finish();
        Some(table)
    }

    fn write(&self, value: &T) -> Json {
        value.to_json()
    }

    fn shape(&self) -> Shape {
        let empty = (self.empty)();
        Shape::text("{...}", "a table of keys").class(Class::Table(empty.keys()))
    }
}
