//! Checks the documents for users: every command parses, loads or runs, and `docs/man` agrees with the command line.
//!
//! The tests check the fenced code blocks of `README.md` and of all pages below `docs`:
//!
//! - `sh`: every `ringway` command line parses with the command's own definition, and so does every `ringway ...` in running
//!   text. The blocks of `README.md` and `docs/guide` also run, page by page and in order. Each page has its own
//!   network, mount and process namespace (see [`scene`]).
//! - `toml`: `ringway run --check` accepts it. A block without a `[switch.NAME]` is completed by `[switch.lan0]`.
//! - `json`, `xml`: is well-formed.
//! - `rust`: is a part of `program.rs`, which runs the code, or of an example of `kits/rust`, which `tests/programs` runs.
//! - `c`: is a program, which `crates/c/tests/library` compiles and runs, or a part of an example of `kits/c`.
//! - `python`: `python/tests/test_documents.py` runs the code.
//!
//! `manual.md` in this folder has the examples of the manual pages, and runs them as a page of the guide.
//!
//! An HTML comment before a block says how the block runs:
//!
//! - `<!-- not run: REASON -->`: the block is only parsed. These exemptions are counted and printed.
//! - `<!-- test: terminal -->`: the block runs in a terminal in which a user types `q` ten times a second.
//! - `<!-- test: background -->`: the block is started, and ends with the page.
//! - `<!-- test: background until CONDITION -->`: also waits until the shell command CONDITION succeeds.
//! - `<!-- test: file NAME -->`: the block does not run. It is written to this file, for the following blocks.
//! - `<!-- test: setup COMMANDS -->`: a hidden shell command that runs at this place.

mod man;
mod markdown;
mod names;
mod program;
mod scene;
mod shell;
mod signposts;
mod structure;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use markdown::{Block, Page, Task};
use ringway::command::Command;
use ringway_scenes::ringway;

/// The root of the repository.
fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Collects mistakes, so that one run of a test reports all of them.
#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    fn add(&mut self, place: &str, what: impl std::fmt::Display) {
        self.0.push(format!("{place}: {what}"));
    }

    fn report(self) {
        assert!(self.0.is_empty(), "\n{}\n", self.0.join("\n"));
    }
}

/// Defines a test for each page that runs, and the list of these pages.
macro_rules! pages {
    ($($name:ident => $path:literal,)*) => {
        const RUN: &[&str] = &[$($path),*];
        $(#[test]
        fn $name() {
            scene::run(&Page::read(&root(), $path));
        })*
    };
}

pages! {
    readme_is_run => "README.md",
    index_is_run => "docs/guide/README.md",
    getting_started_is_run => "docs/guide/getting-started.md",
    qemu_is_run => "docs/guide/qemu.md",
    libvirt_is_run => "docs/guide/libvirt.md",
    cloud_hypervisor_is_run => "docs/guide/cloud-hypervisor.md",
    e1000_is_run => "docs/guide/e1000.md",
    e1000_driver_is_run => "docs/guide/e1000-driver.md",
    streams_is_run => "docs/guide/streams.md",
    namespaces_is_run => "docs/guide/namespaces.md",
    lwep_is_run => "docs/guide/lwep.md",
    netmap_is_run => "docs/guide/netmap.md",
    operation_is_run => "docs/guide/operation.md",
    performance_is_run => "docs/guide/performance.md",
    own_nic_is_run => "docs/guide/own-nic.md",
    programs_is_run => "docs/guide/programs.md",
    forwarding_programs_is_run => "docs/guide/forwarding-programs.md",
    python_is_run => "docs/guide/python.md",
    pcap_is_run => "docs/guide/pcap.md",
    configuration_is_run => "docs/guide/configuration.md",
    limits_is_run => "docs/guide/limits.md",
    isolation_is_run => "docs/guide/isolation.md",
    capture_is_run => "docs/guide/capture.md",
    api_is_run => "docs/guide/api.md",
    security_is_run => "docs/guide/security.md",
    troubleshooting_is_run => "docs/guide/troubleshooting.md",
    xdp_is_run => "docs/guide/xdp.md",
    benchmarks_is_run => "docs/guide/benchmarks.md",
    manual_examples_are_run => "crates/ringway/tests/documents/manual.md",
}

