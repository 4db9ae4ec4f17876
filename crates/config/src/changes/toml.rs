//! The configuration as TOML, with marks where commands changed it.

use serde_json::Value as Json;

use super::change::{Change, Changes};
use super::merge::SetAside;
use super::section::{Id, Part, Section};
use crate::attach::Attach;
use crate::engine::Engine;
use crate::keys::Name;
use crate::keys::key::toml;
use crate::kinds::access::Sockets;
use crate::kinds::memory::Memory;
use crate::model::Config;
use crate::privileged::Privileged;
use crate::state::State;

/// Returns a whole configuration.
pub fn running(config: &Config, changes: &Changes, set_aside: &[SetAside]) -> String {
    let mut text = String::from("# The running configuration.\n");
    let tables = [
        ("engine", Section::of_table(&config.engine, &Engine::default())),
        ("attach", Section::of_table(&config.attach, &Attach::default())),
        ("memory", Section::of_table(&config.memory, &Memory::TOTAL)),
        ("sockets", Section::of_table(&config.sockets, &Sockets::default())),
        ("state", Section::of_table(&config.state, &State::default())),
        ("privileged", Section::of_table(&config.privileged, &Privileged::default())),
    ];
    for (name, section) in tables.iter().filter(|(_, section)| !section.0.is_empty()) {
        text.push_str(&format!("\n[{name}]\n"));
        keys(&mut text, section, |_| String::new());
    }
    for part in Part::ALL {
        let names: Vec<&Name> = match part {
            Part::Switch => config.switches.keys().collect(),
            Part::Bucket => config.buckets.keys().collect(),
            Part::Port => config.ports.keys().collect(),
        };
        for name in names {
            let id = Id { part, name: name.clone() };
            if let Some(section) = Section::of(config, &id) {
                marked(&mut text, &id, &section, changes.0.get(&id));
            }
        }
        rest(&mut text, part, changes, set_aside);
    }
    text
}

/// Returns the sections that commands changed, each whole.
pub fn changed(changes: &Changes, set_aside: &[SetAside]) -> String {
    let mut text = String::new();
    if changes.is_empty() && set_aside.is_empty() {
        text.push_str("# No command has changed what the file says.\n");
        return text;
    }
    text.push_str("# What commands changed. A section replaces that of the file.\n");
    for part in Part::ALL {
        for (id, change) in changes.0.iter().filter(|(id, _)| id.part == part) {
            if let Some(now) = &change.now {
                marked(&mut text, id, now, Some(change));
            }
        }
        rest(&mut text, part, changes, set_aside);
    }
    text
}

/// Writes what is not there: sections that commands deleted, and what cannot be in force.
fn rest(text: &mut String, part: Part, changes: &Changes, set_aside: &[SetAside]) {
    for (id, _) in changes.0.iter().filter(|(id, change)| id.part == part && change.now.is_none()) {
        text.push_str(&format!("\n# {} of the file was deleted by a command\n", header(&[], id)));
    }
    for SetAside { id, change, why } in set_aside.iter().filter(|aside| aside.id.part == part) {
        let why = why.replace('\n', " ");
        text.push_str(&format!("\n# not in force: a command {} {}: {why}\n", change.word(), header(&[], id)));
        if let Some(now) = &change.now {
            let mut lines = String::new();
            keys(&mut lines, now, |_| String::new());
            lines.lines().for_each(|line| text.push_str(&format!("# {line}\n")));
        }
    }
}

/// Writes a section with its marks.
fn marked(text: &mut String, id: &Id, section: &Section, change: Option<&Change>) {
    let mark = match change.map(Change::word) {
        None => "",
        Some("added") => " # added by a command",
        Some(_) => " # changed by a command",
    };
    text.push_str(&format!("\n{}{mark}\n", header(&[], id)));
    let changed = change.map(Change::keys).unwrap_or_default();
    keys(text, section, |key| match changed.iter().find(|(changed, ..)| *changed == key) {
        Some((_, Some(file), _)) => format!(" # in the file: {}", toml(file)),
        Some(_) => " # not in the file".to_owned(),
        None => String::new(),
    });
    for (key, file) in
        changed.iter().filter(|(.., now)| now.is_none()).filter_map(|(key, file, _)| Some((key, (*file)?)))
    {
        text.push_str(&format!("# the default; in the file: {key} = {}\n", toml(file)));
    }
}

/// Writes the keys of a section. `mark` returns what stands behind one.
pub(super) fn keys(text: &mut String, section: &Section, mark: impl Fn(&str) -> String) {
    let first = ["switch", "kind"].iter().filter_map(|key| section.0.get_key_value(*key));
    let others = section.0.iter().filter(|(key, _)| !matches!(key.as_str(), "switch" | "kind"));
    for (key, value) in first.chain(others) {
        text.push_str(&line(key, value, &mark(key)));
    }
}

fn line(key: &str, value: &Json, mark: &str) -> String {
    format!("{key} = {}{mark}\n", toml(value))
}

/// Returns the first line of a section, below these tables.
pub(super) fn header(below: &[&str], id: &Id) -> String {
    let name = id.name.as_str();
    let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let name = if is_bare { name.to_owned() } else { format!("\"{name}\"") };
    let path: Vec<&str> = below.iter().copied().chain([id.part.as_str(), &name]).collect();
    format!("[{}]", path.join("."))
}
