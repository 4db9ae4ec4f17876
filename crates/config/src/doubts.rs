//! What looks like a mistake and can turn out to be right: the name of a port that nobody has made yet, an address that two ports have.
//! Nothing is refused for it; it is named where the configuration is read, changed and shown.

use std::collections::BTreeMap;

use super::check::{CheckInput, Finding, NamedPort};
use super::model::Config;
use super::port::{DynamicPorts, Port};
use super::switch::{Flood, Forwarding};
use crate::keys::Name;
use crate::keys::mistake::nearest;

/// Returns the doubts about a configuration that has no mistakes, together with the dynamic ports, in the order of names.
pub fn doubts(config: &Config, dynamic: &DynamicPorts) -> Vec<Finding> {
    let input = CheckInput { config, dynamic, about: "" };
    let mut ports = Names::new(&input);
    let mut doubts = absent_of_switches(&input, &mut ports);
    doubts.extend(absent_of_ports(&input, &mut ports));
    doubts.extend(shared_addresses(&input));
    doubts
}

/// The names of the ports of each switch, and those that were looked for in vain, each with one that looks like it: a thousand ports
/// may name the same absent one.
struct Names<'a> {
    of: BTreeMap<&'a Name, Vec<&'a str>>,
    absent: BTreeMap<(Name, Name), Option<&'a str>>,
}

impl<'a> Names<'a> {
    fn new(input: &CheckInput<'a>) -> Names<'a> {
        let mut of: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in input.ports() {
            of.entry(&entry.port.switch).or_default().push(entry.name.as_str());
        }
        Names { of, absent: BTreeMap::new() }
    }

    /// Returns the texts for the name of a port that a switch does not have. `meanwhile` says what that means.
    fn absent(
        &mut self,
        input: &CheckInput<'_>,
        switch: &Name,
        name: &Name,
        meanwhile: &str,
    ) -> Option<(String, String)> {
        if input.named(switch, name).is_some() {
            return None;
        }
        let of = &self.of;
        let near = self.absent.entry((switch.clone(), name.clone())).or_insert_with(|| {
            let names = of.get(switch).map_or(&[][..], Vec::as_slice);
            nearest(name.as_str(), names.iter().copied())
        });
        let right = match near {
            Some(near) => format!("did you mean \"{near}\"? {meanwhile}"),
            None => meanwhile.to_owned(),
        };
        Some((format!("there is no port \"{name}\" on switch \"{switch}\""), right))
    }
}

/// Finds `port:NAME` of ports that do not exist yet.
fn absent_of_switches(input: &CheckInput<'_>, ports: &mut Names<'_>) -> Vec<Finding> {
    let settings = input.config.switches.iter().flat_map(|(name, switch)| {
        let keys = [
            ("broadcast", &switch.broadcast),
            ("multicast", &switch.multicast),
            ("unknown_unicast", &switch.unknown_unicast),
        ];
        keys.into_iter().map(move |(key, flood)| (name, key, flood))
    });
    let doubt = |(name, key, flood): (&Name, &str, &Flood)| {
        let Flood::Port(to) = flood else { return None };
        let (what, right) = ports.absent(input, name, to, "until there is one, these frames are dropped")?;
        Some(Finding::new(vec!["switch".to_owned(), name.to_string(), key.to_owned()], what, right))
    };
    settings.filter_map(doubt).collect()
}

/// Finds names in `mirror` and `allow` of ports that do not exist yet.
fn absent_of_ports(input: &CheckInput<'_>, ports: &mut Names<'_>) -> Vec<Finding> {
    let mut doubts = Vec::new();
    for entry in input.ports() {
        let Port { switch, mirror, identity, .. } = entry.port;
        let allowed = identity.allow.names().map(|name| ("allow", name));
        let named = mirror.iter().map(|name| ("mirror", name)).chain(allowed);
        for (key, name) in named {
            let doubt = ports.absent(input, switch, name, "it has no effect until there is one");
            doubts.extend(doubt.map(|(what, right)| entry.finding(key, what, right)));
        }
    }
    doubts
}

/// Finds addresses that two ports of a learning switch have. A map switch refuses them.
fn shared_addresses(input: &CheckInput<'_>) -> Vec<Finding> {
    let mut owners: BTreeMap<_, Vec<NamedPort<'_>>> = BTreeMap::new();
    let mut doubts = Vec::new();
    let is_map =
        |switch: &Name| input.config.switches.get(switch).is_some_and(|switch| switch.forwarding == Forwarding::Map);
    for entry in input.ports().filter(|entry| !is_map(&entry.port.switch)) {
        for mac in &entry.port.mac {
            let owners = owners.entry((&entry.port.switch, mac)).or_default();
            // The same address in another VLAN is another one.
            let vlans = entry.port.identity.vlans();
            let owner = owners.iter().find(|owner| owner.port.identity.vlans() == vlans).copied();
            owners.push(entry);
            let Some(owner) = owner else { continue };
            let what = format!("{mac} is an address of port \"{}\", too", owner.label());
            let right = "give each port its own, unless only one of them is used at a time";
            doubts.push(entry.finding("mac", what, right.to_owned()));
        }
    }
    doubts
}
