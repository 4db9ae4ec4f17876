//! The ports whose memory a thread may be at: those of the newest topology, and removed ones that somebody still has.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ringway_runtime::serving::Entry;
use ringway_switch::{Port, Touching};

use crate::client::Memory;
use crate::source::Source;
use crate::topology::{Attached, Topology};

/// A port. An address of one is that of no other meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The number of the source.
    pub(crate) id: u64,
    pub(crate) source: Weak<Source>,
    pub(crate) port: Weak<Port>,
    pub(crate) memory: Arc<Memory>,
}

impl Known {
    fn of(attached: &Attached) -> Known {
        let source = &attached.source;
        Known {
            id: source.id(),
            source: Arc::downgrade(source),
            port: attached.port().map_or_else(Weak::new, Arc::downgrade),
            memory: Arc::clone(source.memory()),
        }
    }

    fn is_there(&self) -> bool {
        self.source.strong_count() > 0 || self.port.strong_count() > 0
    }
}

/// The ports.
#[derive(Debug, Default)]
pub(crate) struct KnownPorts {
    ports: Mutex<Vec<Known>>,
    /// Their names for a successor, by the number of the source. Locked by the thread that adds ports. It may wait for memory, so it has the other
    /// lock for moments only.
    names: Mutex<HashMap<u64, Option<Entry>>>,
}

impl KnownPorts {
    /// To be called before a topology is published.
    pub(crate) fn add(&self, topology: &Topology) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ports: Vec<Known> = topology.ports.iter().map(Known::of).collect();
        let ids: HashSet<u64> = ports.iter().map(|port| port.id).collect();
        // Room for all former ones.
        ports.reserve(self.with(|former| former.len()));
        let former = self.with(|former| {
            ports.extend(former.iter().filter(|port| !ids.contains(&port.id) && port.is_there()).cloned());
            std::mem::replace(former, ports)
        });
        drop(former);
        let known = self.with(|ports| ports.iter().map(|port| port.id).collect::<HashSet<_>>());
        names.retain(|id, _| known.contains(id));
        for attached in &topology.ports {
            let Some(port) = attached.port() else { continue };
            let (id, address) = (attached.source.id(), Touching::number_of(Arc::as_ptr(port)));
            names.entry(id).or_insert_with(|| Entry::new(id, address, port.name()));
        }
    }

    /// Finds the first port for which `is_it` returns true.
    pub(crate) fn find(&self, is_it: impl Fn(&Known) -> bool) -> Option<Known> {
        self.with(|ports| ports.iter().find(|port| is_it(port)).cloned())
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<Known>) -> T) -> T {
        work(&mut self.ports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
