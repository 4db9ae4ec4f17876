//! Checks that the parts of a configuration agree with each other, with the ports that clients made, and with this machine.

use std::collections::BTreeMap;

use super::identity::{Guarding, Ports, Vlan};
use super::mistake::{Mistake, nearest};
use super::switch::{Flood, Forwarding};
use super::units::show_bits;
use super::{Config, Create, Host, Limit, Name, Placement, Port, Switch};
use crate::kinds::End;
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
    /// Where more is promised of a bucket than it has: of which, and how much more.
    excess: Option<(Name, u64)>,
}

impl Finding {
    fn new(path: Vec<String>, what: String, right: String) -> Self {
        Self { path, what, right, excess: None }
    }

    /// Returns true if this disagreement was there before, as bad or worse.
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

/// Ports that clients made by attaching, by switch and name. Their names are unique on their switch only.
pub type Made = BTreeMap<(Name, Name), Port>;

/// Everything that has to agree.
struct Whole<'a> {
    config: &'a Config,
    made: &'a Made,
    /// The part to blame where several do not agree: a prefix of keys like `port.vm1.`.
    about: &'a str,
}

/// A port of the whole.
#[derive(Clone, Copy)]
struct Entry<'a> {
    name: &'a Name,
    port: &'a Port,
    is_made: bool,
}

impl<'a> Whole<'a> {
    fn configured(&self) -> impl Iterator<Item = Entry<'a>> {
        self.config.ports.iter().map(|(name, port)| Entry { name, port, is_made: false })
    }

    /// All ports, last the one that is to blame.
    fn ports(&self) -> impl Iterator<Item = Entry<'a>> {
        let made = self.made.iter().map(|((_, name), port)| Entry { name, port, is_made: true });
        let (last, others): (Vec<_>, Vec<_>) =
            self.configured().chain(made).partition(|entry| self.about == format!("port.{}.", entry.label()));
        others.into_iter().chain(last)
    }

    /// The port of this name on this switch, or else the configured one on another.
    fn named(&self, switch: &Name, name: &Name) -> Option<&'a Port> {
        let configured = self.config.ports.get(name);
        let made = || self.made.get(&(switch.clone(), name.clone()));
        configured.filter(|port| port.switch == *switch).or_else(made).or(configured)
    }
}

impl Entry<'_> {
    /// The port as users name it.
    fn label(&self) -> String {
        if self.is_made { format!("{}:{}", self.port.switch, self.name) } else { self.name.to_string() }
    }

    fn finding(&self, key: &str, what: String, right: String) -> Finding {
        Finding::new(vec!["port".to_owned(), self.label(), key.to_owned()], what, right)
    }
}

/// All disagreements, within the configuration, with the ports that clients made, and with this machine, in the order of
/// names. Where ports do not agree, it is a later one that is blamed, or that whose keys begin with `about`.
pub fn check(config: &Config, made: &Made, host: &Host, about: &str) -> Vec<Finding> {
    let whole = Whole { config, made, about };
    let mut findings = Vec::new();
    for (name, switch) in &config.switches {
        findings.extend(floods(&whole, name, switch));
    }
    findings.extend(switches_exist(&whole));
    findings.extend(addresses_are_unique(&whole));
    findings.extend(devices_are_unique(&whole));
    findings.extend(sockets_can_be(&whole, host));
    findings.extend(pollers_exist(&whole));
    findings.extend(buckets_exist(&whole));
    findings.extend(guarantees_can_be_kept(&whole));
    findings.extend(mirrors_can_be(&whole));
    findings.extend(neighbours_exist(&whole));
    findings
}

/// Finds ports on switches that do not exist. A switch that a client made exists.
fn switches_exist(whole: &Whole<'_>) -> Vec<Finding> {
    let switches = &whole.config.switches;
    let missing = |entry: Entry<'_>| {
        let wanted = &entry.port.switch;
        let right = match nearest(wanted.as_str(), switches.keys().map(Name::as_str)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("write [switch.{wanted}] to have one"),
        };
        entry.finding("switch", format!("there is no switch \"{wanted}\""), right)
    };
    whole.configured().filter(|entry| !switches.contains_key(&entry.port.switch)).map(missing).collect()
}

