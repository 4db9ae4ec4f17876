//! The registration of kinds: from one line a kind follow its words, the sum type of settings, and the way to a kind's settings.

/// Registers kinds: `NAME = SETTINGS`.
macro_rules! kinds {
    ($($Kind:ident = $Settings:ty),* $(,)?) => {
        /// A kind of port.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is described by its settings")]
        pub enum Kind { $($Kind),* }

        impl Kind {
            /// All kinds by the values of the key `kind`, in the order in which people read them.
            pub const WORDS: [(&'static str, Self); [$(<$Settings as Named>::NAME),*].len()] =
                [$((<$Settings as Named>::NAME, Self::$Kind)),*];

            /// The value of the key `kind`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$Kind => <$Settings as Named>::NAME),* }
            }

            /// What a port of this kind connects, in one line.
            pub fn about(self) -> &'static str {
                match self { $(Self::$Kind => <$Settings as Named>::ABOUT),* }
            }
        }

        /// A port's kind and the settings that ports of this kind have.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is described by its settings")]
        pub enum Settings { $($Kind($Settings)),* }

        impl Settings {
            /// The defaults of a kind, without those that depend on the port's name.
            pub fn new(kind: Kind) -> Self {
                match kind { $(Kind::$Kind => Self::$Kind(<$Settings>::default())),* }
            }

            /// The kind.
            pub fn kind(&self) -> Kind {
                match self { $(Self::$Kind(_) => Kind::$Kind),* }
            }

            /// The settings of the kind.
            pub fn own(&self) -> &dyn PortKind {
                match self { $(Self::$Kind(own) => own),* }
            }

            /// The settings of the kind.
            pub fn own_mut(&mut self) -> &mut dyn PortKind {
                match self { $(Self::$Kind(own) => own),* }
            }
        }
    };
}
pub(super) use kinds;
