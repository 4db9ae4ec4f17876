//! The running configuration, and the configuration that a request would make of it. Nothing here touches the system: a
//! request becomes a new [`Config`], complete and checked, or a refusal.
//!
//! Its two sources are the configuration file and commands. What commands changed is the difference of the running configuration from
//! the file as it was read last (`config/changes`). A reload applies the difference to the new file: a change of a command stays unless
//! the file was edited at the same place. A start does the same with the difference that the state file has.
//!
//! Commands that set a port, a bucket or a switch make a complete configuration from the running one. It takes the same path as a
//! configuration from a file. `config/check.rs` alone checks that its parts agree, together with the dynamic ports. A change is
//! refused for a disagreement that it causes or makes worse.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ringway_config::changes::{Changes, Merged, SetAside, merge};
use ringway_config::check::check;
use ringway_config::doubts::doubts;
use ringway_config::keys::{Entry, Keys, Node, PortRef, Value};
use ringway_config::port::{self, DynamicPorts};
use ringway_config::{
    Bucket, Config, Create, Forwarding, Host, Loaded, Mistake, Name, Places, Port, Switch, load_with_doubts,
};

use super::refused::Refused;

/// The configuration in force and where it comes from.
#[derive(Clone, Debug)]
pub struct Running {
    /// The configuration in force.
    pub config: Config,
    /// The file as it was read last.
    from_file: Config,
    /// What commands changed and cannot be in force.
    set_aside: Vec<SetAside>,
    /// The configuration to start with.
    at_start: Config,
    /// The ports that commands had added before the start. A script that adds them again at each start is right.
    restored: BTreeSet<Name>,
    file: Option<PathBuf>,
    host: Host,
}

impl Running {
    /// The configuration of a file, with what commands changed before. Returns what of that the file contradicts, for users.
    pub fn new(file: Option<PathBuf>, from_file: Config, changes: &Changes, host: Host) -> (Self, Vec<String>) {
        let Merged { config, set_aside, contradictions } = merge(&from_file, changes, &DynamicPorts::new(), &host);
        let added = |name: &&Name| !from_file.ports.contains_key(*name);
        let restored = config.ports.keys().filter(added).cloned().collect();
        let running = Self { config: config.clone(), from_file, set_aside, at_start: config, restored, file, host };
        (running, contradictions.iter().map(ToString::to_string).collect())
    }

    /// The configuration to start with.
    pub fn at_start(&self) -> &Config {
        &self.at_start
    }

    /// Sets everything aside that commands changed, for this reason: the start is that of the file. Returns false if it is already.
    pub fn start_without_changes(&mut self, why: &str) -> bool {
        let changes = Changes::between(&self.from_file, &self.at_start);
        self.at_start = self.from_file.clone();
        let aside = changes.0.into_iter().map(|(id, change)| SetAside { id, change, why: why.to_owned() });
        let before = self.set_aside.len();
        self.set_aside.extend(aside);
        self.set_aside.len() > before
    }

    /// Returns what commands changed of the file and is in force.
    pub fn changes_in_force(&self) -> Changes {
        Changes::between(&self.from_file, &self.config)
    }

    /// Returns what commands changed and cannot be in force.
    pub fn set_aside(&self) -> &[SetAside] {
        &self.set_aside
    }

    /// Returns what commands changed, whether or not it is in force.
    pub fn changes(&self) -> Changes {
        let mut changes = self.changes_in_force();
        for SetAside { id, change, .. } in &self.set_aside {
            changes.0.entry(id.clone()).or_insert_with(|| change.clone());
        }
        changes
    }

    /// Forgets what was set aside of sections that commands have changed since.
    pub fn forget_replaced(&mut self) {
        if !self.set_aside.is_empty() {
            let changes = self.changes_in_force();
            self.set_aside.retain(|aside| !changes.0.contains_key(&aside.id));
        }
    }

    /// Drops what was set aside, and returns it.
    pub fn take_set_aside(&mut self) -> Vec<SetAside> {
        std::mem::take(&mut self.set_aside)
    }

    /// The file as it was read last.
    pub fn from_file(&self) -> &Config {
        &self.from_file
    }

    /// The lines of the file's sections.
    pub fn places(&self) -> Places {
        self.file.as_deref().map(Places::read).unwrap_or_default()
    }

    /// The directory of the daemon's sockets.
    pub fn runtime_dir(&self) -> &Path {
        &self.host.runtime_dir
    }