fn addresses_are_unique(whole: &Whole<'_>) -> Vec<Finding> {
    let mut owners = BTreeMap::new();
    let mut findings = Vec::new();
    let switches = &whole.config.switches;
    let is_map = |port: &Port| switches.get(&port.switch).is_some_and(|s| s.forwarding == Forwarding::Map);
    for entry in whole.ports().filter(|entry| is_map(entry.port)) {
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

fn devices_are_unique(whole: &Whole<'_>) -> Vec<Finding> {
    let mut owners = BTreeMap::new();
    let mut findings = Vec::new();
    for entry in whole.ports() {
        let End::Device { device, netns } = entry.port.settings.own().end() else { continue };
        if let Some(owner) = owners.insert((device, netns), entry.name) {
            let what = format!("the device \"{device}\" already belongs to port \"{owner}\"");
            findings.push(entry.finding("device", what, "give each port its own device".to_owned()));
        }
    }
    findings
}

/// Finds sockets' paths that are too long for an address, or are used twice.
fn sockets_can_be(whole: &Whole<'_>, host: &Host) -> Vec<Finding> {
    let mut owners = BTreeMap::new();
    let mut findings = Vec::new();
    for (entry, socket) in whole.ports().filter_map(|entry| Some((entry, entry.port.settings.socket()?))) {
        let path = host.runtime_dir.join(socket);
        let mut wrong = |what, right: &str| findings.push(entry.finding("socket", what, right.to_owned()));
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_MAX {
            let what = format!("{} has {bytes} bytes, and a socket's path at most {SOCKET_PATH_MAX}", path.display());
            wrong(what, "write a shorter one, or choose a shorter --runtime-dir");
        }
        let shown = socket.display();
        if [CONTROL_SOCKET, ATTACH_SOCKET].iter().any(|own| path == host.runtime_dir.join(own)) {
            wrong(format!("\"{shown}\" is the daemon's own"), "write another, like \"vm1.sock\"");
        }
        if let Some(owner) = owners.insert(path, entry.name) {
            wrong(format!("the socket \"{shown}\" already belongs to port \"{owner}\""), "give each port its own");
        }
    }
    findings
}

fn pollers_exist(whole: &Whole<'_>) -> Vec<Finding> {
    let pollers = whole.config.engine.pollers();
    let missing = |entry: Entry<'_>| {
        let Placement::Poller(number) = entry.port.poller else { return None };
        let right = match pollers {
            1 => "[engine] cores makes one, 0".to_owned(),
            _ => format!("[engine] cores makes 0 to {}", pollers - 1),
        };
        let what = format!("there is no poller {number}");
        (number as usize >= pollers).then(|| entry.finding("poller", what, right))
    };
    whole.ports().filter_map(missing).collect()
}

/// The limits of all ports: the port, the limit's key, and the limit.
fn limits<'a>(whole: &Whole<'a>) -> impl Iterator<Item = (Entry<'a>, &'static str, &'a Limit)> {
    whole.ports().flat_map(|entry| [(entry, "ingress", &entry.port.ingress), (entry, "egress", &entry.port.egress)])
}

fn at_limit(entry: Entry<'_>, limit: &str, key: &str, what: String, right: String) -> Finding {
    let mut finding = entry.finding(limit, what, right);
    finding.path.push(key.to_owned());
    finding
}

fn buckets_exist(whole: &Whole<'_>) -> Vec<Finding> {
    let missing = |(entry, key, limit): (Entry<'_>, &str, &Limit)| {
        let (what, right) = no_such_bucket(limit, whole.config)?;
        Some(at_limit(entry, key, "bucket", what, right))
    };
    limits(whole).filter_map(missing).collect()
}

