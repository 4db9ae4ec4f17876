//! The library as `packaging/c-library` makes it of the static library that was built with this test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use ringway_testing::file::directory;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The static library. Cargo keeps it among the dependencies of the tests, with a number in its name: the newest is this build's.
pub fn static_library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let files = std::fs::read_dir(program.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let is_ours = |name: &str| name.starts_with("libringway_c-") && name.ends_with(".a");
    let changed =
        |file: &std::fs::DirEntry| file.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let ours = files.filter(|file| file.file_name().to_str().is_some_and(is_ours));
    ours.max_by_key(changed).expect("cargo builds the static library with its tests").path()
}

/// Runs a command that must succeed, and returns what it wrote to stdout.
#[track_caller]
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The folder with `libringway.so.0`, `libringway.so` and `libringway.a`, made once.
pub fn library() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = directory();
            output(Command::new(root().join("packaging/c-library")).arg(static_library()).arg(folder.path()));
            std::os::unix::fs::symlink("libringway.so.0", folder.path().join("libringway.so")).unwrap();
            folder
        })
        .path()
}

/// Names of the header's functions that are in the library. Those of a run are in the header itself.
fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(root().join("crates/c/include/ringway.h")).unwrap();
    let code = header.split("*/").filter_map(|text| text.split("/*").next());
    let called =
        code.flat_map(|text| text.match_indices('(').map(|(at, _)| text[..at].rsplit([' ', '*']).next().unwrap_or("")));
    let mut names: Vec<String> = called
        .filter(|name| name.starts_with("ringway_") && !name.starts_with("ringway_run_") && !name.ends_with(')'))
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn the_shared_library_has_a_soname_and_exports_the_headers_functions_with_a_version_and_nothing_else() {
    let shared = library().join("libringway.so.0");
    let dynamic = output(Command::new("readelf").arg("-dW").arg(&shared));
    assert!(dynamic.contains("Library soname: [libringway.so.0]"), "{dynamic}");
    let symbols = output(Command::new("objdump").arg("-T").arg(&shared));
    let mut exported = Vec::new();
    for line in symbols.lines().filter(|line| line.contains(".text")) {
        let [.., version, name] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(version, "RINGWAY_0", "{line}");
        exported.push(name.to_owned());
    }
    exported.sort_unstable();
    let declared = declared();
    assert!(declared.len() > 25, "only {declared:?}");
    assert_eq!(exported, declared);
    // Data, too: nothing but the name of the version is defined outside of the code.
    let defined = symbols
        .lines()
        .filter(|line| !line.contains("*UND*") && !line.contains(".text"))
        .filter(|line| line.contains(" g "));
    let others: Vec<&str> = defined.filter(|line| !line.ends_with("RINGWAY_0")).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn the_static_library_defines_the_headers_functions_and_no_others() {
    let symbols = output(Command::new("nm").args(["-g", "--defined-only"]).arg(library().join("libringway.a")));
    let names = symbols.lines().filter_map(|line| line.rsplit_once(" T ").map(|(_, name)| name.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    assert_eq!(names, declared());
    assert_eq!(symbols.lines().filter(|line| line.split(' ').count() == 3).count(), names.len(), "{symbols}");
}
