//! `[attach]`: what clients may make by attaching to `SWITCH:PORT`.

use super::keys::Keys;

/// What may come into being when a client attaches to a name that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The port, and the switch as well.
    #[default]
    Switches,
    /// The port, on a switch that exists.
    Ports,
    /// Nothing: clients attach to configured ports only.
    Nothing,
}

impl Create {
    /// As it is written.
    pub const WORDS: [(&'static str, Self); 3] =
        [("switches", Self::Switches), ("ports", Self::Ports), ("none", Self::Nothing)];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Switches => "switches",
            Self::Ports => "ports",
            Self::Nothing => "none",
        }
    }
}

/// Limits on process ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// What attaching may create.
    pub create: Create,
    /// Most process ports attached at once, over all switches.
    pub max_ports: u32,
    /// Most memory for one port's rings and buffers, in bytes.
    pub max_memory: u64,
}

/// Most process ports that can be allowed.
pub const MAX_PORTS: u32 = 4096;

impl Default for Attach {
    fn default() -> Self {
        Self { create: Create::default(), max_ports: 1024, max_memory: 64 << 20 }
    }
}

impl Attach {
    /// Reads `[attach]`.
    pub fn read(keys: Keys<'_>) -> Self {
        let default = Self::default();
        let attach = Self {
            create: keys.choice("create", &Create::WORDS).unwrap_or(default.create),
            max_ports: keys.integer("max_ports", 0..=MAX_PORTS).unwrap_or(default.max_ports),
            max_memory: keys.size("max_memory", 1 << 16..=1 << 32).unwrap_or(default.max_memory),
        };
        keys.finish();
        attach
    }
}