/// Returns what is wrong and what would be right, if a limit names a bucket that does not exist.
fn no_such_bucket(limit: &Limit, config: &Config) -> Option<(String, String)> {
    let bucket = limit.bucket.as_ref().filter(|bucket| !config.buckets.contains_key(*bucket))?;
    let right = match nearest(bucket.as_str(), config.buckets.keys().map(Name::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("write [bucket.{bucket}] to have one"),
    };
    Some((format!("there is no bucket \"{bucket}\""), right))
}

/// Finds buckets whose ports are guaranteed more than the bucket has.
fn guarantees_can_be_kept(whole: &Whole<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (bucket, settings) in &whole.config.buckets {
        let guaranteed = limits(whole).filter(|(.., limit)| limit.bucket.as_ref() == Some(bucket));
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
fn mirrors_can_be(whole: &Whole<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in whole.ports().filter(|entry| !entry.port.mirror.is_empty()) {
        let mirror = entry.port;
        for wanted in &mirror.mirror {
            let (what, right) = match whole.named(&mirror.switch, wanted) {
                _ if wanted == entry.name => ("a port cannot mirror itself".to_owned(), "name others".to_owned()),
                Some(port) if port.switch != mirror.switch => (
                    format!("port \"{wanted}\" is on switch \"{}\"", port.switch),
                    format!("name ports of \"{}\"", mirror.switch),
                ),
                Some(port) if !port.mirror.is_empty() => {
                    (format!("port \"{wanted}\" is a mirror itself"), "name the ports that it mirrors".to_owned())
                }
                Some(_) => continue,
                None if whole.config.attach.create != Create::Nothing => continue,
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
            ("guard", identity.guard != Guarding::Auto),
            ("isolated", mirror.isolated),
            ("uplinks", identity.uplinks != Ports::All),
            ("allow", identity.allow != Ports::All),
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

/// `allow` and `uplinks` name other ports of the switch. Those that clients may make by attaching need not exist yet.
fn neighbours_exist(whole: &Whole<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in whole.ports() {
        let port = entry.port;
        let lists = [("allow", &port.identity.allow), ("uplinks", &port.identity.uplinks)];
        for (key, other) in lists.into_iter().flat_map(|(key, list)| list.names().map(move |other| (key, other))) {
            let (what, right) = match whole.named(&port.switch, other) {
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
                None if whole.config.attach.create != Create::Nothing && key == "allow" => continue,
                None => (format!("there is no port \"{other}\""), format!("write [port.{other}]")),
            };
            findings.push(entry.finding(key, what, right));
        }
    }
    findings
}

/// `port:NAME` must name a port of that switch. One that clients may make by attaching need not exist yet.
fn floods(whole: &Whole<'_>, name: &Name, switch: &Switch) -> Vec<Finding> {
    let settings = [
        ("broadcast", &switch.broadcast),
        ("multicast", &switch.multicast),
        ("unknown_unicast", &switch.unknown_unicast),
    ];
    let problem = |(key, flood): (&str, &Flood)| {
        let Flood::Port(to) = flood else { return None };
        let (what, right) = match whole.named(name, to) {
            Some(port) if port.switch == *name && !port.mirror.is_empty() => (
                format!("port \"{to}\" is a mirror: it is given copies and nothing else"),
                "name a port that is none, or \"flood\"".to_owned(),
            ),
            Some(port) if port.switch == *name => return None,
            Some(port) => {
                (format!("port \"{to}\" is on switch \"{}\"", port.switch), format!("name a port of \"{name}\""))
            }
            None if whole.config.attach.create != Create::Nothing => return None,
            None => (
                format!("there is no port \"{to}\", and clients may not make one"),
                format!("write [port.{to}], or name a port of \"{name}\""),
            ),
        };
        Some(Finding::new(vec!["switch".to_owned(), name.to_string(), key.to_owned()], what, right))
    };
    settings.into_iter().filter_map(problem).collect()
}