#[test]
fn every_page_of_the_guide_is_run() {
    let pages: BTreeSet<String> =
        markdown::pages(&root()).into_iter().filter(|page| page.starts_with("docs/guide/")).collect();
    let run: BTreeSet<String> =
        RUN.iter().filter(|page| page.starts_with("docs/guide/")).map(|page| (*page).to_owned()).collect();
    assert_eq!(pages, run, "name every page of docs/guide in `pages!`");
}

/// Returns the command line of `ringway`, with `bench` and `demo` as `ringway-lab` parses them.
fn definition() -> clap::Command {
    let lab = ringway::lab::Command::command();
    ["bench", "demo"].into_iter().fold(Command::command(), |command, name| {
        let parsed = lab.find_subcommand(name).expect("a command of the laboratory").clone();
        command.mut_subcommand(name, |_| parsed)
    })
}

/// Returns the mistake in a command line, if there is one. `is_whole`: no argument may be left out.
fn mistake(words: &[String], is_whole: bool) -> Option<String> {
    let error = definition().try_get_matches_from(words).err()?;
    let is_wrong = match error.kind() {
        // `--help` and `--version` are errors for clap, but valid here.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => false,
        ErrorKind::InvalidSubcommand
        | ErrorKind::UnknownArgument
        | ErrorKind::InvalidValue
        | ErrorKind::ValueValidation => true,
        _ => is_whole,
    };
    is_wrong.then(|| format!("{}: {error}", words.join(" ")))
}

#[test]
fn every_ringway_command_parses() {
    let (mut mistakes, mut parsed) = (Mistakes::default(), 0);
    for path in markdown::pages(&root()) {
        let page = Page::read(&root(), &path);
        for block in page.blocks.iter().filter(|block| block.language == "sh") {
            for (line, words) in shell::commands(&block.text) {
                parsed += 1;
                mistake(&words, true)
                    .into_iter()
                    .for_each(|what| mistakes.add(&format!("{path}:{}", block.line + line), what));
            }
        }
        for (line, code) in &page.spans {
            // Running text may leave out arguments: `ringway port set`.
            for (_, words) in shell::commands(code) {
                mistake(&words, false).into_iter().for_each(|what| mistakes.add(&format!("{path}:{line}"), what));
            }
        }
    }
    mistakes.report();
    assert!(parsed > 80, "only {parsed} commands found: is the parser of the pages broken?");
}

#[test]
fn a_misspelt_command_is_found() {
    let found = |line: &str, is_whole| {
        let commands = shell::commands(line);
        assert_eq!(commands.len(), 1, "{line}");
        mistake(&commands[0].1, is_whole).is_some()
    };
    for wrong in [
        "ringway prot list",
        "ringway gen tx lan0:a --durations 5s",
        "ringway gen tx lan0:a --duration 5x",
        "ringway bench -list",
    ] {
        assert!(found(wrong, true) && found(wrong, false), "{wrong}");
    }
    assert!(found("ringway port set", true) && !found("ringway port set", false));
    assert!(!found("ringway port set vm1 weight=2 | cat", true) && !found("ringway run --help", true));
}

