//! `ringway program`: what it makes and prints, and what it refuses.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringway_scenes::{Said, ringway};
use ringway_testing::frame::between;
use ringway_testing::skip;
use ringway_traffic::pcap::Recorder;

use super::kit::built;

fn program(args: &[&str]) -> Said {
    ringway().arg("program").args(args).output().unwrap().into()
}

fn refused(args: &[&str], wanted: &str) {
    let said = program(args);
    assert!(
        said.code == Some(2) && said.err.contains(wanted),
        "{args:?}: {wanted} is not in: {} {}",
        said.out,
        said.err
    );
}

/// A capture of two frames between two stations.
fn capture(folder: &Path) -> String {
    let path = folder.join("two.pcap");
    let mut recorder = Recorder::create(&path, 65_535).unwrap();
    recorder.write(Duration::from_secs(5), &between(2, 1, 60, 0)).unwrap();
    recorder.write(Duration::from_millis(5250), &between(1, 2, 1514, 0)).unwrap();
    recorder.flush().unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs the commands that `program new` names.
fn follow(said: &Said, folder: &Path) -> Said {
    assert_eq!(said.code, Some(0), "{}", said.err);
    let steps: Vec<&str> = said.out.lines().skip(2).collect();
    assert!(steps.len() == 3 && steps[0].trim().starts_with("cd "), "{}", said.out);
    let steps_but_last = format!("{} && {}", steps[0], steps[1]);
    let built = Command::new("sh").arg("-c").arg(steps_but_last).output().unwrap();
    assert!(built.status.success(), "{}: {}", steps[1], String::from_utf8_lossy(&built.stderr));
    let words: Vec<&str> = steps[2].split_whitespace().collect();
    assert_eq!(words[0], "ringway");
    ringway().args(&words[1..]).current_dir(folder).output().unwrap().into()
}

#[test]
fn a_new_program_in_c_builds_and_is_acceptable() {
    if !skip::is_installed("clang") || !skip::is_installed("wasm-ld") {
        skip::note("needs Debian's packages clang and lld");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("My bridge");
    let said = program(&["new", folder.to_str().unwrap(), "--language", "c"]);
    assert_eq!(follow(&said, &folder).out, "my-bridge.wasm: acceptable\n");
}

#[test]
fn a_new_program_in_rust_builds_and_is_acceptable() {
    let target = "wasm32-unknown-unknown";
    let found = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output().unwrap();
    if !Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_dir() {
        // The kit itself is built with Debian's compiler by other tests, without cargo.
        return build_with_debian();
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("acl");
    let said = follow(&program(&["new", folder.to_str().unwrap()]), &folder);
    assert_eq!(
        (said.out.as_str(), said.err.as_str()),
        ("target/wasm32-unknown-unknown/release/acl.wasm: acceptable\n", "")
    );
}

/// The same by the compiler of Debian alone.
fn build_with_debian() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("acl");
    assert_eq!(program(&["new", folder.to_str().unwrap()]).code, Some(0));
    let module = folder.join("src/lib.rs");
    assert!(fs::read_to_string(module).unwrap().contains("export!(Bridge)"));
}

#[test]
fn a_new_program_takes_nobodys_place() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, file) = (dir.path().join("full"), dir.path().join("file"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("mine"), "").unwrap();
    fs::write(&file, "").unwrap();
    refused(&["new", folder.to_str().unwrap()], "full is not empty: name a new folder");
    refused(&["new", file.to_str().unwrap()], "file is a file: name a new folder");
    refused(&["new", "/"], "give the folder a name");
    refused(&["new", "x", "--language", "basic"], "invalid value 'basic'");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_check_names_every_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // A module without anything, and one that imports a function (module "env", name "f").
    let header = b"\0asm\x01\0\0\0";
    let empty = program(&["check", &file("empty.wasm", header)]);
    assert_eq!(empty.code, Some(2));
    for wanted in ["memory", "ringway_interface", "ringway_start", "ringway_frames"] {
        let line = format!("empty.wasm: the module does not export \"{wanted}\"");
        assert!(empty.err.contains(&line), "{line}: {}", empty.err);
    }
    let imports = [&header[..], b"\x01\x04\x01\x60\0\0", b"\x02\x09\x01\x03env\x01f\0\0"].concat();
    refused(&["check", &file("imports.wasm", &imports)], "the module imports \"env.f\"");
    refused(&["check", &file("text.wasm", b"(module)")], "it is a WebAssembly text");
    refused(&["check", &file("nothing.wasm", b"")], "the file is empty");
    refused(&["check", &file("large.wasm", &vec![0; (4 << 20) + 1])], "4194305 bytes: 4194304 are the most");
    refused(&["check", "no-such-file"], "no-such-file: No such file or directory");
    refused(&["check", dir.path().to_str().unwrap()], "Is a directory");
}

#[test]
fn a_check_with_a_config_starts_the_program() {
    for module in built("access_list") {
        let module = module.to_str().unwrap();
        assert_eq!(program(&["check", module, "--config", "allow tcp"]).out, format!("{module}: acceptable\n"));
        refused(&["check", module, "--config", "allow tpc"], "the program refuses to start: rule 1 has not the form");
    }
}

#[test]
fn a_run_prints_each_frame_and_the_sum() {
    let dir = tempfile::tempdir().unwrap();
    let capture = capture(dir.path());
    for module in built("learning_bridge") {
        let said = program(&["run", module.to_str().unwrap(), &capture, "--ports", "left,right"]);
        let wanted = "  FRAME          TIME  FROM    BYTES  VERDICT\n      \
                      1      0.000000  left       60  to all\n      \
                      2      0.250000  right    1514  to left\n\
                      \n2 frames, 2 batches\nverdicts:\n  to all   1\n  to left  1\n";
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), wanted, ""));
    }
}

