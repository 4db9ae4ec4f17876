//! What only the whole configuration can tell: whether its parts agree.

use std::collections::BTreeMap;

use super::mistake::{Mistake, nearest};
use super::switch::{Flood, Forwarding};
use super::units::show_bits;
use super::{Config, Create, Host, Limit, Name, Placement, Port, Switch};
use crate::runtime_dir::{ATTACH_SOCKET, CONTROL_SOCKET, SOCKET_PATH_MAX};

/// A disagreement between parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Keys from the root to the part to blame. The last may be absent from what was written.
    pub path: Vec<String>,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub right: String,
}

impl From<Finding> for Mistake {
    fn from(finding: Finding) -> Self {
        Self { key: finding.path.join("."), span: None, what: finding.what, right: finding.right }
    }
}

/// All disagreements, within the configuration and with this machine, in the order of names.
pub fn check(config: &Config, host: &Host) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, switch) in &config.switches {
        findings.extend(floods(config, name, switch));
    }
    findings.extend(switches_exist(config));
    findings.extend(addresses_are_unique(config));
    findings.extend(devices_are_unique(config));
    findings.extend(sockets_can_be(config, host));
    findings.extend(pollers_exist(config));
    findings.extend(buckets_exist(config));
    findings.extend(guarantees_can_be_kept(config));
    findings.extend(mirrors_can_be(config));
    findings.extend(neighbours_exist(config));
    findings
}

fn at_port(name: &Name, key: &str, what: String, right: String) -> Finding {
    Finding { path: vec!["port".to_owned(), name.to_string(), key.to_owned()], what, right }
}

fn switches_exist(config: &Config) -> Vec<Finding> {
    let missing = |(name, port): (&Name, &Port)| {
        let known = || config.switches.keys().map(Name::as_str);
        let right = match nearest(port.switch.as_str(), known()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("write [switch.{}] to have one", port.switch),
        };
        at_port(name, "switch", format!("there is no switch \"{}\"", port.switch), right)
    };
    config.ports.iter().filter(|(_, port)| !config.switches.contains_key(&port.switch)).map(missing).collect()
}

fn addresses_are_unique(config: &Config) -> Vec<Finding> {
    let mut owners = BTreeMap::new();
    let mut findings = Vec::new();
    let is_map = |port: &Port| config.switches.get(&port.switch).is_some_and(|s| s.forwarding == Forwarding::Map);
    for (name, port) in config.ports.iter().filter(|(_, port)| is_map(port)) {
        for mac in &port.mac {
            if let Some(owner) = owners.insert((&port.switch, mac), name) {
                let what = format!("{mac} is already bound to port \"{owner}\" of the map switch \"{}\"", port.switch);
                findings.push(at_port(name, "mac", what, "bind each address to one port".to_owned()));
            }
        }
    }
    findings
}

fn devices_are_unique(config: &Config) -> Vec<Finding> {
    let mut owners = BTreeMap::new();
    let mut findings = Vec::new();
    for (name, port) in &config.ports {
        let Some(device) = &port.device else { continue };
        if let Some(owner) = owners.insert((device, &port.netns), name) {
            let what = format!("the device \"{device}\" already belongs to port \"{owner}\"");
            findings.push(at_port(name, "device", what, "give each port its own device".to_owned()));
        }
    }
    findings
}

/// A socket's path must fit into an address, and be nobody else's.
fn sockets_can_be(config: &Config, host: &Host) -> Vec<Finding> {
    let mut owners = BTreeMap::new();
    let mut findings = Vec::new();
    let ports = config.ports.iter().filter_map(|(name, port)| Some((name, port.socket.as_ref()?)));
    for (name, socket) in ports {
        let path = host.runtime_dir.join(&socket.path);
        let mut wrong = |what, right: &str| findings.push(at_port(name, "socket", what, right.to_owned()));
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_MAX {
            let what = format!("{} has {bytes} bytes, and a socket's path at most {SOCKET_PATH_MAX}", path.display());
            wrong(what, "write a shorter one, or choose a shorter --runtime-dir");
        }
        let shown = socket.path.display();
        if [CONTROL_SOCKET, ATTACH_SOCKET].iter().any(|own| path == host.runtime_dir.join(own)) {
            wrong(format!("\"{shown}\" is the daemon's own"), "write another, like \"vm1.sock\"");
        }
        if let Some(owner) = owners.insert(path, name) {
            wrong(format!("the socket \"{shown}\" already belongs to port \"{owner}\""), "give each port its own");
        }
    }
    findings
}

fn pollers_exist(config: &Config) -> Vec<Finding> {
    let missing = |(name, port): (&Name, &Port)| {
        let (what, right) = no_such_poller(port, config.engine.pollers())?;
        Some(at_port(name, "poller", what, right))
    };
    config.ports.iter().filter_map(missing).collect()
}

/// What is wrong, and what would be right, where a port is to be on a poller that is not there.
pub fn no_such_poller(port: &Port, pollers: usize) -> Option<(String, String)> {
    let Placement::Poller(number) = port.poller else { return None };
    let right = match pollers {
        1 => "[engine] cores makes one, 0".to_owned(),
        _ => format!("[engine] cores makes 0 to {}", pollers - 1),
    };
    (number as usize >= pollers).then(|| (format!("there is no poller {number}"), right))
}

/// The limits of all ports: the port's name, the limit's key, and the limit.
fn limits(config: &Config) -> impl Iterator<Item = (&Name, &'static str, &Limit)> {
    config.ports.iter().flat_map(|(name, port)| [(name, "ingress", &port.ingress), (name, "egress", &port.egress)])
}

