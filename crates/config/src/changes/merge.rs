//! The file as it is now, with what commands changed.
//!
//! A key that a command changed keeps the command's value as long as the file's value is the one that it was then. If the file was
//! edited since, both contradict each other, and `[state] conflict` decides. A section that commands added or deleted, or whose kind
//! they changed, is one unit in the same way.
//!
//! What cannot be in force (a port whose switch has gone) is set aside, and does not keep the rest from being applied. It is tried
//! again whenever the file is read.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value as Json;

use super::change::{Change, Changes};
use super::section::{Id, Part, Section};
use crate::check::check;
use crate::host::Host;
use crate::keys::Mistake;
use crate::keys::key::toml;
use crate::model::Config;
use crate::port::DynamicPorts;
use crate::state::Conflict;

/// A configuration file with what commands changed.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// The configuration.
    pub config: Config,
    /// What cannot be in force.
    pub set_aside: Vec<SetAside>,
    /// What the file contradicts.
    pub contradictions: Vec<Contradiction>,
}

/// A change that is kept and cannot be in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The section.
    pub id: Id,
    /// The change.
    pub change: Change,
    /// The reason, for users.
    pub why: String,
}

/// A change of a command that the file contradicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The section.
    pub id: Id,
    /// What both did, for users.
    pub what: String,
    /// What holds.
    pub holds: Conflict,
}

impl fmt::Display for SetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, change, why } = self;
        write!(f, "{id}: a command {} it, which is not in force any more: {why}", change.word())
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (holds, word) = match self.holds {
            Conflict::File => ("the file holds", "file"),
            Conflict::Runtime => ("the command holds", "runtime"),
        };
        write!(f, "{}: {}: {holds} ([state] conflict = \"{word}\")", self.id, self.what)
    }
}

/// A section that [`merge`] puts into the file's configuration, or removes from it (`None`).
type Wanted = (Id, Option<Section>);

/// Returns the file with what commands changed. `dynamic`: the ports that clients have made, which it may name.
pub fn merge(file: &Config, changes: &Changes, dynamic: &DynamicPorts, host: &Host) -> Merged {
    let mut contradictions = Vec::new();
    let mut wanted: Vec<Wanted> = Vec::new();
    for (id, change) in &changes.0 {
        let present = Section::of(file, id);
        let section = resolve(id, change, present.as_ref(), file.state.conflict, &mut contradictions);
        if section != present {
            wanted.push((id.clone(), section));
        }
    }
    // Ports go before what they use, and come after it.
    wanted.sort_by_key(|(id, section)| match section {
        None if id.part == Part::Port => 0,
        Some(_) => 1,
        None => 2,
    });
    let mut config = file.clone();
    let mut before = wanted.len();
    let place = (dynamic, host);
    let mut refused = apply(&mut config, wanted, place);
    // What was refused may have needed what came after it.
    while refused.len() < before && !refused.is_empty() {
        before = refused.len();
        refused = apply(&mut config, refused.into_iter().map(|(wanted, _)| wanted).collect(), place);
    }
    let set_aside = refused.into_iter().filter_map(|((id, _), why)| {
        let change = changes.0.get(&id)?.clone();
        Some(SetAside { id, change, why })
    });
    let set_aside = set_aside.collect();
    Merged { config, set_aside, contradictions }
}

