//! The topology: the ports that an engine serves, as an immutable value.

use std::sync::Arc;

use ringway_switch::{Port, Switch};

use crate::source::Source;

/// A port in a topology.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The switch in this topology.
    pub switch: Arc<Switch>,
    /// The port's index in the switch.
    pub index: u16,
    /// The port's input.
    pub source: Arc<Source>,
    /// The poller that serves the port, modulo the number of pollers.
    pub poller: usize,
    /// Batches in each round, at least 1.
    pub weight: u32,
}

impl Attached {
    /// The port itself.
    pub(crate) fn port(&self) -> Option<&Arc<Port>> {
        self.switch.member(self.index).map(|member| &member.port)
    }
}

/// All ports that an engine serves. Immutable: a change is a new topology.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// The ports.
    pub ports: Vec<Attached>,
}
