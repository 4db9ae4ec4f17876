//! The form of documents for maintainers: existing paths, records of decisions, the changelog.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::markdown::{self, Page};
use super::{Mistakes, names, root};

/// Longest lengths, in lines.
const LIMITS: [(&str, usize); 2] = [("README.md", 150), ("ARCHITECTURE.md", 250)];

/// Documents whose code spans name only existing paths: whole paths of the repository, or the ends of paths.
const MAPS: [&str; 4] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "README.md"];

#[test]
fn the_readme_and_the_map_are_short() {
    for (path, limit) in LIMITS {
        let lines = fs::read_to_string(root().join(path)).unwrap().lines().count();
        assert!(lines <= limit, "{path} has {lines} lines of {limit}");
    }
}

/// The test checks the paths in code spans. Links of these pages are checked together with those of the guide.
#[test]
fn every_path_in_the_map_exists() {
    let there = paths();
    let mut mistakes = Mistakes::default();
    let decisions = markdown::pages(&root()).into_iter().filter(|page| page.starts_with("docs/decisions/"));
    for page in MAPS.into_iter().map(str::to_owned).chain(decisions) {
        for (line, code) in Page::read(&root(), &page).spans {
            for path in code.split(' ').filter(|word| is_path(word)) {
                if !exists(path, &there) {
                    mistakes.add(&format!("{page}:{line}"), format!("{path} is not there"));
                }
            }
        }
    }
    mistakes.report();
}

/// The test checks the types and functions in code spans, like `DropReason` and `may_hear`.
#[test]
fn every_name_in_the_map_is_in_the_sources() {
    let is_name = |word: &str| {
        let is_type =
            word.starts_with(|c: char| c.is_ascii_uppercase()) && word.contains(|c: char| c.is_ascii_lowercase());
        let is_function = word.contains('_') && !word.contains(|c: char| c.is_ascii_uppercase());
        word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && (is_type || is_function)
    };
    let sources = sources();
    let mut mistakes = Mistakes::default();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        for (line, code) in Page::read(&root(), page).spans {
            for name in code.split("::").filter(|name| is_name(name) && !sources.contains(*name)) {
                mistakes.add(&format!("{page}:{line}"), format!("{name} is in no source file"));
            }
        }
    }
    mistakes.report();
}

/// A maintainer finds the code that drops a frame by the drop reason.
#[test]
fn every_drop_reason_has_a_place_in_the_map() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let judged = map.split_once("## Where a frame is judged").expect("the section").1.split("\n## ").next().unwrap();
    let missing: Vec<String> =
        names::drop_reasons().into_iter().filter(|reason| !judged.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md has no row for {missing:?}");
}

#[test]
fn a_path_that_is_gone_is_found() {
    let there = paths();
    for (path, is_there) in [
        ("crates/switch/src/pass/mod.rs", true),
        ("pass/mod.rs", true),
        ("switch/src/policy/", true),
        ("docs/man", true),
        ("ass/mod.rs", false),
        ("switch/src/police/", false),
        ("pass/past.rs", false),
    ] {
        assert!(is_path(path) && exists(path, &there) == is_there, "{path}");
    }
    for no_path in ["/run/ringway", "KIND/mod.rs", "vm1.sock", "a*/b.rs", "target/release/ringway"] {
        assert!(!is_path(no_path), "{no_path}");
    }
}

#[test]
fn every_decision_has_a_question_a_measurement_and_a_verdict() {
    let dir = root().join("docs/decisions");
    let index = fs::read_to_string(dir.join("README.md")).unwrap();
    let mut mistakes = Mistakes::default();
    for entry in fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "README.md" {
            continue;
        }
        let text = fs::read_to_string(dir.join(&name)).unwrap();
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        if !text.starts_with("# ") || headings != ["## Question", "## Measured", "## Verdict"] {
            mistakes.add(&name, format!("a title, Question, Measured and Verdict are needed: {headings:?}"));
        }
        if !index.contains(&format!("({name})")) {
            mistakes.add(&name, "README.md does not list it");
        }
    }
    mistakes.report();
}

/// Sections are Added, Changed, Fixed (Removed, Deprecated, Security). Each has one fact per line.
#[test]
fn the_changelog_has_one_line_a_fact() {
    const KINDS: [&str; 6] = ["Added", "Changed", "Fixed", "Removed", "Deprecated", "Security"];
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let mut mistakes = Mistakes::default();
    let start = text.lines().position(|line| line.starts_with("## ")).expect("a version");
    for (number, line) in text.lines().enumerate().skip(start) {
        let is_kind = line.strip_prefix("### ").is_none_or(|kind| KINDS.contains(&kind));
        let is_form = line.is_empty() || line.starts_with("- ") || line.starts_with('#');
        if !is_kind || !is_form {
            mistakes.add(&format!("CHANGELOG.md:{}", number + 1), line);
        }
    }
    let facts: Vec<&str> = text.lines().filter(|line| line.starts_with("- ")).collect();
    let unique: BTreeSet<&str> = facts.iter().copied().collect();
    assert_eq!(facts.len(), unique.len(), "a fact is listed twice");
    mistakes.report();
}

/// Returns true if a word names a file or folder of the repository: it has a slash, begins with a letter and has no
/// capital, pattern or placeholder. Products of a build or a run are no files of the repository.
fn is_path(word: &str) -> bool {
    let is_named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/_-.".contains(c);
    word.contains('/')
        && word.starts_with(|c: char| c.is_ascii_lowercase() || c == '.')
        && word.chars().all(is_named)
        && !["target/", "results/", "fuzz/artifacts/"].iter().any(|made| word.starts_with(made))
        && word != "ringway/"
}

fn exists(path: &str, there: &BTreeSet<String>) -> bool {
    let path = path.trim_end_matches('/');
    there.contains(path) || there.iter().any(|whole| whole.ends_with(&format!("/{path}")))
}

/// Returns every word of the crates' and experiments' sources, except those of this test.
fn sources() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for path in paths() {
        let is_source = path.ends_with(".rs") && !path.contains("tests/documents/");
        if is_source {
            let text = fs::read_to_string(root().join(path)).unwrap();
            words.extend(text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned));
        }
    }
    words
}

/// Returns every file and folder of the repository, without build products.
pub fn paths() -> BTreeSet<String> {
    fn below(dir: &Path, root: &Path, paths: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if name == ".git" || name.starts_with("target") || name.ends_with("/target") {
                continue;
            }
            if path.is_dir() {
                below(&path, root, paths);
            }
            paths.insert(name);
        }
    }
    let mut paths = BTreeSet::new();
    below(&root(), &root(), &mut paths);
    paths
}
