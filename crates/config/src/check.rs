//! Checks that the parts of a configuration agree with each other, with the dynamic ports, and with this machine.

use std::collections::BTreeMap;

use ringway_api::paths::{ATTACH_SOCKET, CONTROL_SOCKET, SOCKET_PATH_MAX, STATE_FILE};

use super::attach::Create;
use super::host::Host;
use super::identity::{GuardMode, PortSet, Vlan};
use super::limit::Limit;
use super::model::Config;
use super::port::{DynamicPorts, Placement, Port};
use super::switch::{Flood, Forwarding, Switch};
use crate::keys::mistake::nearest;
use crate::keys::units::show_bits;
use crate::keys::{Mistake, Name};
use crate::kinds::End;

/// A disagreement between parts of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The keys from the root to the part that the message names. The last key may be absent from the configuration.
    pub path: Vec<String>,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub right: String,
    /// For a bucket whose guarantees exceed its rate: the bucket, and the excess.
    excess: Option<(Name, u64)>,
}

impl Finding {
    pub(super) fn new(path: Vec<String>, what: String, right: String) -> Self {
        Self { path, what, right, excess: None }
    }

    /// Returns true if this disagreement is among those of `before`, as bad or worse.
    pub fn is_in(&self, before: &[Finding]) -> bool {
        let same = |old: &Finding| match (&old.excess, &self.excess) {
            (Some((bucket, old)), Some((now_of, now))) => bucket == now_of && old >= now,
            _ => old.what == self.what,
        };
        before.iter().any(|old| old.path == self.path && same(old))
    }
}

impl From<Finding> for Mistake {
    fn from(finding: Finding) -> Self {
        Self { key: finding.path.join("."), span: None, what: finding.what, right: finding.right }
    }
}

/// The parts that have to agree.
pub(super) struct CheckInput<'a> {
    pub(super) config: &'a Config,
    pub(super) dynamic: &'a DynamicPorts,
    /// The part that messages name where several parts disagree: a prefix of keys like `port.vm1.`.
    pub(super) about: &'a str,
}

/// A configured or dynamic port.
#[derive(Clone, Copy)]
pub(super) struct NamedPort<'a> {
    pub(super) name: &'a Name,
    pub(super) port: &'a Port,
    is_dynamic: bool,
}

impl<'a> CheckInput<'a> {
    fn configured(&self) -> impl Iterator<Item = NamedPort<'a>> {
        self.config.ports.iter().map(|(name, port)| NamedPort { name, port, is_dynamic: false })
    }

    /// Returns all ports. The part that messages name comes last.
    pub(super) fn ports(&self) -> impl Iterator<Item = NamedPort<'a>> {
        let dynamic = self.dynamic.iter().map(|((_, name), port)| NamedPort { name, port, is_dynamic: true });
        let (last, others): (Vec<_>, Vec<_>) = self
            .configured()
            .chain(dynamic)
            .partition(|entry| !self.about.is_empty() && self.about == format!("port.{}.", entry.label()));
        others.into_iter().chain(last)
    }

    /// Returns the port of this name on this switch, or else the configured port of this name on another.
    pub(super) fn named(&self, switch: &Name, name: &Name) -> Option<&'a Port> {
        let configured = self.config.ports.get(name);
        let dynamic = || self.dynamic.get(&(switch.clone(), name.clone()));
        configured.filter(|port| port.switch == *switch).or_else(dynamic).or(configured)
    }
}

impl NamedPort<'_> {
    /// Returns the name that users write.
    pub(super) fn label(&self) -> String {
        if self.is_dynamic { format!("{}:{}", self.port.switch, self.name) } else { self.name.to_string() }
    }

    pub(super) fn finding(&self, key: &str, what: String, right: String) -> Finding {
        Finding::new(vec!["port".to_owned(), self.label(), key.to_owned()], what, right)
    }
}

