//! `ringway program new`: a folder with a program to begin with, and the kit that it is built with.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use ringway_commands::context::{complain, refuse};
use ringway_commands::out;

/// Make a folder with a new forwarding program: a learning bridge, to be changed
///
/// The folder has the program, the kit that it is built with, and what the compiler has to know. The kit is not fetched from anywhere.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway program new acl
  ringway program new balancer --language c")]
pub struct Args {
    /// The folder, which is made. Its name is the program's
    dir: PathBuf,
    /// The language
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    language: Language,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    /// Rust 1.63 or newer, with the target wasm32-unknown-unknown
    Rust,
    /// C, for clang and lld
    C,
}

/// A file of `kits/`, which is a part of this program.
macro_rules! kit {
    ($($path:literal),+) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kits/", $($path),+))
    };
}

/// Files of the crate `ringway-program`: place in the new folder, and text.
macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$((concat!("ringway-program/src/", $name), kit!("rust/src/", $name))),*]
    };
}

const SOURCES: &[(&str, &str)] = sources![
    "address.rs",
    "batch.rs",
    "cache.rs",
    "export.rs",
    "flow.rs",
    "host.rs",
    "lib.rs",
    "log.rs",
    "map.rs",
    "memory.rs",
    "panic.rs",
    "port.rs",
    "program.rs",
    "rules.rs",
    "switch.rs",
    "table.rs",
];

/// The crate's manifest, with more than another package needs.
const MANIFEST: &str = kit!("rust/Cargo.toml");
const RUST_PROGRAM: &str = kit!("rust/examples/learning_bridge.rs");
const C_HEADER: &str = kit!("c/ringway_program.h");
const C_PROGRAM: &str = kit!("c/examples/learning_bridge.c");

const CONFIG: &str = "[build]\ntarget = \"wasm32-unknown-unknown\"\n";

/// Names that a package with the dependency `ringway-program` cannot have.
const TAKEN: [&str; 7] = ["alloc", "core", "proc_macro", "ringway-program", "ringway_program", "std", "test"];

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    let Some(name) = args.dir.file_name().and_then(|name| name.to_str()).map(package_name) else {
        return refuse("program new", &format!("{}: give the folder a name: it is the program's", args.dir.display()));
    };
    match fs::read_dir(&args.dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            return refuse("program new", &format!("{} is not empty: name a new folder", args.dir.display()));
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return refuse("program new", &format!("{} is a file: name a new folder", args.dir.display()));
        }
        // It is made.
        Ok(false) | Err(_) => {}
    }
    let (files, text) = match args.language {
        Language::Rust => (rust(&name), rust_steps(&args.dir, &name)),
        Language::C => (c(&name), c_steps(&args.dir, &name)),
    };
    for (path, text) in files {
        if let Err((path, error)) = write(&args.dir.join(path), &text) {
            complain("program new", &format!("{}: {error}", path.display()));
            return ExitCode::FAILURE;
        }
    }
    out::print(&text)
}

fn write(path: &Path, text: &str) -> Result<(), (PathBuf, io::Error)> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| (folder.to_owned(), error))?;
    let write = |path: &Path| io::Write::write_all(&mut fs::File::create_new(path)?, text.as_bytes());
    write(path).map_err(|error| (path.to_owned(), error))
}

/// The name of a folder as cargo takes it.
fn package_name(folder: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    let name: String = folder.chars().map(plain).collect();
    let begins_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    match begins_well && !TAKEN.contains(&name.as_str()) {
        true => name,
        false => format!("program-{name}"),
    }
}

fn rust(name: &str) -> Vec<(String, String)> {
    // Without the tables of a package that has examples and is built alone.
    let manifest = MANIFEST.split("\n[workspace]").next().unwrap_or(MANIFEST);
    let own = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\npublish = false\n\n\
         [lib]\ncrate-type = [\"cdylib\"]\ntest = false\ndoctest = false\n\n\
         [dependencies]\nringway-program = {{ path = \"ringway-program\" }}\n\n\
         [profile.release]\nlto = true\ncodegen-units = 1\npanic = \"abort\"\nstrip = true\n\n\
         [profile.dev]\npanic = \"abort\"\n\n[workspace]\n"
    );
    let mut files = vec![
        ("Cargo.toml".to_owned(), own),
        (".cargo/config.toml".to_owned(), CONFIG.to_owned()),
        (".gitignore".to_owned(), "/target\n".to_owned()),
        ("src/lib.rs".to_owned(), RUST_PROGRAM.to_owned()),
        ("ringway-program/Cargo.toml".to_owned(), manifest.to_owned()),
    ];
    files.extend(SOURCES.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
    files
}

fn c(name: &str) -> Vec<(String, String)> {
    let make = format!(
        "# clang and lld build it: on Debian, the packages clang and lld.\n\
         CC := clang\nCFLAGS := --target=wasm32 -O3 -mbulk-memory -nostdlib -Wall\n\n\
         {name}.wasm: {name}.c ringway_program.h\n\t$(CC) $(CFLAGS) -Wl,--no-entry -o $@ $<\n"
    );
    vec![
        (format!("{name}.c"), C_PROGRAM.to_owned()),
        ("ringway_program.h".to_owned(), C_HEADER.to_owned()),
        ("Makefile".to_owned(), make),
        (".gitignore".to_owned(), "*.wasm\n".to_owned()),
    ]
}

fn rust_steps(dir: &Path, name: &str) -> String {
    let module = format!("target/wasm32-unknown-unknown/release/{}.wasm", name.replace('-', "_"));
    format!(
        "made {dir}: the program is src/lib.rs, what it can use is described in ringway-program/src/lib.rs\n\
         to build and check it:\n  \
         cd {quoted}\n  \
         cargo build --release     # needs: rustup target add wasm32-unknown-unknown\n  \
         ringway program check {module}\n",
        dir = dir.display(),
        quoted = quoted(dir)
    )
}

fn c_steps(dir: &Path, name: &str) -> String {
    format!(
        "made {dir}: the program is {name}.c, what it can use is described in ringway_program.h\n\
         to build and check it:\n  \
         cd {quoted}\n  \
         make     # needs clang and lld\n  \
         ringway program check {name}.wasm\n",
        dir = dir.display(),
        quoted = quoted(dir)
    )
}

/// A folder as a shell takes it.
fn quoted(dir: &Path) -> String {
    let text = dir.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,@%".contains(c);
    if text.chars().all(is_plain) && !text.starts_with('-') {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_may_have_any_name() {
        for (folder, wanted) in [
            ("acl", "acl"),
            ("My Program", "my-program"),
            ("7seas", "program-7seas"),
            ("ringway-program", "program-ringway-program"),
            ("brücke", "br-cke"),
            ("-", "program--"),
        ] {
            assert_eq!(package_name(folder), wanted);
        }
    }

    #[test]
    fn the_kit_is_whole() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kits/rust/src");
        let mut there: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        there.sort();
        let within: Vec<&str> = SOURCES.iter().map(|(path, _)| path.rsplit('/').next().unwrap()).collect();
        assert_eq!(within, there, "name every file of kits/rust/src in SOURCES");
    }
}
