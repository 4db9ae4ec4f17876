//! `ringway exec` itself.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use ringway_scenes::{Daemon, Said, ringway};
use ringway_testing::skip::is_root;

use super::text;

fn exec(args: &[&str]) -> Said {
    ringway().arg("exec").args(args).output().unwrap().into()
}

fn refused(said: &Said, code: i32, why: &str) {
    assert_eq!(said.code, Some(code), "{}{}", said.out, said.err);
    assert!(said.err.starts_with("ringway exec: ") && said.err.contains(why), "{}", said.err);
}

fn compile(dir: &Path, name: &str, source: &str, args: &[&str]) -> PathBuf {
    let (code, program) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&code, source).unwrap();
    let said: Said = Command::new("cc").arg("-o").arg(&program).arg(&code).args(args).output().unwrap().into();
    assert_eq!(said.code, Some(0), "{}", said.err);
    program
}

fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_program_gets_its_arguments_its_exit_code_and_the_libraries() {
    let said = exec(&["--", "sh", "-c", "echo \"$0 $1\"; exit 7", "a b", "--help"]);
    assert_eq!((said.out.as_str(), said.code), ("a b --help\n", Some(7)));
    let daemon = Daemon::start("");
    let shown = daemon.ok(&["exec", "env"]);
    let line = |name: &str| shown.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).map(str::to_owned);
    let folder = line("LD_LIBRARY_PATH").unwrap();
    let folder = folder.split(':').next().unwrap();
    assert!(folder.ends_with("/libpcap") && Path::new(folder).join("libpcap.so.0.8").exists(), "{folder}");
    assert_eq!(line("RINGWAY_ATTACH_SOCKET").as_deref(), daemon.socket("attach.sock").to_str());
    assert_eq!(line("RINGWAY_CONTROL_SOCKET").as_deref(), daemon.socket("control.sock").to_str());
    // A list of the user's comes after it.
    let said: Said = ringway().args(["exec", "env"]).env("LD_LIBRARY_PATH", "/a:/b").output().unwrap().into();
    assert!(said.out.contains(&format!("LD_LIBRARY_PATH={folder}:/a:/b\n")), "{}", said.out);
}

#[test]
fn programs_that_load_no_library_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = "int main(void) { return 0; }";
    let fixed = compile(dir.path(), "fixed", nothing, &["-static"]);
    refused(&exec(&[text(&fixed)]), 126, "is statically linked: it loads no library");
    let note = format!("__attribute__((section(\".note.go.buildid\"), used)) static const char note[4];\n{nothing}");
    let go = compile(dir.path(), "go", &note, &[]);
    refused(&exec(&[text(&go)]), 126, "is a Go program without libpcap");
    // A Go program that calls libpcap meets it.
    let with_libpcap = compile(dir.path(), "cgo", &note, &["-Wl,--no-as-needed", "-lpcap"]);
    assert_eq!(exec(&[text(&with_libpcap)]).code, Some(0));
    let scripted = script(dir.path(), "scripted", &format!("#!{} x\n", fixed.display()));
    refused(&exec(&[text(&scripted)]), 126, "fixed is statically linked");
    let narrow = script(dir.path(), "narrow", "\x7fELF\x01\x01\x01");
    refused(&exec(&[text(&narrow)]), 126, "another kind of processor");
    if is_root() {
        let other = compile(dir.path(), "other", nothing, &[]);
        chown(&other, Some(65_534), None).unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o4755)).unwrap();
        refused(&exec(&[text(&other)]), 126, "is a set-user-ID program");
    }
}

#[test]
fn scripts_run_by_their_interpreters() {
    let dir = tempfile::tempdir().unwrap();
    let shell = script(dir.path(), "shell", "#!/bin/sh\necho \"$1 $LD_LIBRARY_PATH\"\n");
    assert!(exec(&[text(&shell), "hello"]).out.starts_with("hello /"));
    let python = script(
        dir.path(),
        "python",
        "#!/usr/bin/env python3\nimport ctypes\nlibrary = ctypes.CDLL('libpcap.so.0.8')\n\
        library.pcap_lib_version.restype = ctypes.c_char_p\nprint(library.pcap_lib_version().decode())\n",
    );
    let said = exec(&[text(&python)]);
    assert!(
        said.out.starts_with("libpcap version 1.") && said.out.contains("with ports of Ringway"),
        "{}{}",
        said.out,
        said.err
    );
}

#[test]
fn what_is_not_there_is_named() {
    refused(&exec(&["no-such-program-anywhere"]), 127, "there is no program no-such-program-anywhere in PATH");
    let dir = tempfile::tempdir().unwrap();
    let said: Said = ringway().args(["exec", "true"]).env("RINGWAY_LIB_DIR", dir.path()).output().unwrap().into();
    refused(&said, 125, &format!("looked for {}/libpcap/libpcap.so.0.8", dir.path().display()));
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    refused(&exec(&[text(&plain)]), 126, "is not executable");
}
