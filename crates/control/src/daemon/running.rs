//! The wanted configuration, and the configuration that a request would make of it. Nothing here touches the system: a
//! request becomes a new [`Config`], complete and checked, or a refusal.
//!
//! Two sources feed it: the configuration file and commands. A reload makes everything that the file names as the file says,
//! and takes away what the file named before; what commands added stays, unless the file now names it too.
//!
//! Commands that set a port, a bucket or a switch make a complete configuration of the running one, which goes the same way
//! as a configuration from a file. `config/check.rs` alone checks whether its parts agree: the configuration, and the ports
//! that clients made, each by switch and name. A change is refused for a disagreement that exists afterwards and did not
//! exist before, or not as badly.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::port_ref::PortRef;
use super::refused::Refused;
use crate::config::check::{Made, check};
use crate::config::keys::Keys;
use crate::config::node::{Entry, Node, Value};
use crate::config::{Bucket, Config, Create, Host, Mistake, Name, Port, Switch, load};

/// The configuration in force and where it comes from.
#[derive(Clone, Debug)]
pub struct Running {
    /// In force.
    pub config: Config,
    /// What the file said when it was read last.
    from_file: Config,
    file: Option<PathBuf>,
    host: Host,
}

impl Running {
    /// Nothing but `from_file` (which was read from `file`) is to run.
    pub fn new(file: Option<PathBuf>, from_file: Config, host: Host) -> Self {
        Self { config: from_file.clone(), from_file, file, host }
    }

    /// Where the daemon's sockets are.
    pub fn runtime_dir(&self) -> &Path {
        &self.host.runtime_dir
    }

    /// What would run with one more port, or with one that a client `made` and that is to stay: what the keys do not name of
    /// it is as it is.
    ///
    /// # Errors
    /// Keys are wrong or missing, or the name is taken.
    pub fn with_port(&self, port: &PortRef, keys: &Node, made: &Made) -> Result<Config, Refused> {
        let mistakes = RefCell::default();
        let keys = with_switch_of(port, keys);
        let keys = Keys::new("", &keys, None, &mistakes);
        let new = Port::read_section(&port.name, &keys, made);
        if let (Some(new), Some(given)) = (&new, &port.switch)
            && new.switch != *given
        {
            keys.wrong(
                "switch",
                None,
                format!("\"{}\" is not the switch of \"{port}\"", new.switch),
                "write one of them",
            );
        }
        keys.finish();
        let mistakes = mistakes.into_inner();
        let Some(new) = new.filter(|_| mistakes.is_empty()) else { return Err(Refused::Mistakes(mistakes)) };
        if let Some(old) = self.config.ports.get(&port.name) {
            let what = format!(
                "port \"{}\" exists already, on switch \"{}\": change it with \"port set\"",
                port.name, old.switch
            );
            return Err(Refused::Conflict(what));
        }
        let mut config = self.config.clone();
        if config.attach.create == Create::Switches {
            config.switches.entry(new.switch.clone()).or_default();
        }
        config.ports.insert(port.name.clone(), new);
        Ok(config)
    }

    /// What would run with a configured port changed.
    ///
    /// # Errors
    /// Keys are wrong or cannot change.
    pub fn with_change(&self, name: &Name, keys: &Node) -> Result<Config, Refused> {
        let Some(old) = self.config.ports.get(name) else { return Err(unknown(name)) };
        let new = changed(old, keys)?;
        let mut config = self.config.clone();
        config.ports.insert(name.clone(), new);
        Ok(config)
    }

    /// What would run without a configured port.
    ///
    /// # Errors
    /// There is none.
    pub fn without_port(&self, name: &Name) -> Result<Config, Refused> {
        let mut config = self.config.clone();
        let gone = config.ports.remove(name).ok_or_else(|| unknown(name))?;
        let used = config.ports.values().any(|port| port.switch == gone.switch);
        let is_plain = config.switches.get(&gone.switch).is_none_or(|switch| *switch == Switch::default());
        if !used && is_plain && !self.from_file.switches.contains_key(&gone.switch) {
            // "port add" made it.
            config.switches.remove(&gone.switch);
        }
        Ok(config)
    }

    /// What would run with a bucket made, or made anew, as these keys say.
    ///
    /// # Errors
    /// Keys are wrong or missing.
    pub fn with_bucket(&self, name: &Name, keys: &Node) -> Result<Config, Refused> {
        let bucket = read(keys, Bucket::read)?;
        let mut config = self.config.clone();
        config.buckets.extend(bucket.map(|bucket| (name.clone(), bucket)));
        Ok(config)
    }

