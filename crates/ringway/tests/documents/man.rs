//! `docs/man`: a manual page for each command, generated from the command line's definition.
//!
//! `UPDATE=1 cargo test --profile tests -p ringway --test documents manual` writes the pages again.

use std::collections::BTreeMap;
use std::fs;

use super::markdown::Page;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// The command that writes the pages again.
const UPDATE: &str = "UPDATE=1 cargo test --profile tests -p ringway --test documents manual";

#[test]
fn manual_pages_say_what_the_command_line_says() {
    let dir = super::root().join("docs/man");
    let wanted = pages();
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(&dir).unwrap();
        committed()
            .keys()
            .filter(|name| !wanted.contains_key(*name))
            .for_each(|name| fs::remove_file(dir.join(name)).unwrap());
        wanted.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
        return;
    }
    let committed = committed();
    let names = wanted.keys().chain(committed.keys());
    let differing: Vec<&String> = names.filter(|name| wanted.get(*name) != committed.get(*name)).collect();
    assert!(
        differing.is_empty(),
        "docs/man is not what the command line says: {differing:?}; write it anew with\n  {UPDATE}"
    );
}

/// `manual.md` runs as a page. It has each example of the manual pages.
#[test]
fn every_example_of_the_manual_pages_is_run() {
    let page = Page::read(&super::root(), "crates/ringway/tests/documents/manual.md");
    let run: Vec<&str> = page.blocks.iter().flat_map(|block| block.text.lines()).collect();
    let mut examples: Vec<String> = Vec::new();
    for text in committed().values() {
        let verbatim = text.split(".nf\n").skip(1).filter_map(|rest| rest.split(".fi\n").next());
        let lines = verbatim.flat_map(str::lines).map(|line| line.replace("\\-", "-").replace("\\*(Aq", "'"));
        examples.extend(lines.map(|line| line.trim().to_owned()).filter(|line| line.starts_with("ringway ")));
    }
    assert!(examples.len() > 50, "only {} examples found: is the parser of the pages broken?", examples.len());
    let missing: Vec<&String> = examples.iter().filter(|example| !run.contains(&example.as_str())).collect();
    assert!(missing.is_empty(), "not in manual.md: {missing:#?}");
}

/// Returns the existing pages, without those of other sections.
fn committed() -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(super::root().join("docs/man")) else { return BTreeMap::new() };
    let names = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().extension().is_some_and(|section| section == "1"));
    names.map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())).collect()
}

/// Returns all generated pages, by file name.
fn pages() -> BTreeMap<String, String> {
    // The text of --version differs with every build. The manual has the version of a release.
    let mut command = super::definition().version(env!("CARGO_PKG_VERSION")).long_version(env!("CARGO_PKG_VERSION"));
    command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = BTreeMap::new();
    add(&command, None, &mut pages);
    pages
}

fn add(command: &clap::Command, parent: Option<&str>, pages: &mut BTreeMap<String, String>) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let shown = || command.get_subcommands().filter(|below| !below.is_hide_set());
    shown().for_each(|below| add(below, Some(&name), pages));
    let below = shown().filter_map(|below| below.get_display_name()).map(str::to_owned);
    let others: Vec<String> = parent.map(str::to_owned).into_iter().chain(below).collect();
    let text = page(command, &name, &others).unwrap();
    pages.insert(format!("{name}.1"), text);
}

fn page(command: &clap::Command, name: &str, others: &[String]) -> std::io::Result<String> {
    let source = concat!("ringway ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name).source(source).manual("Ringway").date("");
    let mut bytes = Vec::new();
    man.render_title(&mut bytes)?;
    man.render_name_section(&mut bytes)?;
    man.render_synopsis_section(&mut bytes)?;
    man.render_description_section(&mut bytes)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut bytes)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut bytes)?;
    }
    if let Some(text) = command.get_after_help() {
        rest(&text.to_string()).to_writer(&mut bytes)?;
    }
    see_also(others).to_writer(&mut bytes)?;
    let text = String::from_utf8(bytes).expect("a page is UTF-8");
    // Each section begins with a definition of the apostrophe. One definition is enough.
    let is_definition = |line: &str| line.starts_with(".ie \\n(.g") || line.starts_with(".el .ds Aq");
    let lines = text.lines().enumerate().filter(|(number, line)| *number < 2 || !is_definition(line));
    Ok(lines.map(|(_, line)| line.trim_end()).collect::<Vec<_>>().join("\n") + "\n")
}

/// Returns the text below the options in `--help`, as sections with unchanged lines.
fn rest(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut section = "";
    for paragraph in text.split("\n\n") {
        let of = match paragraph.split([':', ',', ' ']).next() {
            Some("Example" | "Examples") => "EXAMPLES",
            Some("Keys") => "KEYS",
            _ if section.is_empty() => "NOTES",
            _ => section,
        };
        if of == section {
            roff.control("PP", []);
        } else {
            roff.control("SH", [of]);
            section = of;
        }
        let mut verbatim = false;
        for line in paragraph.lines().filter(|line| !["Examples:", "Example:", "Keys:"].contains(line)) {
            if line.starts_with(' ') != verbatim {
                verbatim = !verbatim;
                roff.control(if verbatim { "nf" } else { "fi" }, []);
            }
            roff.text([roman(line)]);
        }
        if verbatim {
            roff.control("fi", []);
        }
    }
    roff
}

fn see_also(others: &[String]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let mut inlines = Vec::new();
    for name in others {
        inlines.extend([bold(name), roman("(1), ")]);
    }
    inlines.extend([bold("ringway.toml"), roman("(5)")]);
    roff.text(inlines);
    roff
}