/// Returns all disagreements within the configuration, with the dynamic ports, and with this machine, in the order of names. Where
/// ports disagree, the finding names the last of them, or the port whose keys begin with `about`.
pub fn check(config: &Config, dynamic: &DynamicPorts, host: &Host, about: &str) -> Vec<Finding> {
    let input = CheckInput { config, dynamic, about };
    let mut findings = Vec::new();
    for (name, switch) in &config.switches {
        findings.extend(flood_ports_exist(&input, name, switch));
    }
    findings.extend(switches_exist(&input));
    findings.extend(addresses_are_unique(&input));
    findings.extend(devices_are_unique(&input));
    findings.extend(sockets_are_usable(&input, host));
    findings.extend(pollers_exist(&input));
    findings.extend(buckets_exist(&input));
    findings.extend(guarantees_fit(&input));
    findings.extend(mirrors_are_valid(&input));
    findings.extend(neighbours_exist(&input));
    findings
}

/// Finds configured ports on switches that do not exist. Dynamic ports have their switches.
fn switches_exist(input: &CheckInput<'_>) -> Vec<Finding> {
    let switches = &input.config.switches;
    let missing = |entry: NamedPort<'_>| {
        let wanted = &entry.port.switch;
        let right = match nearest(wanted.as_str(), switches.keys().map(Name::as_str)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("write [switch.{wanted}] to have one"),
        };
        entry.finding("switch", format!("there is no switch \"{wanted}\""), right)
    };
    input.configured().filter(|entry| !switches.contains_key(&entry.port.switch)).map(missing).collect()
}

/// Finds addresses that are bound to two ports of a map switch.
fn addresses_are_unique(input: &CheckInput<'_>) -> Vec<Finding> {
    let mut owners = BTreeMap::new();
    let mut findings = Vec::new();
    let switches = &input.config.switches;
    let is_map = |port: &Port| switches.get(&port.switch).is_some_and(|s| s.forwarding == Forwarding::Map);
    for entry in input.ports().filter(|entry| is_map(entry.port)) {
        let switch = &entry.port.switch;
        for mac in &entry.port.mac {
            if let Some(owner) = owners.insert((switch, mac), entry) {
                let what =
                    format!("{mac} is already bound to port \"{}\" of the map switch \"{switch}\"", owner.label());
                findings.push(entry.finding("mac", what, "bind each address to one port".to_owned()));
            }
        }
    }
    findings
}

/// Finds network devices with two ports.
fn devices_are_unique(input: &CheckInput<'_>) -> Vec<Finding> {
    let mut owners = BTreeMap::new();
    let mut findings = Vec::new();
    for entry in input.ports() {
        let End::Device { device, netns } = entry.port.settings.own().end() else { continue };
        if let Some(owner) = owners.insert((device, netns), entry.name) {
            let what = format!("the device \"{device}\" already belongs to port \"{owner}\"");
            findings.push(entry.finding("device", what, "give each port its own device".to_owned()));
        }
    }
    findings
}

/// Finds paths of sockets that are too long, reserved, or used twice.
fn sockets_are_usable(input: &CheckInput<'_>, host: &Host) -> Vec<Finding> {
    let mut owners = BTreeMap::new();
    let mut findings = Vec::new();
    for (entry, socket) in input.ports().filter_map(|entry| Some((entry, entry.port.settings.socket()?))) {
        let path = host.runtime_dir.join(socket);
        let mut wrong = |what, right: &str| findings.push(entry.finding("socket", what, right.to_owned()));
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_MAX {
            let what = format!("{} has {bytes} bytes, and a socket's path at most {SOCKET_PATH_MAX}", path.display());
            wrong(what, "write a shorter one, or choose a shorter --runtime-dir");
        }
        let shown = socket.display();
        if [CONTROL_SOCKET, ATTACH_SOCKET, STATE_FILE].iter().any(|own| path == host.runtime_dir.join(own)) {
            wrong(format!("\"{shown}\" is the daemon's own"), "write another, like \"vm1.sock\"");
        }
        if let Some(owner) = owners.insert(path, entry.name) {
            wrong(format!("the socket \"{shown}\" already belongs to port \"{owner}\""), "give each port its own");
        }
    }
    findings
}

