//! Applying the difference of two configurations to the first gives the second, and every step finds what it needs.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use ringway_control::config::check::check;
use ringway_control::config::diff::{Action, diff};
use ringway_control::config::{Config, Kind, Mac, Name, Port, Switch};

/// Takes one step the way a daemon must: a step that does not fit what is there is an error.
fn apply(config: &mut Config, action: &Action) -> Result<(), String> {
    match action {
        Action::RemovePort(name, port) => {
            prop(config.ports.remove(name).as_ref() == Some(port), "removes a port that is there")
        }
        Action::RemoveSwitch(name, switch) => {
            prop(config.ports.values().all(|p| p.switch != *name), "removes a switch without ports")?;
            prop(config.switches.remove(name).as_ref() == Some(switch), "removes a switch that is there")
        }
        Action::ChangeEngine { from, to } => {
            let old = std::mem::replace(&mut config.engine, to.clone());
            prop(old == *from, "changes what is there")
        }
        Action::ChangeAttach { from, to } => {
            let old = std::mem::replace(&mut config.attach, to.clone());
            prop(old == *from, "changes what is there")
        }
        Action::AddSwitch(name, switch) => {
            prop(config.switches.insert(name.clone(), switch.clone()).is_none(), "adds a new switch")
        }
        Action::ChangeSwitch { name, from, to } => {
            prop(config.switches.insert(name.clone(), to.clone()).as_ref() == Some(from), "changes what is there")
        }
        Action::ChangePort { name, from, to } => {
            prop(from.can_become(to), "changes only what can change")?;
            prop(config.ports.insert(name.clone(), to.clone()).as_ref() == Some(from), "changes what is there")
        }
        Action::AddPort(name, port) => {
            prop(config.switches.contains_key(&port.switch), "adds a port to a switch that is there")?;
            prop(config.ports.values().all(|p| p.device.is_none() || p.device != port.device), "adds a free device")?;
            prop(config.ports.insert(name.clone(), port.clone()).is_none(), "adds a new port")
        }
    }
}

fn prop(holds: bool, what: &str) -> Result<(), String> {
    holds.then_some(()).ok_or_else(|| format!("a step should be one that {what}"))
}

fn name(n: u8) -> Name {
    format!("n{n}").parse().unwrap()
}

prop_compose! {
    fn a_switch()(ageing in 0u64..3, entries in 6u32..8) -> Switch {
        Switch { ageing: Duration::from_secs(ageing), mac_entries: 1 << entries, mac_limit: 64, ..Switch::default() }
    }
}

prop_compose! {
    fn a_port()(switch in 0u8..4, tap in any::<bool>(), device in 0u8..6, weight in 1u32..3, mac in 0u8..3) -> Port {
        let kind = if tap { Kind::Tap } else { Kind::Process };
        let mut port = Port::new(name(switch), kind, &name(device));
        port.weight = weight;
        port.mac = (0..mac).map(|n| format!("02:00:00:00:0{switch}:0{n}").parse::<Mac>().unwrap()).collect::<BTreeSet<_>>();
        port
    }
}

prop_compose! {
    fn a_config()(
        switches in prop::collection::btree_map((0u8..4).prop_map(name), a_switch(), 0..4),
        ports in prop::collection::btree_map((0u8..6).prop_map(name), a_port(), 0..6),
        batch in 1u32..3,
        max_ports in 1u32..3,
    ) -> Config {
        let mut config = Config { switches, ..Config::default() };
        config.engine.batch = batch;
        config.attach.max_ports = max_ports;
        for (name, port) in ports {
            config.ports.insert(name.clone(), port);
            if !check(&config).is_empty() {
                config.ports.remove(&name);
            }
        }
        config
    }
}

proptest! {
    #[test]
    fn the_difference_turns_old_into_new(old in a_config(), new in a_config()) {
        let mut model = old.clone();
        for action in diff(&old, &new) {
            apply(&mut model, &action).map_err(|e| TestCaseError::fail(format!("{e}: {action:?}")))?;
        }
        prop_assert_eq!(model, new);
    }

    #[test]
    fn nothing_is_touched_that_did_not_change(config in a_config(), port in a_port()) {
        prop_assert!(diff(&config, &config).is_empty());
        let mut new = config.clone();
        new.ports.insert(name(9), port);
        prop_assert_eq!(diff(&config, &new).len(), 1);
    }
}