/// Applies as many of these as can be in force. Returns the others, each with the reason.
fn apply(config: &mut Config, mut wanted: Vec<Wanted>, place: (&DynamicPorts, &Host)) -> Vec<(Wanted, String)> {
    let mut refused = Vec::new();
    while !wanted.is_empty() {
        let mistakes = match with(config, &wanted, place) {
            Ok(new) => {
                *config = new;
                break;
            }
            Err(mistakes) => mistakes,
        };
        // Those that the mistakes are of, all at once: there may be thousands.
        let mut good = Vec::new();
        let before = refused.len();
        for one in wanted {
            let prefix = format!("{}.{}.", one.0.part.as_str(), one.0.name);
            let mut own = mistakes.iter().filter(|mistake| mistake.key.starts_with(&prefix)).peekable();
            if own.peek().is_some() {
                refused.push((one, joined(own)));
            } else {
                good.push(one);
            }
        }
        wanted = good;
        if refused.len() == before {
            // They are of other sections: each half for itself.
            let second = wanted.split_off(wanted.len() / 2);
            if wanted.is_empty() {
                refused.extend(second.into_iter().map(|wanted| (wanted, joined(mistakes.iter()))));
                break;
            }
            refused.extend(apply(config, wanted, place));
            wanted = second;
        }
    }
    refused
}

fn joined<'a>(mistakes: impl Iterator<Item = &'a Mistake>) -> String {
    mistakes.map(Mistake::to_string).collect::<Vec<_>>().join("; ")
}

/// Returns the configuration with all of these.
///
/// # Errors
/// It would not be valid, for a reason that is not there already.
fn with(config: &Config, wanted: &[Wanted], (dynamic, host): (&DynamicPorts, &Host)) -> Result<Config, Vec<Mistake>> {
    let mut new = config.clone();
    let mut mistakes = Vec::new();
    for (id, section) in wanted {
        match section {
            Some(section) => mistakes.extend(section.put(id, &mut new).err().into_iter().flatten()),
            None => Section::remove(id, &mut new),
        }
    }
    if mistakes.is_empty() {
        let about = match wanted {
            [(id, _)] => format!("{}.{}.", id.part.as_str(), id.name),
            _ => String::new(),
        };
        let mut findings = check(&new, dynamic, host, &about);
        if !findings.is_empty() {
            let before = check(config, dynamic, host, &about);
            findings.retain(|finding| !finding.is_in(&before));
        }
        mistakes.extend(findings.into_iter().map(Mistake::from));
    }
    if mistakes.is_empty() { Ok(new) } else { Err(mistakes) }
}

/// Decides what holds of a section that commands changed. `None`: [`merge`] removes the section.
fn resolve(
    id: &Id,
    change: &Change,
    present: Option<&Section>,
    conflict: Conflict,
    contradictions: &mut Vec<Contradiction>,
) -> Option<Section> {
    let (file, now) = (change.file.as_ref(), change.now.as_ref());
    if file == present || now == present {
        return now.cloned();
    }
    let mut contradict = |what| contradictions.push(Contradiction { id: id.clone(), what, holds: conflict });
    let kind = |section: &Section| section.0.get("kind").cloned();
    if let (Some(file), Some(now), Some(present)) = (file, now, present)
        && kind(file) == kind(now)
    {
        let keys: BTreeSet<&String> = [file, now, present].iter().flat_map(|section| section.0.keys()).collect();
        let mut merged = Section::default();
        for key in keys {
            let [file, now, present] = [file, now, present].map(|section| section.0.get(key));
            let value = if now == file || now == present {
                present
            } else if file == present {
                now
            } else {
                let [set, says] = [now, present].map(shown);
                contradict(format!("{key}: a command made it {set}, and the file was changed to {says} since"));
                if conflict == Conflict::File { present } else { now }
            };
            merged.0.extend(value.map(|value| (key.clone(), value.clone())));
        }
        return Some(merged);
    }
    let command = match (file, now) {
        (_, None) => "a command deleted it",
        (None, _) => "a command added it",
        _ => "a command changed it",
    };
    let edited = match (file, present) {
        (_, None) => "the file has lost it since",
        (None, _) => "the file has got another one since",
        _ => "the file has changed it since",
    };
    contradict(format!("{command}, and {edited}"));
    if conflict == Conflict::File { present.cloned() } else { now.cloned() }
}

fn shown(value: Option<&Json>) -> String {
    value.map_or_else(|| "the default".to_owned(), toml)
}