#[test]
fn a_run_places_stations_as_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let capture = capture(dir.path());
    for module in built("learning_bridge") {
        let at = ["--at", "02:00:00:00:00:01=b", "--at", "02:00:00:00:00:02=c"];
        let args = [&["run", module.to_str().unwrap(), &capture, "--ports", "a,b,c", "--json"], &at[..]].concat();
        let report: serde_json::Value = serde_json::from_str(&program(&args).out).unwrap();
        assert_eq!((&report["frames"][0]["from"], &report["frames"][1]["from"]), (&"b".into(), &"c".into()));
        assert_eq!(report["frames"][1]["ports"], serde_json::json!(["b"]));
    }
}

#[test]
fn a_run_refuses_what_it_cannot_do() {
    let dir = tempfile::tempdir().unwrap();
    let capture = capture(dir.path());
    for module in built("null") {
        let module = module.to_str().unwrap();
        refused(&["run", module, "/proc/self/cmdline"], "not a pcap or pcapng file");
        refused(&["run", &capture, &capture], "it is no WebAssembly module");
        refused(&["run", module, &capture, "--ports", "a,a"], "\"a\" is there twice");
        refused(&["run", module, &capture, "--ports", "a,b c"], "--ports: ");
        refused(&["run", module, &capture, "--at", "02:00:00:00:00:01=d"], "there is no port \"d\": --ports has a,b");
        refused(&["run", module, &capture, "--at", "d"], "write ADDRESS=PORT");
        refused(&["run", module, &capture, "--config", "", "--config-file", "x"], "cannot be used with");
        refused(&["run", module, &capture, "--config-file", "no-such-file"], "no-such-file: No such file");
        // What came before the damage is shown.
        let cut = dir.path().join("cut.pcap");
        let whole = fs::read(&capture).unwrap();
        fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
        let said = program(&["run", module, cut.to_str().unwrap()]);
        assert!(said.code == Some(2) && said.err.contains("cut short") && said.out.contains("1 frames"), "{said:?}");
    }
}
