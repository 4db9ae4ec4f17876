//! From a file or text to a checked [`Config`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ringway_keeper::opener::open_to_read;

use super::absent::absent;
use super::attach::Attach;
use super::check::{Finding, check};
use super::doubts::doubts;
use super::engine::Engine;
use super::host::Host;
use super::limit::Bucket;
use super::model::Config;
use super::port::{self, DynamicPorts, Port};
use super::privileged::Privileged;
use super::state::State;
use super::switch::{Forwarding, Switch};
use crate::keys::mistake::line_column;
use crate::keys::{Keys, Mistake, Name, Node, Rejected, Value};
use crate::kinds::access::Sockets;
use crate::kinds::memory::Memory;

/// Largest configuration file in bytes.
const FILE_MAX: u64 = 4 << 20;

/// Why a configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// cannot read {path}: {why}
    #[error("cannot read {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: io::Error,
    },
    /// The file's mistakes, one per line.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

/// A configuration that was read, and what is doubtful in it.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// The doubts as lines `file:line:column: warning: ...`, in the order of the file.
    pub doubts: Vec<String>,
    /// What is not there on this machine, in the same form.
    pub absent: Vec<String>,
    /// The text that was read.
    pub text: String,
}

/// The lines of a configuration file's sections.
#[derive(Clone, Debug, Default)]
pub struct Places(BTreeMap<(String, String), String>);

impl Places {
    /// Reads them. A file that cannot be read any more has none.
    pub fn read(path: &Path) -> Self {
        let mut places = BTreeMap::new();
        let text = contents(path).unwrap_or_default();
        let root = Node::from_toml(&text).unwrap_or_else(|_| Node::new(Value::Table(Vec::new())));
        let Value::Table(sections) = &root.value else { return Self(places) };
        for section in sections {
            let Value::Table(entries) = &section.node.value else { continue };
            for entry in entries {
                let Some(span) = &entry.span else { continue };
                let place = format!("{}:{}", path.display(), line_column(&text, span.start).0);
                places.insert((section.key.clone(), entry.key.clone()), place);
            }
        }
        Self(places)
    }

    /// Returns ` (FILE:LINE)` of a section, as `port` and a name, or nothing if the file has none.
    pub fn of(&self, section: &str, name: &Name) -> String {
        let place = self.0.get(&(section.to_owned(), name.to_string()));
        place.map_or_else(String::new, |place| format!(" ({place})"))
    }
}

/// Reads a configuration file.
///
/// # Errors
/// It cannot be read, or holds mistakes: all of them.
pub fn load(path: &Path, host: &Host) -> Result<Config, LoadError> {
    load_with_doubts(path, host).map(|loaded| loaded.config)
}

/// Reads a configuration file, and says what is doubtful in it.
///
/// # Errors
/// It cannot be read, or holds mistakes: all of them.
pub fn load_with_doubts(path: &Path, host: &Host) -> Result<Loaded, LoadError> {
    load_text(path, contents(path)?, host)
}

