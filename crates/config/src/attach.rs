//! `[attach]`: limits on clients that attach to `SWITCH:PORT`.

use crate::keys::form::{Boolean, Choice, Integer, Size};
use crate::keys::{Keys, Table, keys};

/// What is made when a client attaches to a name that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The port and its switch.
    #[default]
    Switches,
    /// The port, on a switch that exists.
    Ports,
    /// Nothing: clients attach to configured ports only.
    Nothing,
}

impl Create {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 3] =
        [("switches", Self::Switches), ("ports", Self::Ports), ("none", Self::Nothing)];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Switches => "switches",
            Self::Ports => "ports",
            Self::Nothing => "none",
        }
    }
}

/// Largest value of `max_ports`.
pub const MAX_PORTS: u32 = 4096;

keys! {
    /// Limits on process ports.
    pub struct Attach {
        create: Create = Create::Switches, Choice(&Create::WORDS), Live, "What attaching may create: switches and ports, ports only, or nothing (none).";
        max_ports: u32 = 1024, Integer(0..=MAX_PORTS), Live, "Most process ports attached at once, over all switches.";
        max_memory: u64 = 64 << 20, Size(1 << 16..=1 << 32), Live, "Most memory for one port's rings and buffers.";
        max_region: u64 = 256 << 20, Size(1 << 20..=1 << 36), Live, "Most memory that all ports of one netmap program share.";
        monitors: bool = false, Boolean, Live, "Whether netmap programs may open monitors of ports (/r, /t, /z): they hear what other programs send and receive.";
    }
}

impl Attach {
    /// Reads `[attach]`.
    pub fn read_section(keys: Keys<'_>) -> Self {
        let mut attach = Self::default();
        attach.read(&keys);
        keys.finish();
        attach
    }
}
