//! Tables of keys. A key stands in one line of `keys!`: its field and type, its default, its [form](super::form) with unit and
//! bounds, when it may change, and what it means. From that line follow the field of the settings, the parser, `port set`, the
//! difference between two configurations, the help of commands, `/openapi.json`, the manual page and shell completion.

use serde_json::Value as Json;

use super::form::Shape;
use super::keys::Keys;

/// When a key may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// While frames flow.
    Live,
    /// Not while the port exists.
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
    /// When it may change.
    pub when: When,
    /// The shape of its values.
    pub shape: Shape,
    /// Its value in the table that was asked, as JSON: in a table of defaults the default. Null: none.
    pub value: Json,
}

impl Key {
    /// The value as it stands in a configuration file; none for no value, an empty list and an empty table.
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

fn toml(value: &Json) -> String {
    match value {
        Json::Array(list) => format!("[{}]", list.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Json::Object(table) => {
            let keys: Vec<String> = table.iter().map(|(key, value)| format!("{key} = {}", toml(value))).collect();
            format!("{{ {} }}", keys.join(", "))
        }
        // Texts of keys have no character that TOML and JSON write in different ways.
        other => other.to_string(),
    }
}

/// Settings that are a table of keys.
pub trait Table {
    /// The keys, with their values in this table, in the order in which people read them.
    fn keys(&self) -> Vec<Key>;

    /// The values of the keys as JSON, null where there is none.
    fn values(&self) -> Vec<(&'static str, When, Json)>;

    /// Takes the values that are written and can be used. Notes the mistakes in the others.
    fn read(&mut self, keys: &Keys<'_>);

    /// The table as JSON, without keys that have no value.
    fn to_json(&self) -> Json {
        let values = self.values().into_iter().filter(|(.., value)| !value.is_null());
        Json::Object(values.map(|(name, _, value)| (name.to_owned(), value)).collect())
    }
}

/// A table whose keys have to agree with each other.
pub trait Section: Table {
    /// Notes keys that do not go together, and takes what follows from those that were written. `keys` were read before.
    fn agree(&mut self, keys: &Keys<'_>) {
        let _ = keys;
    }
}

/// Makes a struct of settings and its table of keys. A line is a key:
///
/// ```text
/// FIELD [as "NAME"]: TYPE = DEFAULT, FORM, Live|Fixed, "what it means" [, "what else there is to know"];
/// ```
///
/// The name of the key is that of the field unless `as` gives another. `groups` are tables whose keys stand beside these ones, and
/// `fields` are settings that are no keys.
macro_rules! keys {
    (
        $(#[$meta:meta])*
        pub struct $Table:ident {
            $($field:ident $(as $name:literal)?: $type:ty =
                $default:expr, $form:expr, $when:ident, $about:literal $(, $more:literal)?;)*
        }
        $(groups { $($(#[$group_meta:meta])* $group:ident: $Group:ty),* $(,)? })?
    ) => {
        $crate::config::table::keys! {
            $(#[$meta])*
            pub struct $Table {
                $($field $(as $name)?: $type = $default, $form, $when, $about $(, $more)?;)*
            }
            groups { $($($(#[$group_meta])* $group: $Group),*)? }
            fields {}
        }

        impl Default for $Table {
            fn default() -> Self {
                Self::defaults()
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $Table:ident {
            $($field:ident $(as $name:literal)?: $type:ty =
                $default:expr, $form:expr, $when:ident, $about:literal $(, $more:literal)?;)*
        }
        groups { $($(#[$group_meta:meta])* $group:ident: $Group:ty),* $(,)? }
        fields { $($(#[$plain_meta:meta])* $plain:ident: $Plain:ty),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $Table {
            $($(#[$plain_meta])* pub $plain: $Plain,)*
            $(#[doc = $about] pub $field: $type,)*
            $($(#[$group_meta])* pub $group: $Group,)*
        }

        impl $Table {
            /// The defaults.
            pub(crate) fn defaults($($plain: $Plain),*) -> Self {
                Self { $($plain,)* $($field: $default,)* $($group: <$Group>::default(),)* }
            }
        }

        impl $crate::config::table::Table for $Table {
            fn keys(&self) -> Vec<$crate::config::table::Key> {
                #[allow(unused_imports, reason = "not every table has groups")]
                use $crate::config::table::Table as _;
                #[allow(unused_mut, reason = "not every table has groups")]
                let mut keys = vec![$({
                    let form = &$form;
                    $crate::config::table::Key {
                        name: $crate::config::table::keys!(@name $field $($name)?),
                        about: $about,
                        more: concat!("", $($more)?),
                        when: $crate::config::table::When::$when,
                        shape: $crate::config::form::Form::shape(form),
                        value: $crate::config::form::Form::write(form, &self.$field),
                    }
                }),*];
                $(keys.extend(self.$group.keys());)*
                keys
            }

            fn values(&self) -> Vec<(&'static str, $crate::config::table::When, serde_json::Value)> {
                #[allow(unused_imports, reason = "not every table has groups")]
                use $crate::config::table::Table as _;
                #[allow(unused_mut, reason = "not every table has groups")]
                let mut values = vec![$((
                    $crate::config::table::keys!(@name $field $($name)?),
                    $crate::config::table::When::$when,
                    $crate::config::form::Form::write(&$form, &self.$field),
                )),*];
                $(values.extend(self.$group.values());)*
                values
            }

            #[allow(unused_variables, reason = "a table may be empty")]
            fn read(&mut self, keys: &$crate::config::keys::Keys<'_>) {
                #[allow(unused_imports, reason = "not every table has groups")]
                use $crate::config::table::Table as _;
                $(
                    let name = $crate::config::table::keys!(@name $field $($name)?);
                    if let Some(value) = keys.take(name, &$form, &self.$field) {
                        self.$field = value;
                    }
                )*
                $(self.$group.read(keys);)*
            }
        }
    };
    (@name $field:ident $name:literal) => { $name };
    (@name $field:ident) => { stringify!($field) };
}

pub(crate) use keys;
