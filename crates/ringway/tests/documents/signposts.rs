//! What the map says of single files and crates is so: names beside a path are in it, crates stand in the order of their imports, and `unsafe`
//! is where the table says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::structure::paths;
use super::{Mistakes, root};

/// A row of the table of crates in ARCHITECTURE.md.
struct Row {
    /// The crates that it names.
    crates: Vec<String>,
    forbids_unsafe: bool,
}

/// The rows of the table of crates, in their order.
fn table() -> Vec<Row> {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, after) = map.split_once("| crate | holds | `unsafe` |\n|---|---|---|\n").expect("the table of crates");
    let rows = after.lines().take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let crates = cells[0].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Row { crates, forbids_unsafe: *cells.last().unwrap() == "forbidden" }
    })
    .collect()
}

/// The folders of the workspace's crates.
fn members() -> Vec<String> {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = workspace.split_once("members = [").unwrap().1.split(']').next().unwrap();
    members.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The name by which the table has a crate: its folder, without what is before it for crates of a kind.
fn name_of(member: &str) -> &str {
    let groups = ["crates/", "bench/", "lwep/"];
    groups.iter().find_map(|group| member.strip_prefix(group)).unwrap_or(member)
}

/// The folder of a crate that the table names.
fn folder(name: &str) -> String {
    let found = members().into_iter().find(|member| name_of(member) == name);
    found.unwrap_or_else(|| panic!("the table of crates has {name}, and the workspace has not"))
}

#[test]
fn every_name_beside_a_path_is_in_that_file() {
    let (there, map) = (paths(), fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap());
    let mut mistakes = Mistakes::default();
    let mut found = 0;
    for (number, line) in map.lines().enumerate() {
        for (name, path) in beside(line) {
            found += 1;
            if !files(&path, &there).iter().any(|file| has_word(file, &name)) {
                mistakes.add(&format!("ARCHITECTURE.md:{}", number + 1), format!("{name} is not in {path}"));
            }
        }
    }
    assert!(found >= 10, "names beside a path: {found}");
    mistakes.report();
}

#[test]
fn a_name_beside_a_path_is_found_in_both_forms() {
    let line = "see `Input::collect` in `port/input.rs`; `policy/vlan/` (`classify`) and `frame/headers.rs`";
    let found =
        [("collect".to_owned(), "port/input.rs".to_owned()), ("classify".to_owned(), "policy/vlan/".to_owned())];
    assert_eq!(beside(line), found);
    let there = paths();
    assert!(!files("forward/mod.rs", &there).is_empty());
    assert!(files("forward/mod.rs", &there).iter().all(|file| !has_word(file, "DropReasons")));
}

/// Returns the names that a line says to be in a path: `NAME` in `PATH`, or `PATH` (`NAME`).
fn beside(line: &str) -> Vec<(String, String)> {
    let parts: Vec<&str> = line.split('`').collect();
    // Text and code by turns: code at odd places.
    let triples = (1..parts.len().saturating_sub(2)).step_by(2);
    triples
        .filter_map(|at| match (parts[at], parts[at + 1], parts[at + 2]) {
            (name, " in ", path) if is_name(name) && is_path(path) => Some((last(name), path.to_owned())),
            (path, " (", name) if is_name(name) && is_path(path) => Some((last(name), path.to_owned())),
            _ => None,
        })
        .collect()
}

fn is_name(code: &str) -> bool {
    !code.is_empty() && code.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

fn is_path(code: &str) -> bool {
    code.ends_with('/') || code.ends_with(".rs")
}

/// The last part of `Input::collect`.
fn last(name: &str) -> String {
    name.rsplit("::").next().unwrap_or(name).to_owned()
}

/// The source files of a path, which may be the end of a path, or a folder.
fn files(path: &str, there: &BTreeSet<String>) -> Vec<String> {
    let end = format!("/{}", path.trim_end_matches('/'));
    let is_in = |whole: &&String| {
        let whole = format!("/{whole}");
        whole.ends_with(&end) || path.ends_with('/') && whole.contains(&format!("{end}/"))
    };
    there.iter().filter(|whole| whole.ends_with(".rs")).filter(is_in).cloned().collect()
}

fn has_word(file: &str, word: &str) -> bool {
    let text = fs::read_to_string(root().join(file)).unwrap();
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|found| found == word)
}

#[test]
fn crates_use_crates_above_them_in_the_table_alone() {
    let rows = table();
    let order: Vec<&str> = rows.iter().flat_map(|row| &row.crates).map(String::as_str).collect();
    let mut mistakes = Mistakes::default();
    for member in members() {
        let name = name_of(&member);
        if !order.contains(&name) {
            mistakes.add("ARCHITECTURE.md", format!("the table of crates has no row for {name}"));
        }
    }
    for (place, name) in order.iter().enumerate() {
        for used in uses(&root().join(folder(name)).join("Cargo.toml")) {
            if !order[..place].contains(&used.as_str()) {
                mistakes.add("ARCHITECTURE.md", format!("{name} uses {used}, which does not stand above it"));
            }
        }
    }
    mistakes.report();
}

/// The crates of the workspace that a manifest names among its dependencies, not those of tests alone.
fn uses(manifest: &Path) -> Vec<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let dependencies = text.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or_default();
    // Helpers of tests, behind a feature that only tests have.
    let is_for_tests = |line: &&str| line.starts_with("ringway-testing = ") && line.contains("optional = true");
    let names =
        dependencies.lines().filter(|line| !is_for_tests(line)).filter_map(|line| line.strip_prefix("ringway-"));
    names.map(|line| line.split(['.', ' ', '=']).next().unwrap().to_owned()).collect()
}

#[test]
fn unsafe_is_where_the_table_of_crates_says() {
    let there = paths();
    let mut mistakes = Mistakes::default();
    for row in table() {
        for name in row.crates {
            let sources = format!("{}/src/", folder(&name));
            let files: Vec<&String> =
                there.iter().filter(|path| path.starts_with(&sources) && path.ends_with(".rs")).collect();
            let text = |path: &String| fs::read_to_string(root().join(path)).unwrap();
            let forbids = text(&format!("{sources}lib.rs")).contains("#![forbid(unsafe_code)]");
            let has = files.iter().any(|path| {
                let is_unsafe = |line: &str| {
                    ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"].iter().any(|form| line.contains(form))
                };
                text(path).lines().any(|line| !line.trim_start().starts_with("//") && is_unsafe(line))
            });
            match (row.forbids_unsafe, forbids, has) {
                (true, true, _) | (false, false, true) => {}
                (true, false, _) => {
                    mistakes.add(&sources, "the table says that it forbids unsafe, and lib.rs does not")
                }
                (false, true, _) => mistakes.add(&sources, "lib.rs forbids unsafe, and the table does not say so"),
                (false, false, false) => mistakes.add(&sources, "the table says what unsafe is for, and there is none"),
            }
        }
    }
    mistakes.report();
}