    /// What would run without a bucket, which nobody needs.
    pub fn without_bucket(&self, name: &Name) -> Config {
        let mut config = self.config.clone();
        config.buckets.remove(name);
        config
    }

    /// What would run with a switch changed from `old`.
    ///
    /// # Errors
    /// Keys are wrong.
    pub fn with_switch(&self, name: &Name, old: &Switch, keys: &Node) -> Result<Config, Refused> {
        let new = read(keys, |keys| Switch::read_section(keys, old))?;
        let mut config = self.config.clone();
        config.switches.insert(name.clone(), new);
        Ok(config)
    }

    /// What would run after reading the file again: to be given to [`Running::reloaded`] once it does.
    ///
    /// # Errors
    /// There is no file, or it has mistakes.
    pub fn reread(&self) -> Result<Reread, Refused> {
        let file = self.file.as_deref().ok_or_else(|| {
            Refused::Conflict(
                "there is no configuration file to read again: \"ringway run\" was started without --config".to_owned(),
            )
        })?;
        let from_file = load(file, &self.host)?;
        let mut config = from_file.clone();
        let added = |name: &Name| !self.from_file.ports.contains_key(name);
        for (name, port) in self.config.ports.iter().filter(|(name, _)| added(name)) {
            config.ports.entry(name.clone()).or_insert_with(|| port.clone());
        }
        let added = |name: &Name| !self.from_file.buckets.contains_key(name);
        for (name, bucket) in self.config.buckets.iter().filter(|(name, _)| added(name)) {
            config.buckets.entry(name.clone()).or_insert_with(|| bucket.clone());
        }
        let added = |name: &Name| !self.from_file.switches.contains_key(name);
        for (name, switch) in self.config.switches.iter().filter(|(name, _)| added(name)) {
            config.switches.entry(name.clone()).or_insert_with(|| switch.clone());
        }
        Ok(Reread { config, from_file })
    }

    /// Refuses a whole, of a configuration and the ports that clients made, whose parts disagree, unless they do no less in
    /// what runs now. Findings about the part in question (`about`: a prefix of keys) go by its keys alone.
    ///
    /// # Errors
    /// They disagree.
    pub fn agree(&self, now: &Made, config: &Config, then: &Made, about: &str) -> Result<(), Refused> {
        let mut findings = check(config, then, &self.host, about);
        if !findings.is_empty() {
            let before = check(&self.config, now, &self.host, about);
            findings.retain(|finding| !finding.is_in(&before));
        }
        let mine = |mut mistake: Mistake| {
            if let Some(key) = mistake.key.strip_prefix(about) {
                mistake.key = key.to_owned();
            }
            mistake
        };
        let mistakes: Vec<Mistake> = findings.into_iter().map(|finding| mine(finding.into())).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(Refused::Mistakes(mistakes)) }
    }

    /// Takes note that what was read again now runs.
    pub fn reloaded(&mut self, reread: Reread) {
        self.config = reread.config;
        self.from_file = reread.from_file;
    }
}

/// A file read again.
#[derive(Clone, Debug)]
pub struct Reread {
    /// What is to run.
    pub config: Config,
    from_file: Config,
}

/// What the keys say.
///
/// # Errors
/// Keys are wrong.
fn read<T>(keys: &Node, read: impl FnOnce(Keys<'_>) -> T) -> Result<T, Refused> {
    let mistakes = RefCell::default();
    let read = read(Keys::new("", keys, None, &mistakes));
    let mistakes = mistakes.into_inner();
    if mistakes.is_empty() { Ok(read) } else { Err(Refused::Mistakes(mistakes)) }
}

/// `old` with the keys applied.
///
/// # Errors
/// Keys are wrong or cannot change.
pub fn changed(old: &Port, keys: &Node) -> Result<Port, Refused> {
    read(keys, |keys| {
        let new = old.changed(&keys);
        keys.finish();
        new
    })
}

/// `SWITCH:NAME` says the same as the key `switch`.
fn with_switch_of(port: &PortRef, keys: &Node) -> Node {
    let mut keys = keys.clone();
    if let (Value::Table(entries), Some(switch)) = (&mut keys.value, &port.switch)
        && entries.iter().all(|e| e.key != "switch")
    {
        let node = Node::new(Value::Text(switch.to_string()));
        entries.push(Entry { key: "switch".to_owned(), span: None, node });
    }
    keys
}

fn unknown(name: &Name) -> Refused {
    Refused::Unknown(format!("there is no port \"{name}\": see \"ringway port list\""))
}