#[test]
fn every_toml_block_is_a_configuration() {
    let (dir, mut mistakes) = (tempfile::tempdir().unwrap(), Mistakes::default());
    let file = dir.path().join("ringway.toml");
    each_block("toml", |path, block| {
        std::fs::write(&file, markdown::whole_configuration(&block.text)).unwrap();
        let said = ringway()
            .arg("--runtime-dir")
            .arg(dir.path())
            .args(["run", "--check", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        if !said.status.success() {
            mistakes.add(&format!("{path}:{}", block.line), String::from_utf8_lossy(&said.stderr));
        }
    });
    mistakes.report();
}

#[test]
fn every_json_block_is_json() {
    let mut mistakes = Mistakes::default();
    each_block("json", |path, block| {
        for value in serde_json::Deserializer::from_str(&block.text).into_iter::<serde_json::Value>() {
            if let Err(error) = value {
                mistakes.add(&format!("{path}:{}", block.line), error);
            }
        }
    });
    mistakes.report();
}

#[test]
fn every_xml_block_is_well_formed() {
    let mut mistakes = Mistakes::default();
    each_block("xml", |path, block| {
        if let Err(error) = markdown::xml(&block.text) {
            mistakes.add(&format!("{path}:{}", block.line), error);
        }
    });
    mistakes.report();
}

#[test]
fn every_rust_block_is_run() {
    let mut mistakes = Mistakes::default();
    let bridge = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kits/rust/examples/learning_bridge.rs"));
    let run = [include_str!("program.rs"), bridge];
    each_block("rust", |path, block| {
        if !run.iter().any(|program| has_lines(program, &block.text)) {
            let what =
                "not a part of crates/ringway/tests/documents/program.rs or of kits/rust/examples/learning_bridge.rs";
            mistakes.add(&format!("{path}:{}", block.line), what);
        }
    });
    mistakes.report();
}

/// `crates/c` runs the programs of the other pages, and `tests/programs` the bridge.
#[test]
fn the_forwarding_program_in_c_is_run() {
    let bridge = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kits/c/examples/learning_bridge.c"));
    let page = Page::read(&root(), "docs/guide/forwarding-programs.md");
    let blocks: Vec<&Block> = page.blocks.iter().filter(|block| block.language == "c").collect();
    assert!(blocks.len() == 1 && has_lines(bridge, &blocks[0].text), "the block in C is not a part of the example");
}

/// Returns true if a text has these lines, in this order and without others between them.
fn has_lines(text: &str, wanted: &str) -> bool {
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let (text, wanted) = (lines(text), lines(wanted));
    text.windows(wanted.len()).any(|part| part == wanted)
}

#[test]
fn every_block_says_its_language() {
    let mut mistakes = Mistakes::default();
    for path in markdown::pages(&root()).into_iter().filter(|path| RUN.contains(&path.as_str())) {
        for block in Page::read(&root(), &path).blocks {
            if !["sh", "toml", "json", "xml", "rust", "c", "python", "text"].contains(&block.language.as_str()) {
                mistakes.add(&format!("{path}:{}", block.line), format!("a block of language {:?}", block.language));
            }
        }
    }
    mistakes.report();
}

#[test]
fn every_link_leads_somewhere() {
    let mut mistakes = Mistakes::default();
    for path in markdown::pages(&root()) {
        let page = Page::read(&root(), &path);
        for (line, target) in &page.links {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let there =
                if file.is_empty() { root().join(&path) } else { root().join(&path).parent().unwrap().join(file) };
            if !there.exists() {
                mistakes.add(&format!("{path}:{line}"), format!("{target} is not there"));
            } else if !anchor.is_empty() && !markdown::anchors(&there).contains(anchor) {
                mistakes.add(&format!("{path}:{line}"), format!("{target}: no heading of this name"));
            }
        }
    }
    mistakes.report();
}

#[test]
fn exemptions_are_counted() {
    let mut exempt = Vec::new();
    for path in RUN {
        let page = Page::read(&root(), path);
        for block in page.blocks.iter().filter(|block| block.language == "sh") {
            if let Task::NotRun(reason) = &block.task {
                assert!(reason.len() > 10, "{path}:{}: give the reason why the block does not run", block.line);
                exempt.push(format!("{path}:{}: {reason}", block.line));
            }
        }
    }
    // Written directly to stderr, so that passing tests show it, too.
    let _ = writeln!(std::io::stderr(), "documents: {} blocks are not run\n  {}", exempt.len(), exempt.join("\n  "));
}

/// Every drop reason and every fault has its row, and there is no other row.
#[test]
fn every_drop_reason_and_every_fault_is_explained() {
    let page = std::fs::read_to_string(root().join("docs/guide/troubleshooting.md")).unwrap();
    for (heading, wanted) in [("## Drop reasons", names::drop_reasons()), ("## Faults", names::faults())] {
        let section = page.split_once(heading).expect(heading).1.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let rows: BTreeSet<String> = rows.map(str::to_owned).collect();
        let missing: Vec<_> = wanted.difference(&rows).collect();
        let unknown: Vec<_> = rows.difference(&wanted).collect();
        assert!(
            missing.is_empty() && unknown.is_empty(),
            "{heading}: no row for {missing:?}, rows for unknown names: {unknown:?}"
        );
    }
}

fn each_block(language: &str, mut what: impl FnMut(&str, &Block)) {
    for path in markdown::pages(&root()) {
        for block in Page::read(&root(), &path).blocks.iter().filter(|block| block.language == language) {
            what(&path, block);
        }
    }
}
