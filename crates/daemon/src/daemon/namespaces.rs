//! Network namespaces that go, and those that are made again under the same name: the ports whose devices were in the old one end, and are
//! opened in the new one. Without that the kernel would keep the old one as long as they are open.

use std::collections::HashMap;
use std::io;

use ringway_config::keys::Name;
use ringway_config::kinds::contract::Namespace;
use ringway_config::kinds::netns::{self, ProcessNamespace};
use ringway_switch::PortFault;

use super::live::LivePort;
use super::state::Daemon;

/// Most names that one call looks up, by turns.
const LOOKS_MAX: usize = 256;

impl Daemon {
    /// Notes a fault of the ports whose device is in a network namespace that has its name no more. Returns true if there are any.
    pub fn end_in_old_namespaces(&mut self) -> bool {
        let of_namespaces = |live: &&LivePort| live.namespace.is_some() && live.port.fault().is_none();
        let live = self.switches.values().flat_map(|switch| switch.ports().values()).filter(of_namespaces);
        let live: Vec<&LivePort> = live.collect();
        let begin = self.looked_up.checked_rem(live.len()).unwrap_or(0);
        let mut seen: HashMap<&str, io::Result<Option<Namespace>>> = HashMap::new();
        let mut is_any = false;
        let mut looked = 0;
        for port in live.iter().cycle().skip(begin).take(live.len()) {
            let Some(name) = port.settings.settings.netns() else { continue };
            if !seen.contains_key(name) && seen.len() == LOOKS_MAX {
                break;
            }
            looked += 1;
            let now = seen.entry(name).or_insert_with(|| netns::now(name));
            // It is there as long as the device is, so that its number says which one it is.
            // Where nobody knows, nothing has changed.
            let is_same =
                |of: &Namespace| now.as_ref().map_or(true, |now| now.as_ref().is_some_and(|now| now.has_number_of(of)));
            if !port.namespace.as_ref().is_some_and(is_same) {
                port.port.fail(PortFault::DeviceLost);
                is_any = true;
            }
        }
        self.looked_up = begin + looked;
        is_any
    }

    /// Takes note of the namespace of a port that is closed and stays configured, if it was a process's.
    pub(super) fn note_namespace(&mut self, name: &Name, live: &LivePort) {
        let namespace = live.namespace.clone().filter(Namespace::is_of_process);
        if let (Some(namespace), Some(path)) = (namespace, live.settings.settings.netns()) {
            self.processes.insert(name.clone(), ProcessNamespace { path: path.to_owned(), namespace });
        }
    }
}