/// Finds ports on pollers that do not exist.
fn pollers_exist(input: &CheckInput<'_>) -> Vec<Finding> {
    let pollers = input.config.engine.pollers();
    let missing = |entry: NamedPort<'_>| {
        let Placement::Poller(number) = entry.port.poller else { return None };
        let right = match pollers {
            1 => "[engine] cores makes one, 0".to_owned(),
            _ => format!("[engine] cores makes 0 to {}", pollers - 1),
        };
        let what = format!("there is no poller {number}");
        (number as usize >= pollers).then(|| entry.finding("poller", what, right))
    };
    input.ports().filter_map(missing).collect()
}

/// Returns the limits of all ports: the port, the limit's key, and the limit.
fn limits<'a>(input: &CheckInput<'a>) -> impl Iterator<Item = (NamedPort<'a>, &'static str, &'a Limit)> {
    input.ports().flat_map(|entry| [(entry, "ingress", &entry.port.ingress), (entry, "egress", &entry.port.egress)])
}

/// A finding at a key of a limit.
fn at_limit(entry: NamedPort<'_>, limit: &str, key: &str, what: String, right: String) -> Finding {
    let mut finding = entry.finding(limit, what, right);
    finding.path.push(key.to_owned());
    finding
}

/// Finds limits with buckets that do not exist.
fn buckets_exist(input: &CheckInput<'_>) -> Vec<Finding> {
    let missing = |(entry, key, limit): (NamedPort<'_>, &str, &Limit)| {
        let (what, right) = no_such_bucket(limit, input.config)?;
        Some(at_limit(entry, key, "bucket", what, right))
    };
    limits(input).filter_map(missing).collect()
}