/// Returns the text of a configuration file.
///
/// # Errors
/// It cannot be read.
fn contents(path: &Path) -> Result<String, LoadError> {
    let unreadable = |why| LoadError::Unreadable { path: path.to_owned(), why };
    let mut bytes = Vec::new();
    open_to_read(path).and_then(|f| f.take(FILE_MAX + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(unreadable(io::Error::other(format!("it is larger than {} MiB", FILE_MAX >> 20))));
    }
    String::from_utf8(bytes)
        .map_err(|e| unreadable(io::Error::other(format!("byte {} is not UTF-8", e.utf8_error().valid_up_to()))))
}

/// Reads a configuration file that had this text, and says what is doubtful in it.
///
/// # Errors
/// It holds mistakes: all of them.
pub fn load_text(path: &Path, text: String, host: &Host) -> Result<Loaded, LoadError> {
    let unreadable = |why| LoadError::Unreadable { path: path.to_owned(), why };
    let source = path.display().to_string();
    let (root, mut config) = parse_tree(&source, &text, host)?;
    let doubts = doubts(&config, &DynamicPorts::new()).into_iter().map(|doubt| place(doubt, &root)).collect();
    let doubts = Rejected::new(&source, &text, doubts).lines("warning: ").collect();
    let folder = std::path::absolute(path).map_err(unreadable)?;
    let folder = folder.parent().unwrap_or(Path::new("/"));
    for switch in config.switches.values_mut() {
        if let Forwarding::Program(keys) = &mut switch.forwarding {
            for (_, path) in keys.paths().filter(|(_, path)| !path.as_os_str().is_empty()) {
                *path = folder.join(&*path);
            }
        }
    }
    let absent = absent(&config, &host.runtime_dir).into_iter().map(|finding| place(finding, &root)).collect();
    let absent = Rejected::new(&source, &text, absent).lines("warning: ").collect();
    Ok(Loaded { config, doubts, absent, text })
}

/// Reads configuration text that is called `source` in messages.
///
/// # Errors
/// Every mistake in it.
pub fn parse(source: &str, text: &str, host: &Host) -> Result<Config, Rejected> {
    parse_tree(source, text, host).map(|(_, config)| config)
}

fn parse_tree(source: &str, text: &str, host: &Host) -> Result<(Node, Config), Rejected> {
    let rejected = |mistakes| Rejected::new(source, text, mistakes);
    let root = Node::from_toml(text).map_err(rejected)?;
    let mistakes = RefCell::default();
    let config = read(&root, host, &mistakes);
    let mut mistakes = mistakes.into_inner();
    // The parts are compared only if all are valid: a port with a mistake is missing in `config`, and other parts may name it.
    if mistakes.is_empty() {
        mistakes
            .extend(check(&config, &DynamicPorts::new(), host, "").into_iter().map(|finding| place(finding, &root)));
    }
    if mistakes.is_empty() { Ok((root, config)) } else { Err(rejected(mistakes)) }
}

fn read(root: &Node, host: &Host, mistakes: &RefCell<Vec<Mistake>>) -> Config {
    let keys = Keys::new("", root, None, mistakes);
    let empty = Node::new(Value::Table(Vec::new()));
    let section = |key| {
        let entry = keys.entry(key);
        Keys::new(key, entry.map_or(&empty, |e| &e.node), entry.and_then(|e| e.span.clone()), mistakes)
    };
    let engine = Engine::read_section(section("engine"), host);
    let attach = Attach::read_section(section("attach"));
    let memory = Memory::read_section(section("memory"));
    let sockets = Sockets::read_section(section("sockets"));
    let state = State::read_section(section("state"));
    let privileged = Privileged::read_section(section("privileged"));
    let switches =
        read_named(&section("switch"), mistakes, |_, keys| Some(Switch::read_section(keys, &Switch::default())));
    let buckets = read_named(&section("bucket"), mistakes, |_, keys| Bucket::read(keys));
    let ports = read_named(&section("port"), mistakes, |name, keys| {
        let port = Port::read_section(name, &keys, &DynamicPorts::new());
        port::finish(keys);
        port
    });
    keys.finish();
    Config { engine, attach, memory, sockets, state, privileged, buckets, switches, ports }
}

fn read_named<T>(
    section: &Keys<'_>,
    mistakes: &RefCell<Vec<Mistake>>,
    read: impl Fn(&Name, Keys<'_>) -> Option<T>,
) -> BTreeMap<Name, T> {
    let one = |entry: &crate::keys::node::Entry| {
        let keys = Keys::new(&section.path_of(&entry.key), &entry.node, entry.span.clone(), mistakes);
        match entry.key.parse() {
            Ok(name) => read(&name, keys).map(|value| (name, value)),
            Err(what) => {
                section.wrong(&entry.key, entry.span.clone(), what, "");
                None
            }
        }
    };
    section.entries().iter().filter_map(one).collect()
}

/// Adds the place to a finding: the place of the value that its path leads to, or of the nearest key above it.
fn place(finding: Finding, root: &Node) -> Mistake {
    let mut node = root;
    let mut span: Option<Range<usize>> = None;
    for key in &finding.path {
        let Value::Table(entries) = &node.value else { break };
        let Some(entry) = entries.iter().find(|e| e.key == *key) else { break };
        span = if matches!(entry.node.value, Value::Table(_)) { entry.span.clone() } else { entry.node.span.clone() };
        node = &entry.node;
    }
    Mistake { span, ..finding.into() }
}
