//! `[privileged]`: what the switch, which has no privileges, may have others open for it.

use crate::keys::form::Choice;
use crate::keys::{Keys, Table, keys};

/// What requests at run time may have opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requests {
    /// What the file names, and what administrators add by the command.
    #[default]
    Named,
    /// Whatever they ask for.
    Any,
}

impl Requests {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 2] = [("named", Self::Named), ("any", Self::Any)];
}

keys! {
    /// What the switch may have opened.
    pub struct Privileged {
        requests: Requests = Requests::Named, Choice(&Requests::WORDS), Live, "What the switch may have opened: named, the devices, network namespaces, sockets and files that this file names, and those that the command \"ringway\" adds; any, whatever devices, namespaces and sockets requests to control.sock ask for.", "With any, a client that takes the switch over can have devices and sockets of the whole machine opened.";
    }
}

impl Privileged {
    /// Reads `[privileged]`.
    pub fn read_section(keys: Keys<'_>) -> Self {
        let mut privileged = Self::default();
        privileged.read(&keys);
        keys.finish();
        privileged
    }
}
