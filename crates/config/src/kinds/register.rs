//! The macro that registers kinds: a line makes a variant of `Kind` and of the sum type `Settings`.

/// Registers kinds: `NAME = SETTINGS`.
macro_rules! kinds {
    ($($Kind:ident = $Settings:ty),* $(,)?) => {
        /// A kind of port.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is described by its settings")]
        pub enum Kind { $($Kind),* }

        impl Kind {
            /// All kinds with their values of the key `kind`, in the order of the documentation.
            pub const WORDS: [(&'static str, Self); [$(<$Settings as Named>::NAME),*].len()] =
                [$((<$Settings as Named>::NAME, Self::$Kind)),*];

            /// Returns the value of the key `kind`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$Kind => <$Settings as Named>::NAME),* }
            }

            /// Returns what a port of this kind connects, in one line.
            pub fn about(self) -> &'static str {
                match self { $(Self::$Kind => <$Settings as Named>::ABOUT),* }
            }
        }

        /// The settings of a port that depend on its kind.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is described by its settings")]
        pub enum Settings { $($Kind($Settings)),* }

        impl Settings {
            /// Returns the defaults of a kind, except those that depend on the port's name.
            pub fn new(kind: Kind) -> Self {
                match kind { $(Kind::$Kind => Self::$Kind(<$Settings>::default())),* }
            }

            /// Returns the kind.
            pub fn kind(&self) -> Kind {
                match self { $(Self::$Kind(_) => Kind::$Kind),* }
            }

            /// Returns the settings.
            pub fn own(&self) -> &dyn PortKind {
                match self { $(Self::$Kind(own) => own),* }
            }

            /// Returns the settings.
            pub fn own_mut(&mut self) -> &mut dyn PortKind {
                match self { $(Self::$Kind(own) => own),* }
            }
        }
    };
}
pub(super) use kinds;