/// Returns the texts for a limit whose bucket does not exist.
fn no_such_bucket(limit: &Limit, config: &Config) -> Option<(String, String)> {
    let bucket = limit.bucket.as_ref().filter(|bucket| !config.buckets.contains_key(*bucket))?;
    let right = match nearest(bucket.as_str(), config.buckets.keys().map(Name::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("make it with [bucket.{bucket}] in the file, or \"ringway bucket set {bucket} rate=1Gbit\""),
    };
    Some((format!("there is no bucket \"{bucket}\""), right))
}

/// Finds buckets whose ports are guaranteed more than the bucket has.
fn guarantees_fit(input: &CheckInput<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (bucket, settings) in &input.config.buckets {
        let guaranteed = limits(input).filter(|(.., limit)| limit.bucket.as_ref() == Some(bucket));
        let mut sum = 0;
        for (entry, key, limit) in guaranteed {
            sum += limit.rate.unwrap_or(0);
            if sum > settings.rate && limit.rate.is_some() {
                let has = show_bits(settings.rate);
                let what = format!(
                    "the rates of the ports of bucket \"{bucket}\" add up to {}, and it has {has}",
                    show_bits(sum)
                );
                let right = "write less, or ceiling instead of rate: it is lent and not guaranteed".to_owned();
                let excess = Some((bucket.clone(), sum - settings.rate));
                findings.push(Finding { excess, ..at_limit(entry, key, "rate", what, right) });
            }
        }
    }
    findings
}

/// Finds mirrors of ports that cannot be mirrored, and settings that mirrors cannot have.
fn mirrors_are_valid(input: &CheckInput<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in input.ports().filter(|entry| !entry.port.mirror.is_empty()) {
        let mirror = entry.port;
        for wanted in &mirror.mirror {
            let (what, right) = match input.named(&mirror.switch, wanted) {
                _ if wanted == entry.name => ("a port cannot mirror itself".to_owned(), "name others".to_owned()),
                Some(port) if port.switch != mirror.switch => (
                    format!("port \"{wanted}\" is on switch \"{}\"", port.switch),
                    format!("name ports of \"{}\"", mirror.switch),
                ),
                Some(port) if !port.mirror.is_empty() => {
                    (format!("port \"{wanted}\" is a mirror itself"), "name the ports that it mirrors".to_owned())
                }
                Some(_) => continue,
                None if input.config.attach.create != Create::Nothing => continue,
                None => (
                    format!("there is no port \"{wanted}\", and clients may not make one"),
                    format!("write [port.{wanted}], or name a port of \"{}\"", mirror.switch),
                ),
            };
            findings.push(entry.finding("mirror", what, right));
        }
        if !mirror.mac.is_empty() {
            let what = "a mirror has no addresses: frames are not for it".to_owned();
            findings.push(entry.finding("mac", what, "leave it out, or \"mirror\"".to_owned()));
        }
        if mirror.identity.uplink {
            let what = "a mirror leads nowhere: it is given copies and nothing else".to_owned();
            findings.push(entry.finding("uplink", what, "leave it out, or \"mirror\"".to_owned()));
        }
        let identity = &mirror.identity;
        let idle = [
            ("ip", !identity.ip.is_empty()),
            ("guard", identity.guard != GuardMode::Auto),
            ("isolated", mirror.isolated),
            ("uplinks", identity.uplinks != PortSet::All),
            ("allow", identity.allow != PortSet::All),
            ("vlan", matches!(identity.vlans(), Vlan::Access(_))),
            ("trunk", matches!(identity.vlans(), Vlan::Trunk { .. })),
        ];
        for (key, _) in idle.into_iter().filter(|(_, is_there)| *is_there) {
            let what = "it changes nothing for a mirror, which is given copies and may send nothing".to_owned();
            findings.push(entry.finding(key, what, "leave it out, or \"mirror\"".to_owned()));
        }
        let limits = [
            ("ingress", mirror.ingress.is_some()),
            ("egress", mirror.egress.is_some()),
            ("storm", mirror.storm.is_some()),
        ];
        for (key, _) in limits.into_iter().filter(|(_, is_there)| *is_there) {
            let what = "a mirror has no limits: it may send nothing, and is given copies of what passed".to_owned();
            let right = "leave it out, and limit the ports that are mirrored".to_owned();
            findings.push(entry.finding(key, what, right));
        }
    }
    findings
}

/// Finds ports in `allow` and `uplinks` that are not on the switch or not of the right sort. A dynamic port need not exist yet.
fn neighbours_exist(input: &CheckInput<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in input.ports() {
        let port = entry.port;
        let lists = [("allow", &port.identity.allow), ("uplinks", &port.identity.uplinks)];
        for (key, other) in lists.into_iter().flat_map(|(key, list)| list.names().map(move |other| (key, other))) {
            let (what, right) = match input.named(&port.switch, other) {
                Some(found) if found.switch != port.switch => (
                    format!("port \"{other}\" is on switch \"{}\"", found.switch),
                    format!("name a port of \"{}\"", port.switch),
                ),
                Some(found) if key == "uplinks" && !found.identity.uplink => {
                    (format!("port \"{other}\" is no uplink"), format!("write uplink = true in [port.{other}]"))
                }
                Some(found) if key == "allow" && found.identity.uplink => {
                    (format!("port \"{other}\" is an uplink"), "name it in uplinks".to_owned())
                }
                Some(_) => continue,
                None if input.config.attach.create != Create::Nothing && key == "allow" => continue,
                None => (format!("there is no port \"{other}\""), format!("write [port.{other}]")),
            };
            findings.push(entry.finding(key, what, right));
        }
    }
    findings
}

/// Finds `port:NAME` values without a port of the switch. A dynamic port need not exist yet.
fn flood_ports_exist(input: &CheckInput<'_>, name: &Name, switch: &Switch) -> Vec<Finding> {
    let settings = [
        ("broadcast", &switch.broadcast),
        ("multicast", &switch.multicast),
        ("unknown_unicast", &switch.unknown_unicast),
    ];
    let problem = |(key, flood): (&str, &Flood)| {
        let Flood::Port(to) = flood else { return None };
        let (what, right) = match input.named(name, to) {
            Some(port) if port.switch == *name && !port.mirror.is_empty() => (
                format!("port \"{to}\" is a mirror: it is given copies and nothing else"),
                "name a port that is none, or \"flood\"".to_owned(),
            ),
            Some(port) if port.switch == *name => return None,
            Some(port) => {
                (format!("port \"{to}\" is on switch \"{}\"", port.switch), format!("name a port of \"{name}\""))
            }
            None if input.config.attach.create != Create::Nothing => return None,
            None => (
                format!("there is no port \"{to}\", and clients may not make one"),
                format!("write [port.{to}], or name a port of \"{name}\""),
            ),
        };
        Some(Finding::new(vec!["switch".to_owned(), name.to_string(), key.to_owned()], what, right))
    };
    settings.into_iter().filter_map(problem).collect()
}
