//! The library's symbols, as the dynamic linker sees them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that was built with this test.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libringway_pcap.so")
}

/// Debian's libpcap.
fn libpcap() -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
    folders.map(|folder| Path::new(folder).join("libpcap.so.0.8")).into_iter().find(|path| path.exists())
}

fn run(program: &str, args: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(args).arg(file).output().expect("binutils is installed with gcc");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The functions that a library exports, with their versions.
fn functions(file: &Path) -> BTreeSet<String> {
    let symbols = run("nm", &["-D", "--defined-only"], file);
    symbols.lines().filter_map(|line| line.split(" T ").nth(1)).map(str::to_owned).collect()
}

#[test]
fn every_function_of_libpcap_is_exported_and_none_has_a_version() {
    let Some(libpcap) = libpcap() else { ringway_testing::skip!("needs libpcap0.8") };
    let (wanted, ours) = (functions(&libpcap), functions(&library()));
    assert!(wanted.len() > 80, "{wanted:?}");
    let missing: Vec<&String> = wanted.difference(&ours).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(ours.iter().all(|name| !name.contains('@')), "{ours:?}");
    let more: Vec<&String> = ours.difference(&wanted).collect();
    assert_eq!(more, ["ringway_pcap_library"]);
}

#[test]
fn the_library_has_libpcaps_soname() {
    assert!(run("readelf", &["-d"], &library()).contains("Library soname: [libpcap.so.0.8]"));
}
