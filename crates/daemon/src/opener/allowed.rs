//! What the switch may have: what the configuration file names, as the opener itself has read it, and what administrators have granted at run time.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ringway_api::paths::KEEPER_SOCKET;
use ringway_config::changes::section::{Id, Part, Section};
use ringway_config::kinds::contract::End;
use ringway_config::{Config, Host, load_with_doubts};
use serde::Deserialize;

use super::real;
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
}

/// Files that every configuration may name things of.
const TABLES: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// The same, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Named {
    Listener(PathBuf),
    Peer(PathBuf),
    File(PathBuf),
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
}

impl Allowed {
    pub(super) fn new(file: Option<PathBuf>, host: Host, grants: Option<File>) -> Self {
        let runtime_dir = host.runtime_dir.canonicalize().unwrap_or_else(|_| host.runtime_dir.clone());
        let host = Host { runtime_dir, ..host };
        let mut allowed = Self { file, host, grants, read: 0, named: HashSet::new(), state: None };
        allowed.look();
        allowed
    }

    /// Says whether the switch may have this.
    ///
    /// # Errors
    /// It may not: the reason, for users.
    pub(super) fn judge(&mut self, thing: Thing<'_>) -> Result<(), String> {
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
        };
        let right = "use the command \"ringway\" on this machine, or name it in the configuration file and reload that";
        tracing::warn!("the switch may not have {what}: {right}");
        Err(format!("the switch may not open {what}, because no administrator has allowed it: {right}"))
    }

    fn has(&self, thing: Thing<'_>) -> bool {
        match thing {
            Thing::Listener(path) => {
                let path = real(path);
                if path.file_name() == Some(OsStr::new(KEEPER_SOCKET)) {
                    return false;
                }
                path.parent() == Some(&self.host.runtime_dir) || self.named.contains(&Named::Listener(path))
            }
            Thing::File(path) => {
                let own = self.file.as_deref().is_some_and(|own| path == own || real(path) == real(own));
                own || TABLES.iter().any(|table| path == Path::new(table))
                    || self.named.contains(&Named::File(real(path)))
            }
            Thing::Record(path) => {
                let path = real(path);
                let is_record = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".inflight-"));
                is_record && path.parent() == Some(&self.host.runtime_dir)
            }
            Thing::Peer(path) => self.named.contains(&Named::Peer(real(path))),
        }
    }

    /// The state file.
    pub(super) fn state_file(&self) -> StateFile {
        StateFile::locate(self.state.as_deref().unwrap_or(Path::new("")), &self.host.runtime_dir, self.file.as_deref())
    }

    /// Reads the configuration file, and new grants.
    fn look(&mut self) {
        // A file with mistakes allows nothing new: no reload takes it either.
        if let Some(loaded) = self.file.as_deref().and_then(|file| load_with_doubts(file, &self.host).ok()) {
            self.allow(&loaded.config);
            // It is the one of the start, as for the switch.
            self.state.get_or_insert(loaded.config.state.file);
        }
        for Grant { of, keys } in self.new_grants() {
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
            let Ok(name) = name.parse() else { continue };
            if section.put(&Id { part, name }, &mut config).is_ok() {
                self.allow(&config);
            }
        }
    }

    fn new_grants(&mut self) -> Vec<Grant> {
        let Some(file) = &self.grants else { return Vec::new() };
        let length = file.metadata().map_or(0, |about| about.len()).min(GRANTS_MOST);
        let mut bytes = vec![0; length.saturating_sub(self.read) as usize];
        if bytes.is_empty() || file.read_exact_at(&mut bytes, self.read).is_err() {
            return Vec::new();
        }
        self.read = length;
        bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    fn allow(&mut self, config: &Config) {
        let directory = &self.host.runtime_dir;
        let named = config.ports.values().filter_map(|port| match port.settings.own().end() {
            End::Socket { path, listens: true } => Some(Named::Listener(real(&directory.join(path)))),
            End::Socket { path, listens: false } => Some(Named::Peer(real(&directory.join(path)))),
            _ => None,
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
