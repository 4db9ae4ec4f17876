//! `include/ringway.h` is what the sources say.

use std::fs;
use std::path::Path;

/// The command that writes the header again.
const UPDATE: &str = "UPDATE=1 cargo test --profile tests -p ringway-c --test header";
/// In the order in which a reader needs them.
const SOURCES: [&str; 11] = [
    "error",
    "ring",
    "offload",
    "port",
    "tx",
    "rx",
    "memory",
    "lwep/endpoint",
    "lwep/event",
    "lwep/send",
    "lwep/sleep",
];

fn generated(folder: &Path) -> String {
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let builder = SOURCES.iter().fold(cbindgen::Builder::new().with_config(config), |builder, source| {
        builder.with_src(folder.join("src").join(source).with_extension("rs"))
    });
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    String::from_utf8(header).unwrap()
}

#[test]
fn the_header_says_what_the_sources_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (file, wanted) = (folder.join("include/ringway.h"), generated(folder));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &wanted).unwrap();
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == wanted, "include/ringway.h is not what the sources say; write it anew with\n  {UPDATE}");
}

/// Returns the names of the functions in the header.
fn functions(header: &str) -> Vec<&str> {
    let words = header.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '(');
    let called = words.filter_map(|word| word.split_once('(').map(|(name, _)| name));
    let mut names: Vec<&str> = called.filter(|name| name.starts_with("ringway_")).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn the_manual_pages_name_every_function_and_every_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(folder.join("include/ringway.h")).unwrap();
    let page = |name| fs::read_to_string(folder.join("../../docs/man").join(name)).unwrap().replace("\\_", "_");
    let manual = page("ringway.3") + &page("ringway-lwep.3");
    let functions = functions(&header);
    assert!(functions.len() > 20, "only {functions:?} were found in the header");
    let codes = header.split_whitespace().filter(|word| word.starts_with("RINGWAY_") && word.len() > 9);
    let missing: Vec<&str> =
        functions
            .into_iter()
            .chain(codes.filter(|word| {
                word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
            }))
            .filter(|name| !manual.contains(name) && *name != "RINGWAY_H")
            .collect();
    assert!(missing.is_empty(), "not in docs/man/ringway.3 or ringway-lwep.3: {missing:?}");
}
