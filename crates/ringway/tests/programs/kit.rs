//! Builds the examples of the kits.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use ringway_testing::skip;

/// Debian's compiler. The kit for Rust is written for the version that Debian 12 has.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const TARGET: &str = "wasm32-unknown-unknown";
/// As cargo's profile `release` in `kits/rust/Cargo.toml`.
const RUST_OPTIONS: [&str; 10] =
    ["--edition", "2021", "--target", TARGET, "-C", "opt-level=3", "-C", "panic=abort", "-C", "codegen-units=1"];
/// As `kits/c/ringway_program.h` says.
const C_OPTIONS: [&str; 9] = [
    "--target=wasm32",
    "-O3",
    "-mbulk-memory",
    "-nostdlib",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Werror",
    "-Wl,--no-entry",
];

/// A compiler of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compiler {
    /// Debian's, for Rust.
    Debian,
    /// The one that builds Ringway, for Rust.
    Own,
    /// For C.
    Clang,
}

impl Compiler {
    const ALL: [Compiler; 3] = [Compiler::Debian, Compiler::Own, Compiler::Clang];

    /// Returns what is missing to use it.
    fn missing(self) -> Option<&'static str> {
        let has_target = |rustc: &str| {
            let libraries = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).output();
            libraries.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_dir())
        };
        let is_there = match self {
            Compiler::Debian => has_target(DEBIAN_RUSTC) && skip::is_installed("wasm-ld"),
            Compiler::Own => has_target("rustc"),
            Compiler::Clang => skip::is_installed("clang") && skip::is_installed("wasm-ld"),
        };
        let packages = match self {
            Compiler::Debian => "Debian's packages rustc, libstd-rust-dev-wasm32 and lld",
            Compiler::Own => "the target wasm32-unknown-unknown of the Rust that builds Ringway",
            Compiler::Clang => "Debian's packages clang and lld",
        };
        (!is_there).then_some(packages)
    }

    /// The example's source, if it is written in this language.
    fn source(self, example: &str) -> Option<PathBuf> {
        let path = match self {
            Compiler::Debian | Compiler::Own => kits().join(format!("rust/examples/{example}.rs")),
            Compiler::Clang => kits().join(format!("c/examples/{example}.c")),
        };
        path.exists().then_some(path)
    }

    fn build(self, source: &Path, example: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("programs-{}/{self:?}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let module = folder.join(format!("{example}.wasm"));
        match self {
            Compiler::Debian => build_rust(DEBIAN_RUSTC, source, &folder, &module),
            Compiler::Own => build_rust("rustc", source, &folder, &module),
            Compiler::Clang => {
                done(
                    Command::new("clang")
                        .args(C_OPTIONS)
                        .arg("-I")
                        .arg(kits().join("c"))
                        .arg("-o")
                        .arg(&module)
                        .arg(source),
                );
            }
        }
        module
    }
}

fn build_rust(rustc: &str, source: &Path, folder: &Path, module: &Path) {
    let kit = folder.join("libringway_program.rlib");
    if !kit.exists() {
        let library = kits().join("rust/src/lib.rs");
        let named = ["--crate-name", "ringway_program", "--crate-type", "rlib"];
        done(Command::new(rustc).args(named).args(RUST_OPTIONS).arg("-o").arg(&kit).arg(library));
    }
    let dependency = format!("ringway_program={}", kit.display());
    let linked = ["--crate-type", "cdylib", "-C", "lto", "-C", "strip=symbols", "--extern", &dependency];
    done(Command::new(rustc).args(RUST_OPTIONS).args(linked).arg("-o").arg(module).arg(source));
}

/// Runs a compiler, which must succeed without a warning.
fn done(compiler: &mut Command) {
    let said = compiler.output().unwrap();
    let complaints = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && complaints.is_empty(), "{compiler:?}: {complaints}");
}

fn kits() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kits"))
}

/// Every example, in all languages.
pub fn examples() -> Vec<String> {
    let sources = ["rust/examples", "c/examples"].iter().flat_map(|folder| kits().join(folder).read_dir().unwrap());
    let mut names: Vec<String> =
        sources.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names.dedup();
    assert!(names.len() >= 7, "{names:?}");
    names
}

/// The modules of an example: one for each language that it is written in, and for each compiler. The part of the test that needs a
/// compiler that is not there is skipped.
pub fn built(example: &str) -> Vec<PathBuf> {
    static BUILT: OnceLock<Mutex<HashMap<(String, Compiler), PathBuf>>> = OnceLock::new();
    let mut modules = Vec::new();
    for compiler in Compiler::ALL {
        let Some(source) = compiler.source(example) else { continue };
        match compiler.missing() {
            None => {
                // One at a time: the other tests wait for the kit's library.
                let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
                let entry = built.entry((example.to_owned(), compiler));
                modules.push(entry.or_insert_with(|| compiler.build(&source, example)).clone());
            }
            // Only an addition to Debian's.
            Some(_) if compiler == Compiler::Own => {}
            Some(packages) => skip::note(format!("{example} by {compiler:?} needs {packages}")),
        }
    }
    modules
}

#[test]
fn every_example_has_less_than_a_hundred_lines() {
    for example in examples() {
        for source in Compiler::ALL.iter().filter_map(|compiler| compiler.source(&example)) {
            let lines = std::fs::read_to_string(&source).unwrap().lines().count();
            assert!(lines < 100, "{} has {lines} lines", source.display());
        }
    }
}