    /// Returns the configuration with one more port. If the port is one of the `dynamic` ports, it becomes a configured one and keeps the
    /// values of keys that are not written.
    ///
    /// # Errors
    /// Keys are wrong or missing, or the name is taken.
    pub fn with_port(&self, port: &PortRef, keys: &Node, dynamic: &DynamicPorts) -> Result<Config, Refused> {
        let mistakes = RefCell::default();
        let keys = with_switch_of(port, keys);
        let keys = Keys::new("", &keys, None, &mistakes);
        let new = Port::read_section(&port.name, &keys, dynamic);
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
        port::finish(keys);
        let mistakes = mistakes.into_inner();
        let Some(new) = new.filter(|_| mistakes.is_empty()) else { return Err(Refused::Mistakes(mistakes)) };
        if let Some(old) = self.config.ports.get(&port.name) {
            if *old == new && self.restored.contains(&port.name) {
                return Ok(self.config.clone());
            }
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

    /// Returns the configuration with a configured port changed.
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

    /// Returns the configuration without a configured port.
    ///
    /// # Errors
    /// There is no such port.
    pub fn without_port(&self, name: &Name) -> Result<Config, Refused> {
        let mut config = self.config.clone();
        let gone = config.ports.remove(name).ok_or_else(|| unknown(name))?;
        let used = config.ports.values().any(|port| port.switch == gone.switch);
        let is_plain = config.switches.get(&gone.switch).is_none_or(|switch| *switch == Switch::default());
        if !used && is_plain && !self.from_file.switches.contains_key(&gone.switch) {
            // "port add" made the switch.
            config.switches.remove(&gone.switch);
        }
        Ok(config)
    }

    /// Returns the configuration with a bucket that has these keys and the defaults of the others.
    ///
    /// # Errors
    /// Keys are wrong or missing.
    pub fn with_bucket(&self, name: &Name, keys: &Node) -> Result<Config, Refused> {
        let bucket = read(keys, Bucket::read)?;
        let mut config = self.config.clone();
        config.buckets.extend(bucket.map(|bucket| (name.clone(), bucket)));
        Ok(config)
    }

    /// Returns the configuration without a bucket that no port uses.
    pub fn without_bucket(&self, name: &Name) -> Config {
        let mut config = self.config.clone();
        config.buckets.remove(name);
        config
    }

    /// Returns the configuration with a switch changed from `old`.
    ///
    /// # Errors
    /// Keys are wrong.
    pub fn with_switch(&self, name: &Name, old: &Switch, keys: &Node) -> Result<Config, Refused> {
        let mut new = read(keys, |keys| Switch::read_section(keys, old))?;
        let mut mistakes = Vec::new();
        if let Forwarding::Program(program) = &mut new.forwarding {
            let is_relative = |path: &Path| !path.as_os_str().is_empty() && path.is_relative();
            for (key, path) in program.paths().filter(|(_, path)| is_relative(path)) {
                let what = format!("{} is a relative path, and the daemon does not know whose", path.display());
                let (key, right) = (format!("forwarding.{key}"), "write an absolute one".to_owned());
                mistakes.push(Mistake { key, span: None, what, right });
            }
        }
        if !mistakes.is_empty() {
            return Err(Refused::Mistakes(mistakes));
        }
        let mut config = self.config.clone();
        config.switches.insert(name.clone(), new);
        Ok(config)
    }

    /// Reads the file again. `dynamic`: the ports of clients. The result goes to [`Running::reloaded`] once its configuration runs.
    ///
    /// # Errors
    /// There is no file, or it has mistakes.
    pub fn reread(&self, dynamic: &DynamicPorts) -> Result<Reread, Refused> {
        let file = self.file.as_deref().ok_or_else(|| {
            Refused::Conflict(
                "there is no configuration file to read again: \"ringway run\" was started without --config".to_owned(),
            )
        })?;
        let Loaded { config: from_file, text, .. } = load_with_doubts(file, &self.host)?;
        let merged = merge(&from_file, &self.changes(), dynamic, &self.host);
        Ok(Reread { merged, from_file, text })
    }

    /// Checks that the parts of `config` and the dynamic ports agree: `before` are the dynamic ports now, `after` those with `config`.
    /// Disagreements that exist already, as bad or worse, are no reason to refuse. Messages about the part in question (`about`: a
    /// prefix of keys) name its keys without the prefix.
    ///
    /// # Errors
    /// Parts disagree.
    pub fn check(
        &self,
        before: &DynamicPorts,
        config: &Config,
        after: &DynamicPorts,
        about: &str,
    ) -> Result<(), Refused> {
        let mut findings = check(config, after, &self.host, about);
        if !findings.is_empty() {
            let before = check(&self.config, before, &self.host, about);
            findings.retain(|finding| !finding.is_in(&before));
        }
        let without_prefix = |mut mistake: Mistake| {
            if let Some(key) = mistake.key.strip_prefix(about) {
                mistake.key = key.to_owned();
            }
            mistake
        };
        let mistakes: Vec<Mistake> = findings.into_iter().map(|finding| without_prefix(finding.into())).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(Refused::Mistakes(mistakes)) }
    }

    /// Returns what is doubtful in the configuration, with these dynamic ports.
    pub fn doubts(&self, dynamic: &DynamicPorts) -> Vec<Mistake> {
        doubts(&self.config, dynamic).into_iter().map(Mistake::from).collect()
    }

    /// Takes note that the configuration of a reload runs. Returns what of the commands' changes the file contradicts, and what cannot be
    /// in force with it, for users.
    pub fn reloaded(&mut self, reread: Reread) -> Vec<String> {
        let Merged { config, set_aside, contradictions } = reread.merged;
        let mut said: Vec<String> = contradictions.iter().map(ToString::to_string).collect();
        let new = set_aside.iter().filter(|aside| !self.set_aside.iter().any(|before| before.id == aside.id));
        said.extend(new.map(ToString::to_string));
        (self.config, self.set_aside, self.from_file) = (config, set_aside, reread.from_file);
        said
    }
}

/// A configuration file that was read again.
#[derive(Clone, Debug)]
pub struct Reread {
    /// The configuration with what commands changed.
    pub merged: Merged,
    from_file: Config,
    /// The file's text.
    pub text: String,
}

/// Reads keys.
///
/// # Errors
/// Keys are wrong.
fn read<T>(keys: &Node, read: impl FnOnce(Keys<'_>) -> T) -> Result<T, Refused> {
    let mistakes = RefCell::default();
    let read = read(Keys::new("", keys, None, &mistakes));
    let mistakes = mistakes.into_inner();
    if mistakes.is_empty() { Ok(read) } else { Err(Refused::Mistakes(mistakes)) }
}

/// Returns the port `old` with these keys changed.
///
/// # Errors
/// Keys are wrong or cannot change.
pub fn changed(old: &Port, keys: &Node) -> Result<Port, Refused> {
    read(keys, |keys| {
        let new = old.changed(&keys);
        port::finish(keys);
        new
    })
}

/// Adds the key `switch` if the port is named `SWITCH:NAME`.
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
