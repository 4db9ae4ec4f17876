//! The difference of two configurations, as a list of actions.

use std::collections::BTreeSet;

use super::attach::Attach;
use super::engine::Engine;
use super::limit::Bucket;
use super::model::Config;
use super::port::Port;
use super::state::State;
use super::switch::Switch;
use crate::keys::Name;
use crate::kinds::access::Sockets;
use crate::kinds::memory::Memory;

/// A step from one configuration to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A port is removed, and its client detached.
    RemovePort(Name, Port),
    /// A switch is removed. Its dynamic ports are removed, too, unless clients may make switches.
    RemoveSwitch(Name, Switch),
    /// The engine's settings change.
    ChangeEngine {
        /// Before.
        from: Engine,
        /// After.
        to: Engine,
    },
    /// The limits on attaching change. Attached ports stay.
    ChangeAttach {
        /// Before.
        from: Attach,
        /// After.
        to: Attach,
    },
    /// The bounds of all front ends' memory change. Mapped memory stays.
    ChangeMemory {
        /// Before.
        from: Memory,
        /// After.
        to: Memory,
    },
    /// Who may connect to sockets changes. Sockets that exist stay as they are.
    ChangeSockets {
        /// Before.
        from: Box<Sockets>,
        /// After.
        to: Box<Sockets>,
    },
    /// What is kept of run-time changes changes. The place of the state file stays as it is.
    ChangeState {
        /// Before.
        from: State,
        /// After.
        to: State,
    },
    /// A bucket is added, changed, or removed if there is no value.
    SetBucket(Name, Option<Bucket>),
    /// A switch is added.
    AddSwitch(Name, Switch),
    /// A switch's settings change.
    ChangeSwitch {
        /// The switch.
        name: Name,
        /// Before.
        from: Switch,
        /// After.
        to: Switch,
    },
    /// A port's settings change while frames flow.
    ChangePort {
        /// The port.
        name: Name,
        /// Before.
        from: Box<Port>,
        /// After.
        to: Box<Port>,
    },
    /// A port is added.
    AddPort(Name, Port),
}

/// Returns the steps from `old` to `new`, in an order in which every step finds what it needs: ports are removed before their switches
/// and added after them, and the device or address of a removed port is free before a port is added.
///
/// A port is removed and added when its switch, its kind, or a key that cannot change while a port exists changes.
pub fn diff(old: &Config, new: &Config) -> Vec<Action> {
    let (mut gone, mut changed, mut come) = (Vec::new(), Vec::new(), Vec::new());
    for (name, port) in &old.ports {
        match new.ports.get(name) {
            Some(same) if same == port => {}
            Some(to) if port.can_change_to(to) => {
                let (from, to) = (Box::new(port.clone()), Box::new(to.clone()));
                changed.push(Action::ChangePort { name: name.clone(), from, to });
            }
            other => {
                gone.push(Action::RemovePort(name.clone(), port.clone()));
                come.extend(other.map(|to| Action::AddPort(name.clone(), to.clone())));
            }
        }
    }
    let added = new.ports.iter().filter(|(name, _)| !old.ports.contains_key(*name));
    come.extend(added.map(|(name, port)| Action::AddPort(name.clone(), port.clone())));

    let mut actions = gone;
    let removed = old.switches.iter().filter(|(name, _)| !new.switches.contains_key(*name));
    actions.extend(removed.map(|(name, switch)| Action::RemoveSwitch(name.clone(), switch.clone())));
    if old.engine != new.engine {
        actions.push(Action::ChangeEngine { from: old.engine.clone(), to: new.engine.clone() });
    }
    if old.attach != new.attach {
        actions.push(Action::ChangeAttach { from: old.attach.clone(), to: new.attach.clone() });
    }
    if old.memory != new.memory {
        actions.push(Action::ChangeMemory { from: old.memory, to: new.memory });
    }
    if old.sockets != new.sockets {
        let (from, to) = (Box::new(old.sockets.clone()), Box::new(new.sockets.clone()));
        actions.push(Action::ChangeSockets { from, to });
    }
    if old.state != new.state {
        actions.push(Action::ChangeState { from: old.state.clone(), to: new.state.clone() });
    }
    let (before, after) = (&old.buckets, &new.buckets);
    let buckets: BTreeSet<&Name> = before.keys().chain(after.keys()).collect();
    let buckets = buckets.into_iter().filter(|name| before.get(*name) != after.get(*name));
    actions.extend(buckets.map(|name| Action::SetBucket(name.clone(), after.get(name).cloned())));
    for (name, to) in &new.switches {
        match old.switches.get(name) {
            None => actions.push(Action::AddSwitch(name.clone(), to.clone())),
            Some(from) if from != to => {
                actions.push(Action::ChangeSwitch { name: name.clone(), from: from.clone(), to: to.clone() });
            }
            Some(_) => {}
        }
    }
    actions.extend(changed);
    actions.extend(come);
    actions
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RemovePort(name, _) => write!(f, "removed port {name}"),
            Self::RemoveSwitch(name, _) => write!(f, "removed switch {name}"),
            Self::ChangeEngine { .. } => f.write_str("changed engine"),
            Self::ChangeAttach { .. } => f.write_str("changed attach"),
            Self::ChangeMemory { .. } => f.write_str("changed memory"),
            Self::ChangeSockets { .. } => f.write_str("changed sockets, of those made from now on"),
            Self::ChangeState { from, to } if from.file == to.file => f.write_str("changed state"),
            Self::ChangeState { from, .. } if from.file.as_os_str().is_empty() => {
                f.write_str("changed state, whose file is another one from the next start on")
            }
            Self::ChangeState { .. } => f.write_str("changed state, whose file is another one from the next start on: put the old one there before, or what commands changed is lost"),
            Self::SetBucket(name, Some(_)) => write!(f, "set bucket {name}"),
            Self::SetBucket(name, None) => write!(f, "removed bucket {name}"),
            Self::AddSwitch(name, _) => write!(f, "added switch {name}"),
            Self::ChangeSwitch { name, .. } => write!(f, "changed switch {name}"),
            Self::ChangePort { name, .. } => write!(f, "changed port {name}"),
            Self::AddPort(name, port) => write!(f, "added port {name} to switch {}", port.switch),
        }
    }
}
