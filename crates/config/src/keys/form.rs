//! Forms of values: the type of a key's values, with unit and bounds.
//!
//! A [`Form`] reads a value and notes mistakes, writes a value back, and describes itself by a [`Shape`].

use std::ops::RangeInclusive;
use std::time::Duration;

use ringway_api::units;
use serde_json::Value as Json;

use super::key::{Class, Shape};
use super::mistake::alternatives;
use super::node::Value;
use super::reader::Keys;
use super::section::Validate;

/// The form of a key's values.
pub trait Form {
    /// The values.
    type Value;

    /// True for the form of a table, whose keys can be written one by one with a dot.
    const IS_TABLE: bool = false;

    /// Reads the value of `key`. `now` is its present value. Returns `None` if the key is absent, or after noting a mistake.
    fn read(&self, keys: &Keys<'_>, key: &'static str, now: Option<&Self::Value>) -> Option<Self::Value>;

    /// Reads the value of `key` once. Returns `None` if the key is absent or was read before, or after noting a mistake.
    fn take(&self, keys: &Keys<'_>, key: &'static str, now: &Self::Value) -> Option<Self::Value> {
        if keys.was_read(key) {
            return None;
        }
        let node = keys.entry(key).map(|entry| &entry.node);
        let value = match node.map(|node| &node.value) {
            Some(Value::Part(parts)) if !Self::IS_TABLE => {
                for part in parts {
                    let what = format!("{key} is one value and has no keys");
                    keys.wrong(&format!("{key}.{}", part.key), part.span.clone(), what, format!("write {key}=VALUE"));
                }
                None
            }
            _ => self.read(keys, key, Some(now)),
        };
        keys.note_read(key, value.is_some());
        value
    }

    /// Returns the value as JSON, null for no value.
    fn write(&self, value: &Self::Value) -> Json;

    /// Returns the shape of the values.
    fn shape(&self) -> Shape;
}

/// A whole number within bounds.
#[derive(Clone, Debug)]
pub struct Integer<T>(pub RangeInclusive<T>);

impl<T: Copy + TryFrom<u32> + Into<u32>> Form for Integer<T> {
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
            .class(Class::Integer(low.into(), high.into()))
    }
}

/// True or false.
#[derive(Clone, Copy, Debug)]
pub struct Boolean;

impl Form for Boolean {
    type Value = bool;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&bool>) -> Option<bool> {
        keys.boolean(key)
    }

    fn write(&self, value: &bool) -> Json {
        (*value).into()
    }

    fn shape(&self) -> Shape {
        Shape::text("true|false", "true or false").class(Class::Boolean).words(&["true", "false"])
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

/// Makes forms of numbers with a unit: name, placeholder for help, description, reader and writer.
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
        let text = alternatives(words.iter().copied());
        Shape::text(&words.join("|"), text).words(&words)
    }
}

/// A text that a function parses.
#[derive(Clone, Copy, Debug)]
pub struct Text<T> {
    /// For help: `NAME`.
    pub word: &'static str,
    /// The expectation in messages and documentation: `a switch's name`.
    pub wanted: &'static str,
    /// Parses the text, or returns the text of the mistake.
    pub read: fn(&str) -> Result<T, String>,
    /// Writes the text. An empty text stands for no value.
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
pub struct Optional<F>(pub F);

impl<F: Form> Form for Optional<F> {
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

/// A form with a value that stands for "not written". A user cannot write this value.
#[derive(Clone, Copy, Debug)]
pub struct WithSentinel<F: Form> {
    /// The value that stands for "not written".
    pub none: F::Value,
    /// The form of all other values.
    pub form: F,
}

impl<F: Form<Value: PartialEq>> Form for WithSentinel<F> {
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
    /// The expectation in messages: `a limit like { rate = "1Gbit" }`.
    pub wanted: &'static str,
    /// The table without any key.
    pub empty: fn() -> T,
}

impl<T: Validate + Clone> Form for TableOf<T> {
    type Value = T;

    const IS_TABLE: bool = true;

    fn read(&self, keys: &Keys<'_>, key: &'static str, now: Option<&T>) -> Option<T> {
        let is_part = matches!(keys.entry(key)?.node.value, Value::Part(_));
        let inner = keys.table(key, self.wanted)?;
        let mut table = now.filter(|_| is_part).cloned().unwrap_or_else(self.empty);
        table.read(&inner);
        if !is_part || keys.knows_present() {
            table.validate(&inner);
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
