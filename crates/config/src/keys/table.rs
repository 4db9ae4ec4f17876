//! The macro `keys!`, the one place of a key. A key is one line: its field and type, its default, its [form](super::form) with unit
//! and bounds, whether it can change at run time, and its meaning. From that line follow the field of the settings, the parser,
//! `port set`, the difference between two configurations, the help of commands, `/openapi.json`, the manual page and shell completion.

/// Makes a struct of settings and its table of keys. A line is a key:
///
/// ```text
/// FIELD [as "NAME"]: TYPE = DEFAULT, FORM, Live|Fixed, "meaning" [, "details for the manual page"];
/// ```
///
/// The key has the name of the field unless `as` gives another. `groups` are tables whose keys belong to the same table of the
/// configuration. `fields` are settings without keys.
macro_rules! keys {
    (
        $(#[$meta:meta])*
        pub struct $Table:ident {
            $($field:ident $(as $name:literal)?: $type:ty =
                $default:expr, $form:expr, $when:ident, $about:literal $(, $more:literal)?;)*
        }
        $(groups { $($(#[$group_meta:meta])* $group:ident: $Group:ty),* $(,)? })?
    ) => {
        $crate::keys::table::keys! {
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

        impl $crate::keys::section::Table for $Table {
            fn keys(&self) -> Vec<$crate::keys::key::Key> {
                #[allow(unused_imports, reason = "not every table has groups")]
                use $crate::keys::section::Table as _;
                #[allow(unused_mut, reason = "not every table has groups")]
                let mut keys = vec![$({
                    let form = &$form;
                    $crate::keys::key::Key {
                        name: $crate::keys::table::keys!(@name $field $($name)?),
                        about: $about,
                        more: concat!("", $($more)?),
                        mutability: $crate::keys::key::Mutability::$when,
                        shape: $crate::keys::form::Form::shape(form),
                        value: $crate::keys::form::Form::write(form, &self.$field),
                    }
                }),*];
                $(keys.extend(self.$group.keys());)*
                keys
            }

            fn values(&self) -> Vec<(&'static str, $crate::keys::key::Mutability, serde_json::Value)> {
                #[allow(unused_imports, reason = "not every table has groups")]
                use $crate::keys::section::Table as _;
                #[allow(unused_mut, reason = "not every table has groups")]
                let mut values = vec![$((
                    $crate::keys::table::keys!(@name $field $($name)?),
                    $crate::keys::key::Mutability::$when,
                    $crate::keys::form::Form::write(&$form, &self.$field),
                )),*];
                $(values.extend(self.$group.values());)*
                values
            }

            #[allow(unused_variables, reason = "a table may be empty")]
            fn read(&mut self, keys: &$crate::keys::reader::Keys<'_>) {
                #[allow(unused_imports, reason = "not every table has groups")]
                use $crate::keys::section::Table as _;
                $(
                    let name = $crate::keys::table::keys!(@name $field $($name)?);
                    if let Some(value) = $crate::keys::form::Form::take(&$form, keys, name, &self.$field) {
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
