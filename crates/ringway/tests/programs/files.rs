//! The files that `program` and `config_file` name.

use std::fs;
use std::path::Path;

use ringway_scenes::{Daemon, Said, ringway};
use rustix::process::Signal;

use super::kit::built;
use super::offline::many_rules;
use super::packets::{End, TCP, UDP, ipv4};
use super::scene::{Scene, table};

const NOBODY: [&str; 0] = [];

fn set(daemon: &Daemon, key: &str, value: &str) -> Said {
    daemon.ringway(&["switch", "set", "lan0", &format!("{key}={value}")])
}

#[test]
fn an_access_list_of_a_hundred_thousand_rules_is_loaded_from_a_file_and_decides() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules");
    let rules = many_rules();
    assert!(rules.len() > 4 << 20, "more than a configuration file may have");
    let tcp = |from: u8, port: u16| ipv4(TCP, End(1, from, 40_000), End(2, 2, port), &[]);
    for module in built("access_list") {
        fs::write(&file, &rules).unwrap();
        let keys = table(&module, &[("config_file", file.to_str().unwrap())]);
        let mut scene = Scene::of(&format!("[switch.lan0]\nforwarding = {keys}\n"), &["a", "b"]);
        assert_eq!(scene.send("a", &tcp(1, 80)), ["b"]);
        assert_eq!(scene.send("b", &ipv4(TCP, End(2, 2, 80), End(1, 1, 40_000), &[])), ["a"], "an answer");
        assert_eq!(scene.send("a", &tcp(1, 81)), NOBODY);
        // The file is read anew when the program is set, and when it has changed at SIGHUP.
        fs::write(&file, format!("deny from 10.0.0.7\n{rules}")).unwrap();
        scene.daemon.ok(&["switch", "set", "lan0", &format!("forwarding.config_file={}", file.to_str().unwrap())]);
        assert_eq!(scene.send("a", &tcp(7, 80)), NOBODY);
        assert_eq!(scene.send("a", &tcp(8, 80)), ["b"]);
        fs::write(&file, "allow udp").unwrap();
        scene.daemon.signal(Signal::HUP);
        assert_eq!(scene.daemon.line(), "reloaded: loaded the program of switch lan0");
        assert_eq!(scene.send("a", &tcp(8, 80)), NOBODY);
        assert_eq!(scene.send("a", &ipv4(UDP, End(1, 1, 1), End(2, 2, 2), &[])), ["b"]);
        // The text replaces the file.
        assert_eq!(set(&scene.daemon, "forwarding.config", "allow tcp").code, Some(0));
        assert_eq!(scene.send("a", &tcp(8, 80)), ["b"]);
        let keys = scene.daemon.status()["switches"][0]["forwarding"].clone();
        assert_eq!((&keys["config"], &keys["config_file"]), (&"allow tcp".into(), &serde_json::Value::Null));
    }
}

#[test]
fn a_config_file_that_cannot_be_used_is_refused_with_its_name_and_the_reason() {
    let Some(module) = built("null").into_iter().next() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("large"), vec![b' '; (8 << 20) + 1]).unwrap();
    fs::write(path("latin"), b"allow\xff").unwrap();
    fs::write(path("good"), vec![b' '; 8 << 20]).unwrap();
    let scene = Scene::of("[switch.lan0]\n", &["a"]);
    let with = |keys: &[(&str, &str)]| set(&scene.daemon, "forwarding", &table(&module, keys));
    for (file, why) in [
        (path("large"), "it is larger than 8 MiB"),
        (path("latin"), "byte 5 is not UTF-8"),
        (path("none"), "No such file or directory"),
        (path(""), "it is no regular file"),
    ] {
        let said = with(&[("config_file", &file)]);
        let wanted = format!("of switch lan0: config_file {file}: {why}");
        assert!(said.code == Some(1) && said.err.contains(&wanted), "{wanted} is not in: {}", said.err);
    }
    let said = with(&[("config_file", &path("good")), ("config", "x")]);
    let wanted = "key \"forwarding.config_file\": config is given, too; write one of them";
    assert!(said.code == Some(2) && said.err.contains(wanted), "{}", said.err);
    assert!(scene.program().is_null(), "nothing has changed");
    assert_eq!(with(&[("config_file", &path("good"))]).code, Some(0));
}

#[test]
fn the_configuration_file_names_files_relative_to_its_folder() {
    let Some(module) = built("port_knocker").into_iter().next() else { return };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("knocks"), "10.0.0.9 22 7000 8000").unwrap();
    fs::copy(module, dir.path().join("knocker.wasm")).unwrap();
    let keys = table(Path::new("knocker.wasm"), &[("config_file", "knocks")]);
    fs::write(dir.path().join("ringway.toml"), format!("[switch.lan0]\nforwarding = {keys}\n")).unwrap();
    let daemon = Daemon::start_in(dir, &[]);
    assert_eq!(daemon.status()["switches"][0]["program"]["state"], "running");
}

#[test]
fn switch_set_names_files_relative_to_its_own_folder() {
    let Some(module) = built("port_knocker").into_iter().next() else { return };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("knocks"), "10.0.0.9 22 7000 8000").unwrap();
    fs::copy(module, dir.path().join("knocker.wasm")).unwrap();
    let daemon = Daemon::start("[switch.lan0]\n");
    for words in [
        &["forwarding={program=\"knocker.wasm\",config_file=\"knocks\"}"][..],
        &["forwarding.config_file=./knocks", "forwarding.program=knocker.wasm"],
    ] {
        let mut command = ringway();
        command.arg("--runtime-dir").arg(daemon.runtime_dir()).args(["switch", "set", "lan0"]).args(words);
        let said: Said = command.current_dir(dir.path()).output().unwrap().into();
        assert_eq!(said.code, Some(0), "{words:?}: {}", said.err);
        let keys = &daemon.status()["switches"][0]["forwarding"];
        let absolute = |name: &str| serde_json::Value::from(dir.path().join(name).to_str().unwrap());
        assert_eq!((&keys["program"], &keys["config_file"]), (&absolute("knocker.wasm"), &absolute("knocks")));
        daemon.ok(&["switch", "set", "lan0", "forwarding=learning"]);
    }
}
