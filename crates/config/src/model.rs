//! A complete configuration.

use std::collections::BTreeMap;

use super::attach::Attach;
use super::engine::Engine;
use super::limit::Bucket;
use super::port::Port;
use super::privileged::Privileged;
use super::state::State;
use super::switch::Switch;
use crate::keys::Name;
use crate::kinds::access::Sockets;
use crate::kinds::memory::Memory;

/// The contents of a configuration file. Each part is valid, and the parts agree (see `check`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `[engine]`.
    pub engine: Engine,
    /// `[attach]`.
    pub attach: Attach,
    /// `[memory]`.
    pub memory: Memory,
    /// `[sockets]`.
    pub sockets: Sockets,
    /// `[state]`.
    pub state: State,
    /// `[privileged]`.
    pub privileged: Privileged,
    /// `[bucket.NAME]`.
    pub buckets: BTreeMap<Name, Bucket>,
    /// `[switch.NAME]`.
    pub switches: BTreeMap<Name, Switch>,
    /// `[port.NAME]`. The names of configured ports are unique over all switches, those of dynamic ports on their switch only.
    pub ports: BTreeMap<Name, Port>,
}
