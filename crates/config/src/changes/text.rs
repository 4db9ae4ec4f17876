//! The state file: what commands changed, as text.
//!
//! The first line has the version, and the length and a checksum of the rest, which is TOML. `of` names the configuration file: `[runtime.port.NAME]` is a section as
//! commands left it, `[file.port.NAME]` the same section as the configuration file had it when commands changed it. A section below
//! `runtime` alone was added, one below `file` alone deleted.
//!
//! The checksum finds accidents. It proves nothing about who wrote the file: that is a matter of the file's owner and mode.

use super::change::{Change, Changes};
use super::section::{Id, Part, Section};
use super::toml::{header, keys};
use crate::keys::key::toml;
use crate::keys::{Entry, Mistake, Node, Value};

/// Largest state file in bytes.
pub const STATE_MAX: usize = 16 << 20;

/// The version that is written and read.
const VERSION: u32 = 1;

/// The beginning of the first line.
const MAGIC: &str = "# ringway state ";

/// The second line.
const ABOUT: &str =
    "# Written by ringway: what commands changed. \"ringway config\" shows it; \"ringway config reset\" drops it.\n";

/// Why a text is no state file that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The text has another first line.
    #[error("it does not begin like a state file of ringway")]
    NotState,
    /// The text is of another version.
    #[error("it is of version {0}, and this ringway reads version {VERSION}")]
    Version(u32),
    /// The text is shorter than its first line says.
    #[error("it was cut: it has {has} bytes of {says}")]
    Cut {
        /// Its length in bytes.
        has: usize,
        /// The length that its first line says.
        says: usize,
    },
    /// The text was changed after ringway had written it.
    #[error("it was altered after ringway had written it")]
    Altered,
    /// The text is longer than any state file.
    #[error("it is larger than {} MiB", STATE_MAX >> 20)]
    TooLarge,
    /// The contents are not what this version writes.
    #[error("its contents are not understood: {0}")]
    Content(String),
}

/// Returns the state file. `of` names the configuration file, on one line.
pub fn write(changes: &Changes, of: &str) -> String {
    let mut body = format!("{ABOUT}\nof = {}\n", toml(&of.into()));
    for (id, change) in &changes.0 {
        for (below, section) in [("file", &change.file), ("runtime", &change.now)] {
            let Some(section) = section else { continue };
            body.push_str(&format!("\n{}\n", header(&[below], id)));
            keys(&mut body, section, |_| String::new());
        }
    }
    first_line(&body) + &body
}

/// Reads a state file. Also returns the name of the configuration file.
///
/// # Errors
/// It is none, or was cut or altered, or is of another version.
pub fn read(text: &str) -> Result<(Changes, String), StateError> {
    if text.len() > STATE_MAX {
        return Err(StateError::TooLarge);
    }
    let (first, body) = text.split_once('\n').unwrap_or((text, ""));
    let mut words = first.strip_prefix(MAGIC).ok_or(StateError::NotState)?.split(' ');
    let version = words.next().and_then(|version| version.parse().ok()).ok_or(StateError::NotState)?;
    if version != VERSION {
        return Err(StateError::Version(version));
    }
    let says = words.next().and_then(|length| length.parse().ok()).ok_or(StateError::Altered)?;
    if body.len() < says {
        return Err(StateError::Cut { has: body.len(), says });
    }
    if text.get(..first.len() + 1) != Some(first_line(body).as_str()) {
        return Err(StateError::Altered);
    }
    let root = Node::from_toml(body).map_err(|mistakes| StateError::Content(joined(&mistakes)))?;
    changes(&root).map_err(StateError::Content)
}

/// Returns the sections that a text names which is no state file any more: what may be lost with it, for messages.
pub fn sections_named(text: &str) -> Vec<String> {
    let mut named: Vec<String> = Vec::new();
    for line in text.lines() {
        let name = line.strip_prefix("[file.").or_else(|| line.strip_prefix("[runtime."));
        if let Some(name) = name.and_then(|name| name.strip_suffix(']'))
            && !named.iter().any(|known| known == name)
        {
            named.push(name.to_owned());
        }
    }
    named
}

fn first_line(body: &str) -> String {
    format!("{MAGIC}{VERSION} {} {:016x}\n", body.len(), checksum(body.as_bytes()))
}

/// FNV-1a with 64 bits: another byte at one place always makes another sum.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn changes(root: &Node) -> Result<(Changes, String), String> {
    let (mut changes, mut of) = (Changes::default(), String::new());
    for below in entries(root, "the file")? {
        if let ("of", Value::Text(text)) = (below.key.as_str(), &below.node.value) {
            of.clone_from(text);
            continue;
        }
        for part in entries(&below.node, &below.key)? {
            let known = Part::ALL.into_iter().find(|known| known.as_str() == part.key);
            let known = known.ok_or_else(|| format!("there is no section \"{}\"", part.key))?;
            for section in entries(&part.node, &part.key)? {
                let id = Id { part: known, name: section.key.parse()? };
                let keys = entries(&section.node, &section.key)?;
                let keys = keys.iter().map(|key| (key.key.clone(), key.node.to_json())).collect();
                let change: &mut Change = changes.0.entry(id).or_default();
                match below.key.as_str() {
                    "file" => change.file = Some(Section(keys)),
                    "runtime" => change.now = Some(Section(keys)),
                    other => return Err(format!("there is no table \"{other}\"")),
                }
            }
        }
    }
    Ok((changes, of))
}

fn entries<'a>(node: &'a Node, what: &str) -> Result<&'a [Entry], String> {
    match &node.value {
        Value::Table(entries) => Ok(entries),
        _ => Err(format!("\"{what}\" is no table")),
    }
}

fn joined(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("; ")
}
