//! What the switch may have: what the configuration file names, as the opener itself has read it, and what administrators have granted at run time.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ringway_api::paths::KEEPER_SOCKET;
use ringway_config::changes::section::{Id, Part, Section};
use ringway_config::kinds::contract::End;
use ringway_config::{Config, Host, Name, Port, Requests, load_with_doubts};
use serde::Deserialize;

use crate::state_file::StateFile;

/// Most bytes of grants.
const GRANTS_MOST: u64 = 1 << 20;

/// Something that the switch asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thing<'a> {
    /// A socket to listen on.
    Listener(&'a Path),
    /// The socket of a peer.
    Peer(&'a Path),
    /// A file to read.
    File(&'a Path),
    /// The file of an in-flight record.
    Record(&'a Path),
    /// The network device of a port with these settings.
    Device(&'a Port),
    /// A network namespace.
    Namespace(&'a str),
}

/// Files that every configuration may name things of.
const TABLES: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// The same, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Named {
    Listener(PathBuf),
    Peer(PathBuf),
    File(PathBuf),
    Device { name: String, netns: Option<String> },
}

/// A line of grants: a section of the configuration, as an administrator gave it to a command.
#[derive(Debug, Deserialize)]
struct Grant {
    #[serde(flatten)]
    of: Of,
    keys: serde_json::Map<String, serde_json::Value>,
}

/// Whose section it is.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Of {
    Port(String),
    Switch(String),
}

/// What the switch may have. What was allowed once stays so as long as the opener lives: the switch still closes and removes it.
#[derive(Debug)]
pub(super) struct Allowed {
    file: Option<PathBuf>,
    host: Host,
    grants: Option<File>,
    /// Bytes of the grants that were read.
    read: u64,
    named: HashSet<Named>,
    /// The state file, as the configuration names it.
    state: Option<PathBuf>,
    /// The grants, as they came.
    lines: BTreeSet<String>,
    /// Everything is allowed.
    is_any: bool,
}

impl Allowed {
    pub(super) fn new(file: Option<PathBuf>, host: Host, grants: Option<File>) -> Self {
        let runtime_dir = host.runtime_dir.canonicalize().unwrap_or_else(|_| host.runtime_dir.clone());
        let host = Host { runtime_dir, ..host };
        let mut allowed = Self {
            file,
            host,
            grants,
            read: 0,
            named: HashSet::new(),
            state: None,
            lines: BTreeSet::new(),
            is_any: false,
        };
        allowed.look();
        // Of a daemon before, whose run-time ports this one has, too.
        let before = allowed.state_file().grants();
        before.lines().for_each(|line| allowed.grant(line));
        allowed
    }

    /// Says whether the switch may have this.
    ///
    /// # Errors
    /// It may not: the reason, for users.
    pub(super) fn judge(&mut self, thing: Thing<'_>) -> Result<(), String> {
        // A reload: what the file names now holds for what comes next.
        if let Thing::File(path) = thing
            && self.is_own(path)
        {
            self.look();
        }
        if self.has(thing) {
            return Ok(());
        }
        // Somebody may have allowed it since.
        self.look();
        if self.has(thing) {
            return Ok(());
        }
        let what = match thing {
            Thing::Listener(path) | Thing::Peer(path) => format!("socket {}", path.display()),
            Thing::File(path) | Thing::Record(path) => format!("file {}", path.display()),
            Thing::Namespace(name) => format!("network namespace {name}"),
            Thing::Device(port) => match port.settings.own().end() {
                End::Device { device, netns: Some(netns) } => {
                    format!("device \"{device}\" of network namespace {netns}")
                }
                End::Device { device, netns: None } => format!("device \"{device}\""),
                _ => "a device of a port without one".to_owned(),
            },
        };
        let right = "use the command \"ringway\" on this machine, or name it in the configuration file and reload that";
        tracing::warn!("the switch may not have {what}: {right}");
        Err(format!("the switch may not open {what}, because no administrator has allowed it: {right}"))
    }

    fn is_own(&self, path: &Path) -> bool {
        self.file.as_deref().is_some_and(|own| path == own || real(path) == real(own))
    }

    fn has(&self, thing: Thing<'_>) -> bool {
        match thing {
            Thing::Listener(path) => {
                let path = real(path);
                let is_here = path.parent() == Some(&self.host.runtime_dir);
                if is_here && path.file_name() == Some(OsStr::new(KEEPER_SOCKET)) {
                    return false;
                }
                self.is_any || is_here || self.named.contains(&Named::Listener(path))
            }
            Thing::Record(path) => {
                let path = real(path);
                let is_record = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".inflight-"));
                is_record && path.parent() == Some(&self.host.runtime_dir)
            }
            Thing::File(path) => {
                let is_table = TABLES.iter().any(|table| path == Path::new(table));
                is_table || self.is_own(path) || self.named.contains(&Named::File(real(path)))
            }
            _ if self.is_any => true,
            Thing::Device(port) => device_of(port).is_some_and(|device| self.named.contains(&device)),
            Thing::Namespace(name) => self
                .named
                .iter()
                .any(|named| matches!(named, Named::Device { netns: Some(netns), .. } if netns == name)),
            Thing::Peer(path) => self.named.contains(&Named::Peer(real(path))),
        }
    }

    /// Returns the state file, and what is written beside it: what was granted outlives the daemon as long as there is a state.
    pub(super) fn kept(&self) -> (StateFile, String) {
        (self.state_file(), self.lines.iter().fold(String::new(), |all, line| all + line + "\n"))
    }

    /// The state file.
    fn state_file(&self) -> StateFile {
        StateFile::locate(self.state.as_deref().unwrap_or(Path::new("")), &self.host.runtime_dir, self.file.as_deref())
    }

    /// Reads the configuration file, and new grants.
    fn look(&mut self) {
        // A file with mistakes allows nothing new: no reload takes it either.
        if let Some(loaded) = self.file.as_deref().and_then(|file| load_with_doubts(file, &self.host).ok()) {
            self.allow(&loaded.config);
            self.is_any = loaded.config.privileged.requests == Requests::Any;
            // It is the one of the start, as for the switch.
            self.state.get_or_insert(loaded.config.state.file);
        }
        let lines = self.new_grants();
        lines.lines().for_each(|line| self.grant(line));
    }

    /// Allows what is in a line. One of another version allows nothing.
    fn grant(&mut self, line: &str) {
        let Ok(Grant { of, keys }) = serde_json::from_str(line) else { return };
        let mut config = Config::default();
        let mut section = Section(keys.into_iter().collect());
        let (part, name) = match of {
            Of::Port(name) => {
                // It can be in the port's name.
                section.0.entry("switch".to_owned()).or_insert_with(|| "any".into());
                (Part::Port, name)
            }
            Of::Switch(name) => (Part::Switch, name),
        };
        let Ok(name) = name.parse() else { return };
        if section.put(&Id { part, name }, &mut config).is_ok() {
            self.allow(&config);
            self.lines.insert(line.to_owned());
        }
    }

    /// The grants that came since the last look.
    fn new_grants(&mut self) -> String {
        let Some(file) = &self.grants else { return String::new() };
        let length = file.metadata().map_or(0, |about| about.len()).min(GRANTS_MOST);
        let mut bytes = vec![0; length.saturating_sub(self.read) as usize];
        if bytes.is_empty() || file.read_exact_at(&mut bytes, self.read).is_err() {
            return String::new();
        }
        self.read = length;
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn allow(&mut self, config: &Config) {
        let directory = &self.host.runtime_dir;
        let named = config.ports.values().filter_map(|port| match port.settings.own().end() {
            End::Socket { path, listens: true } => Some(Named::Listener(real(&directory.join(path)))),
            End::Socket { path, listens: false } => Some(Named::Peer(real(&directory.join(path)))),
            _ => device_of(port),
        });
        let named: Vec<_> = named.collect();
        self.named.extend(named);
        for switch in config.switches.values() {
            let keys = switch.forwarding.program().cloned();
            let paths =
                keys.into_iter().flat_map(|mut keys| keys.paths().map(|(_, path)| path.clone()).collect::<Vec<_>>());
            self.named.extend(paths.filter(|path| !path.as_os_str().is_empty()).map(|path| Named::File(real(&path))));
        }
    }
}

fn device_of(port: &Port) -> Option<Named> {
    match port.settings.own().end() {
        End::Device { device, netns } => {
            Some(Named::Device { name: device.to_owned(), netns: netns.map(str::to_owned) })
        }
        _ => None,
    }
}

/// Reads a port's keys, by the same functions that read a file.
pub(super) fn port(name: &str, keys: &serde_json::Map<String, serde_json::Value>) -> Option<Port> {
    let mut config = Config::default();
    let name: Name = name.parse().ok()?;
    let section = Section(keys.clone().into_iter().collect());
    section.put(&Id { part: Part::Port, name: name.clone() }, &mut config).ok()?;
    config.ports.remove(&name)
}

/// Returns the path in the real path of its folder, so that the same file has one name.
fn real(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(path.file_name()).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}
