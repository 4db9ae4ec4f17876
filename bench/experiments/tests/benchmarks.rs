//! The committed document of benchmarks and its plots are what `ringway bench --report` makes of the committed results.
//!
//! `UPDATE=1 cargo test --profile tests -p ringway-experiments --test benchmarks` writes them anew from these results.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ringway_experiments::report::Report;
use ringway_experiments::{find, markdown, plot, report_file};

const REMEDY: &str = "write it anew with UPDATE=1, or of another run with `make benchmarks`";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn is_update() -> bool {
    std::env::var_os("UPDATE").is_some()
}

/// The results of `docs/benchmarks/run.json`.
fn runs() -> Vec<Report> {
    let runs = report_file::read(&docs().join("benchmarks/run.json")).expect("the results of a run");
    runs.into_iter().map(report_file::summary).collect()
}

#[test]
fn the_document_is_what_the_command_makes_of_the_stored_results() {
    let made = markdown::document(&runs(), Some(Path::new("benchmarks")));
    if is_update() {
        return fs::write(docs().join("benchmarks.md"), made).expect("a document");
    }
    let committed = fs::read_to_string(docs().join("benchmarks.md")).expect("a document");
    let differs = committed.lines().zip(made.lines()).find(|(committed, made)| committed != made);
    assert!(committed == made, "docs/benchmarks.md differs, {REMEDY}; the first lines that differ: {differs:#?}");
}

#[test]
fn the_plots_are_those_of_the_stored_results_and_no_others() {
    let folder = ringway_testing::file::directory();
    let mut names = BTreeSet::new();
    for figure in runs().iter().flat_map(|run| &run.figures) {
        plot::write(figure, folder.path()).expect("a plot");
        names.insert(format!("{}.svg", figure.heading.name));
    }
    for name in &names {
        if is_update() {
            fs::copy(folder.path().join(name), docs().join("benchmarks").join(name)).expect("a plot");
        }
        let made = fs::read(folder.path().join(name)).expect("a plot");
        let committed = fs::read(docs().join("benchmarks").join(name)).unwrap_or_default();
        assert!(committed == made, "docs/benchmarks/{name} differs or is missing, {REMEDY}");
    }
    let stored = fs::read_dir(docs().join("benchmarks")).expect("a folder");
    let stored = stored.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let others: Vec<String> = stored.filter(|name| name.ends_with(".svg") && !names.contains(name)).collect();
    assert!(others.is_empty(), "plots of no stored result, {REMEDY}: {others:?}");
}

#[test]
fn the_stored_results_are_a_summary_of_a_whole_run() {
    for run in runs() {
        assert!(!run.quick, "a quick run shows nothing about speed");
        assert!(run.machine.commit.is_some(), "the build of a run is known");
        for figure in &run.figures {
            let name = figure.command.split(' ').nth(2).unwrap_or_default();
            assert!(find(name).is_some(), "{name} is no experiment of today");
        }
    }
}