fn at_limit(name: &Name, limit: &str, key: &str, what: String, right: String) -> Finding {
    let mut finding = at_port(name, limit, what, right);
    finding.path.push(key.to_owned());
    finding
}

fn buckets_exist(config: &Config) -> Vec<Finding> {
    let missing = |(name, key, limit): (&Name, &str, &Limit)| {
        let (what, right) = no_such_bucket(limit, config)?;
        Some(at_limit(name, key, "bucket", what, right))
    };
    limits(config).filter_map(missing).collect()
}

/// What is wrong, and what would be right, where a limit is part of a bucket that is not there.
fn no_such_bucket(limit: &Limit, config: &Config) -> Option<(String, String)> {
    let bucket = limit.bucket.as_ref().filter(|bucket| !config.buckets.contains_key(*bucket))?;
    let right = match nearest(bucket.as_str(), config.buckets.keys().map(Name::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("write [bucket.{bucket}] to have one"),
    };
    Some((format!("there is no bucket \"{bucket}\""), right))
}

/// What passes in any case must not be more than the bucket gives.
fn guarantees_can_be_kept(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (bucket, settings) in &config.buckets {
        let guaranteed = limits(config).filter(|(.., limit)| limit.bucket.as_ref() == Some(bucket));
        let mut sum = 0;
        for (name, key, limit) in guaranteed {
            sum += limit.rate.unwrap_or(0);
            if sum > settings.rate && limit.rate.is_some() {
                let has = show_bits(settings.rate);
                let what = format!(
                    "the rates of the ports of bucket \"{bucket}\" add up to {}, and it has {has}",
                    show_bits(sum)
                );
                let right = "write less, or ceiling instead of rate: it is lent and not guaranteed".to_owned();
                findings.push(at_limit(name, key, "rate", what, right));
            }
        }
    }
    findings
}

/// A mirror is given copies of frames of ports of its switch that are no mirrors.
fn mirrors_can_be(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, mirror) in config.ports.iter().filter(|(_, port)| !port.mirror.is_empty()) {
        for wanted in &mirror.mirror {
            let (what, right) = match config.ports.get(wanted) {
                _ if wanted == name => ("a port cannot mirror itself".to_owned(), "name others".to_owned()),
                Some(port) if port.switch != mirror.switch => (
                    format!("port \"{wanted}\" is on switch \"{}\"", port.switch),
                    format!("name ports of \"{}\"", mirror.switch),
                ),
                Some(port) if !port.mirror.is_empty() => {
                    (format!("port \"{wanted}\" is a mirror itself"), "name the ports that it mirrors".to_owned())
                }
                Some(_) => continue,
                None if config.attach.create != Create::Nothing => continue,
                None => (
                    format!("there is no port \"{wanted}\", and clients may not make one"),
                    format!("write [port.{wanted}], or name a port of \"{}\"", mirror.switch),
                ),
            };
            findings.push(at_port(name, "mirror", what, right));
        }
        if !mirror.mac.is_empty() {
            let what = "a mirror has no addresses: frames are not for it".to_owned();
            findings.push(at_port(name, "mac", what, "leave it out, or \"mirror\"".to_owned()));
        }
        let limits = [
            ("ingress", mirror.ingress.is_some()),
            ("egress", mirror.egress.is_some()),
            ("storm", mirror.storm.is_some()),
        ];
        for (key, _) in limits.into_iter().filter(|(_, is_there)| *is_there) {
            let what = "a mirror has no limits: it may send nothing, and is given copies of what passed".to_owned();
            let right = "leave it out, and limit the ports that are mirrored".to_owned();
            findings.push(at_port(name, key, what, right));
        }
    }
    findings
}

/// `allow` and `uplinks` name other ports of the switch. Those that clients may make by attaching need not exist yet.
fn neighbours_exist(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, port) in &config.ports {
        let lists = [("allow", &port.identity.allow), ("uplinks", &port.identity.uplinks)];
        for (key, other) in lists.into_iter().flat_map(|(key, list)| list.names().map(move |other| (key, other))) {
            let (what, right) = match config.ports.get(other) {
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
                None if config.attach.create != Create::Nothing && key == "allow" => continue,
                None => (format!("there is no port \"{other}\""), format!("write [port.{other}]")),
            };
            findings.push(at_port(name, key, what, right));
        }
    }
    findings
}

/// `port:NAME` must name a port of that switch. One that clients may make by attaching need not exist yet.
fn floods(config: &Config, name: &Name, switch: &Switch) -> Vec<Finding> {
    let settings = [
        ("broadcast", &switch.broadcast),
        ("multicast", &switch.multicast),
        ("unknown_unicast", &switch.unknown_unicast),
    ];
    let problem = |(key, flood): (&str, &Flood)| {
        let Flood::Port(to) = flood else { return None };
        let (what, right) = match config.ports.get(to) {
            Some(port) if port.switch == *name => return None,
            Some(port) => {
                (format!("port \"{to}\" is on switch \"{}\"", port.switch), format!("name a port of \"{name}\""))
            }
            None if config.attach.create != Create::Nothing => return None,
            None => (
                format!("there is no port \"{to}\", and clients may not make one"),
                format!("write [port.{to}], or name a port of \"{name}\""),
            ),
        };
        Some(Finding { path: vec!["switch".to_owned(), name.to_string(), key.to_owned()], what, right })
    };
    settings.into_iter().filter_map(problem).collect()
}
