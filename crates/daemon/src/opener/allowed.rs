//! What the switch may have: what the configuration file names, as the opener itself has read it, and what administrators have granted at run time.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ringway_api::paths::KEEPER_SOCKET;
use ringway_config::changes::section::{Id, Part, Section};
use ringway_config::kinds::contract::End;
use ringway_config::{Config, Host, load_with_doubts};
use serde::Deserialize;

use super::real;

/// Most bytes of grants.
const GRANTS_MOST: u64 = 1 << 20;

/// Something that the switch asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thing<'a> {
    /// A socket to listen on.
    Listener(&'a Path),
    /// The socket of a peer.
    Peer(&'a Path),
}

/// The same, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Named {
    Listener(PathBuf),
    Peer(PathBuf),
}

/// A line of grants: a section of the configuration, as an administrator gave it to a command.
#[derive(Debug, Deserialize)]
struct Grant {
    port: String,
    keys: serde_json::Map<String, serde_json::Value>,
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
}

impl Allowed {
    pub(super) fn new(file: Option<PathBuf>, host: Host, grants: Option<File>) -> Self {
        let runtime_dir = host.runtime_dir.canonicalize().unwrap_or_else(|_| host.runtime_dir.clone());
        let host = Host { runtime_dir, ..host };
        let mut allowed = Self { file, host, grants, read: 0, named: HashSet::new() };
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
        };
        let right = "use \"ringway port add\" on this machine, or name it in the configuration file and reload that";
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
            Thing::Peer(path) => self.named.contains(&Named::Peer(real(path))),
        }
    }

    /// Reads the configuration file, and new grants.
    fn look(&mut self) {
        // A file with mistakes allows nothing new: no reload takes it either.
        if let Some(loaded) = self.file.as_deref().and_then(|file| load_with_doubts(file, &self.host).ok()) {
            self.allow(&loaded.config);
        }
        for Grant { port, keys } in self.new_grants() {
            let mut config = Config::default();
            let Ok(name) = port.parse() else { continue };
            let mut section = Section(keys.into_iter().collect());
            // It can be in the port's name.
            section.0.entry("switch".to_owned()).or_insert_with(|| "any".into());
            if section.put(&Id { part: Part::Port, name }, &mut config).is_ok() {
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
        self.named.extend(named.collect::<Vec<_>>());
    }
}
