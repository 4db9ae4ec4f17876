//! The names that status and metrics report. Drop reasons come from the code's list. Faults come from the source files,
//! because the code has no list of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ringway_switch::DropReason;

/// Types whose `name()` returns a fault's name.
const FAULTS: [&str; 4] = ["Fault", "SessionEnd", "SocketError", "Refusal"];
/// What comes before a fault's name elsewhere, white space apart.
const BEFORE: [&str; 7] = [
    "End::Fault(",
    "observer.fault(",
    "observer.refused(",
    "SLOW_CLIENT: &str =",
    "CALL_BLOCKED: &str =",
    "DISPLACED: &str =",
    "SWITCH_DIED: &str =",
];

/// Returns the names of all drop reasons.
pub fn drop_reasons() -> BTreeSet<String> {
    DropReason::ALL.iter().map(|reason| reason.name().to_owned()).collect()
}

/// Returns the names of all faults.
pub fn faults() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for crate_ in [
        "switch",
        "port",
        "port-process",
        "port-vhost-user",
        "port-e1000",
        "port-device",
        "port-stream",
        "config",
        "daemon",
    ] {
        look_below(&super::root().join("crates").join(crate_).join("src"), &mut names);
    }
    names
}

fn look_below(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if name.contains("test") {
            continue;
        }
        if path.is_dir() {
            look_below(&path, names);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            look_at(text.split("#[cfg(test)]").next().unwrap(), names);
        }
    }
}

fn look_at(text: &str, names: &mut BTreeSet<String>) {
    for before in BEFORE {
        let literals = text.split(before).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
        names.extend(literals.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
    }
    for implementation in text.split("\nimpl").skip(1) {
        let of = implementation.lines().next().unwrap();
        let of = of.trim_end_matches(" {").rsplit(' ').next().unwrap().split('<').next().unwrap();
        if !FAULTS.iter().any(|end| of.ends_with(end)) {
            continue;
        }
        // Up to the end of the function.
        for function in implementation.split("fn name(").skip(1) {
            let body = function.split("\n    }").next().unwrap();
            names.extend(body.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
}

#[test]
fn faults_are_found_in_the_sources() {
    let found = faults();
    for name in [
        "internal_error",
        "memory_limit",
        "slow_client",
        "bad_length",
        "ring_bad_base",
        "memory_not_shared",
        "bad_message",
    ] {
        assert!(found.contains(name), "{name} is not in {found:?}");
    }
    assert!(found.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')), "{found:?}");
}
