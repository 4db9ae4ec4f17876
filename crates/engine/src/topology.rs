//! The topology: what an engine serves, as an immutable value.

use std::sync::Arc;

use ringway_switch::{Member, Port, Switch};

use crate::source::Source;

/// A port of a switch, or a mover, in a topology.
#[derive(Clone, Debug)]
pub struct Attached {
    /// What its frames go to.
    pub place: Place,
    /// The port's input, or the mover.
    pub source: Arc<Source>,
    /// The poller that serves the port, modulo the number of pollers.
    pub poller: usize,
    /// Batches in each round, at least 1. A mover has one.
    pub weight: u32,
}

/// What the frames of a client go to.
#[derive(Clone, Debug)]
pub enum Place {
    /// A switch in this topology, at which the client's port has this index.
    Port(Arc<Switch>, u16),
    /// The client of one other mover.
    Mover(Ends),
}

/// A mover's own port, and that of its peer in this topology.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Counters, calls and faults of the mover's client.
    pub own: Arc<Port>,
    /// Those of the client that gets its frames, if there is one.
    pub peer: Option<Arc<Port>>,
}

impl Attached {
    /// The port itself.
    pub(crate) fn port(&self) -> Option<&Arc<Port>> {
        match &self.place {
            Place::Port(switch, index) => switch.member(*index).map(|member| &member.port),
            Place::Mover(ends) => Some(&ends.own),
        }
    }

    /// The switch and the port in it. `None`: the client has a mover, or the switch no such port.
    #[inline]
    pub(crate) fn member(&self) -> Option<(&Arc<Switch>, &Member)> {
        match &self.place {
            Place::Port(switch, index) => Some((switch, switch.member(*index)?)),
            Place::Mover(_) => None,
        }
    }

    /// Returns true if this is the port with this index at the switch of `other`.
    pub(crate) fn is_beside(&self, other: &Attached, index: u16) -> bool {
        match (&self.place, &other.place) {
            (Place::Port(switch, own), Place::Port(other, _)) => *own == index && Arc::ptr_eq(switch, other),
            _ => false,
        }
    }
}

impl Ends {
    /// Returns true if the peer is another one than that of `before`.
    pub(crate) fn has_other_peer(&self, before: &Place) -> bool {
        let Place::Mover(before) = before else { return true };
        self.peer.as_ref().map(Arc::as_ptr) != before.peer.as_ref().map(Arc::as_ptr)
    }
}

/// All that an engine serves. Immutable: a change is a new topology.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// The ports and movers.
    pub ports: Vec<Attached>,
}
