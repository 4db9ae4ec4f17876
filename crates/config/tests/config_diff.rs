//! Applying the difference of two configurations to the first gives the second, and every step finds what it needs.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use ringway_config::check::check;
use ringway_config::diff::{Action, diff};
use ringway_config::e1000::{Cable, Model};
use ringway_config::kinds::End;
use ringway_config::limit::Rate;
use ringway_config::port::DynamicPorts;
use ringway_config::{
    Bucket, CallInterval, Calls, Config, E1000, Host, Kind, Limit, Mac, Name, Placement, Port, Role, Settings, Socket,
    Sockets, Storm, Switch, VhostUser,
};

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
        Action::ChangeMemory { from, to } => {
            let old = std::mem::replace(&mut config.memory, *to);
            prop(old == *from, "changes what is there")
        }
        Action::ChangeSockets { from, to } => {
            let old = std::mem::replace(&mut config.sockets, Sockets::clone(to));
            prop(old == **from, "changes what is there")
        }
        Action::ChangeState { from, to } => {
            let old = std::mem::replace(&mut config.state, to.clone());
            prop(old == *from, "changes what is there")
        }
        Action::AddSwitch(name, switch) => {
            prop(config.switches.insert(name.clone(), switch.clone()).is_none(), "adds a new switch")
        }
        Action::ChangeSwitch { name, from, to } => {
            prop(config.switches.insert(name.clone(), to.clone()).as_ref() == Some(from), "changes what is there")
        }
        Action::ChangePort { name, from, to } => {
            prop(from.can_change_to(to), "changes only what can change")?;
            prop(config.ports.insert(name.clone(), Port::clone(to)).as_ref() == Some(from), "changes what is there")
        }
        Action::SetBucket(name, Some(to)) => {
            prop(config.buckets.insert(name.clone(), to.clone()).as_ref() != Some(to), "changes something")
        }
        Action::SetBucket(name, None) => prop(config.buckets.remove(name).is_some(), "removes what is there"),
        Action::AddPort(name, port) => {
            prop(config.switches.contains_key(&port.switch), "adds a port to a switch that is there")?;
            let end = port.settings.own().end();
            let has_none = matches!(end, End::Nothing | End::Client);
            let is_free = config.ports.values().all(|other| other.settings.own().end() != end);
            prop(has_none || is_free, "adds a free device or socket")?;
            prop(config.ports.insert(name.clone(), port.clone()).is_none(), "adds a new port")
        }
    }
}

fn prop(holds: bool, what: &str) -> Result<(), String> {
    holds.then_some(()).ok_or_else(|| format!("a step should be one that {what}"))
}

fn host() -> Host {
    Host { cpus: vec![0], runtime_dir: "/run/ringway".into() }
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
    fn a_port()(
        switch in 0u8..4,
        kind in prop::sample::select(Kind::WORDS.map(|(_, kind)| kind).to_vec()),
        end in 0u8..6,
        queues in 1u16..3,
        weight in 1u32..3,
        mac in 0u8..3,
    ) -> Port {
        let mut port = Port::new(name(switch), kind, &name(end));
        match &mut port.settings {
            Settings::VhostUser(vhost_user) => vhost_user.queues = queues,
            Settings::E1000(e1000) => {
                let model = if queues == 1 { Model::E1000 } else { Model::E1000e };
                let link = if weight == 1 { Cable::Up } else { Cable::Down };
                *e1000 = E1000 { link, socket: e1000.socket.clone(), ..E1000::new(model) };
            }
            _ => {}
        }
        port.weight = weight;
        port.mac = (0..mac).map(|n| format!("02:00:00:00:0{switch}:0{n}").parse::<Mac>().unwrap()).collect::<BTreeSet<_>>();
        port
    }
}

prop_compose! {
    fn a_config()(
        switches in prop::collection::btree_map((0u8..4).prop_map(name), a_switch(), 0..4),
        ports in prop::collection::btree_map((0u8..6).prop_map(name), a_port(), 0..6),
        buckets in prop::collection::btree_map((0u8..3).prop_map(name), 1u64..3, 0..3),
        batch in 1u32..3,
        max_ports in 1u32..3,
        mappings in 1u32..3,
    ) -> Config {
        let mut config = Config { switches, ..Config::default() };
        config.buckets =
            buckets.into_iter().map(|(name, rate)| (name, Bucket { rate, burst: 1514, frames: None })).collect();
        config.engine.batch = batch;
        config.attach.max_ports = max_ports;
        config.memory.mappings = mappings;
        for (name, port) in ports {
            config.ports.insert(name.clone(), port);
            if !check(&config, &DynamicPorts::new(), &host(), "").is_empty() {
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

/// Which keys of a vhost-user port change while frames flow, and which take its front end away.
#[test]
fn a_front_end_is_kept_where_it_can_be() {
    let port = Port::new(name(0), Kind::VhostUser, &name(1));
    let config = |port: &Port| Config { ports: [(name(1), port.clone())].into(), ..Config::default() };
    let steps = |new: &Port| diff(&config(&port), &config(new));
    let calls = Calls { interval: CallInterval::Fixed(Duration::from_micros(20)), above: 10_000 };
    for new in [
        Port { weight: 2, ..port.clone() },
        Port { isolated: true, ..port.clone() },
        Port { mac: ["52:54:00:00:00:01".parse().unwrap()].into(), ..port.clone() },
        Port { calls, ..port.clone() },
        Port { ingress: Limit { rate: Some(8_000), ..Limit::default() }, ..port.clone() },
        Port { egress: Limit { frames: Some(1), ..Limit::default() }, ..port.clone() },
        Port { storm: Storm { broadcast: Some(Rate::Frames(1)), ..Storm::default() }, ..port.clone() },
        Port { poller: Placement::Poller(0), ..port.clone() },
    ] {
        assert!(matches!(&steps(&new)[..], [Action::ChangePort { to, .. }] if **to == new), "{new:?}");
    }
    let end = VhostUser { socket: Socket::new("n1.sock", Role::Server), ..VhostUser::default() };
    assert_eq!(port.settings, Settings::VhostUser(end.clone()));
    for end in [
        VhostUser { socket: Socket::new("other.sock", Role::Server), ..end.clone() },
        VhostUser { socket: Socket::new("n1.sock", Role::Client), ..end.clone() },
        VhostUser { queues: 1, ..end.clone() },
        VhostUser { mtu: Some(1500), ..end.clone() },
        VhostUser { offload: false, ..end },
    ] {
        let new = Port { settings: Settings::VhostUser(end), ..port.clone() };
        assert!(matches!(&steps(&new)[..], [Action::RemovePort(..), Action::AddPort(..)]), "{new:?}");
    }
}
