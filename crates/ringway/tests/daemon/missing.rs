//! What a configuration names and what is not there: one thing that is missing keeps no other port from being served, and is used as soon as it is
//! there.

use std::process::Command;

use ringway_scenes::namespace::Namespace;
use ringway_scenes::{Daemon, Said, ringway, until};
use ringway_testing::file::directory;
use ringway_testing::skip;

/// Starts a daemon with this section of the port `p`, which fails for this reason, logged with port and line. Others are served.
fn start_without(section: &str, why: &str) -> Daemon {
    let config = format!("[switch.lan0]\n\n[port.p]\nswitch = \"lan0\"\n{section}");
    let daemon = Daemon::start(&config);
    let port = daemon.port("p");
    let detail = port["detail"].as_str().unwrap_or_default();
    assert!(port["state"] == "failed" && detail.contains(why) && detail.contains("tried again"), "{port}");
    daemon.complains("ringway.toml:3) cannot be opened");
    drop(daemon.attach("lan0:other").expect("another port"));
    daemon
}

/// Checks a configuration with this section of the port `p`, and returns the warnings.
fn check(section: &str) -> String {
    let dir = directory();
    let file = dir.path().join("c.toml");
    std::fs::write(&file, format!("[switch.lan0]\n\n[port.p]\nswitch = \"lan0\"\n{section}")).unwrap();
    let said: Said = ringway().args(["run", "--check", "--config"]).arg(&file).output().unwrap().into();
    assert_eq!((said.code, said.out.as_str()), (Some(0), "valid: 1 switches, 1 ports\n"), "{}", said.err);
    said.err
}

#[test]
fn a_namespace_that_is_missing_at_the_start_gets_its_port_when_it_is_there() {
    let space = Namespace::new();
    let name = format!("{}-late", space.name);
    let section = format!("kind = \"tap\"\nnetns = \"{name}\"\n");
    let warned = check(&section);
    assert!(warned.contains("c.toml:6:9: warning: key \"port.p.netns\": there is no network namespace"), "{warned}");
    let daemon = start_without(&section, "cannot open network namespace");
    // Not within the other one, which has mounts of its own.
    assert!(Command::new("ip").args(["netns", "add", &name]).status().unwrap().success());
    // Goes with the test.
    let late = Namespace { name };
    daemon.until_state("p", "up");
    assert!(late.has_device("p"));
}

#[test]
fn a_device_that_is_missing_at_the_start_is_used_when_it_is_there() {
    let space = Namespace::new();
    for kind in ["packet", "xdp"] {
        let section = format!("kind = \"{kind}\"\ndevice = \"late\"\nnetns = \"{}\"\n", space.name);
        let mut daemon = start_without(&section, "late");
        space.ok("ip", &["link", "add", "late", "type", "veth", "peer", "name", "far"]);
        space.ok("ip", &["link", "set", "late", "up"]);
        daemon.until_state("p", "up");
        assert!(daemon.stop().success());
        space.ok("ip", &["link", "del", "late"]);
    }
    let warned = check("kind = \"packet\"\ndevice = \"no-such-nic\"\n");
    assert!(warned.contains("c.toml:6:10: warning: key \"port.p.device\": there is no network device"), "{warned}");
}

#[test]
fn a_macvtap_that_is_missing_at_the_start_is_used_when_it_is_there() {
    let space = Namespace::new();
    space.ok("ip", &["link", "add", "x0", "type", "veth", "peer", "name", "x1"]);
    let index = (20_000_000 + std::process::id()).to_string();
    let path = format!("/dev/tap{index}");
    let section = format!("kind = \"packet\"\ndevice = \"{path}\"\nnetns = \"{}\"\n", space.name);
    let warned = check(&section);
    assert!(warned.contains("there is no device /dev/tap"), "{warned}");
    let daemon = start_without(&section, "/dev/tap");
    let make = ["link", "add", "link", "x0", "name", "m0", "index", &index, "type", "macvtap", "mode", "passthru"];
    if space.run("ip", &make).code != Some(0) {
        skip!("the kernel has no macvtap");
    }
    space.ok("ip", &["link", "set", "x0", "up"]);
    space.ok("ip", &["link", "set", "m0", "up"]);
    daemon.until_state("p", "up");
}

#[test]
fn a_folder_that_is_missing_at_the_start_gets_the_socket_when_it_is_there() {
    let dir = directory();
    let folder = dir.path().join("late");
    for kind in ["vhost-user", "stream", "e1000"] {
        let section = format!("kind = \"{kind}\"\nsocket = \"{}/p.sock\"\n", folder.display());
        let warned = check(&section);
        assert!(warned.contains("c.toml:6:10: warning: key \"port.p.socket\": there is no folder"), "{warned}");
        let mut daemon = start_without(&section, "No such file");
        std::fs::create_dir(&folder).unwrap();
        daemon.until_state("p", "waiting");
        assert!(folder.join("p.sock").exists());
        assert!(daemon.stop().success());
        std::fs::remove_dir(&folder).unwrap();
    }
}

#[test]
fn mistakes_alone_end_the_start_with_status_78() {
    let dir = directory();
    let run = |config: &str| -> Said {
        let file = dir.path().join("c.toml");
        std::fs::write(&file, config).unwrap();
        let mut command = ringway();
        command.args(["run", "--runtime-dir"]).arg(dir.path().join("run")).arg("--config").arg(&file);
        command.output().unwrap().into()
    };
    for mistake in ["[switch.lan0", "[port.p]\nswitch = \"lan0\"\nkind = \"tap\"\n"] {
        let said = run(mistake);
        assert!(said.code == Some(78) && said.err.contains("c.toml:"), "{said:?}");
    }
}

#[test]
fn the_unit_starts_ringway_again_but_not_with_a_configuration_that_has_mistakes() {
    let unit =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/ringway.service")).unwrap();
    for line in ["StartLimitIntervalSec=0", "Restart=on-failure", "RestartSec=100ms", "RestartPreventExitStatus=78"] {
        assert!(unit.lines().any(|other| other == line), "{line}");
    }
}

#[test]
fn a_switch_without_its_program_forwards_nothing_until_the_module_is_there() {
    let dir = directory();
    let module = dir.path().join("late.wasm");
    let config = format!(
        "[switch.lan0]\nforwarding = {{ program = \"{}\" }}\n[switch.lan1]\n[port.a]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n",
        module.display()
    );
    let daemon = Daemon::start(&config);
    daemon.complains("ringway.toml:1) drops all frames");
    let program = |daemon: &Daemon| daemon.status()["switches"][0]["program"].clone();
    let state = program(&daemon);
    let detail = state["detail"].as_str().unwrap_or_default();
    assert!(state["state"] == "failed" && detail.contains("late.wasm") && detail.contains("drops all"), "{state}");
    let told = daemon.ringway(&["switch", "tell", "lan0", "close"]);
    for words in
        ["program of switch \"lan0\" is missing: cannot load the program", "late.wasm", "No such file", "switch set"]
    {
        assert!(told.code == Some(2) && told.err.contains(words), "{told:?}");
    }
    assert_eq!(daemon.port("a")["state"], "waiting");
    // Changes of other things go on.
    daemon.ok(&["port", "add", "b", "switch=lan1", "kind=vhost-user"]);
    let mut sender = daemon.attach("lan0:s").expect("a port");
    let _receiver = daemon.attach("lan0:r").expect("a port");
    let mut frame = [0xff; 60];
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    assert!(sender.tx().push(&frame));
    sender.tx().flush();
    until("the frame is dropped", || daemon.port("s")["drops"]["program_fault"] == 1);
    assert_eq!(daemon.port("r")["out"]["frames"], 0);
    let text = r#"(module
        (import "ringway" "frames_at" (func $frames_at (param i32 i32 i32 i32 i32)))
        (memory (export "memory") 2)
        (func (export "ringway_interface") (result i32) i32.const 1)
        (func (export "ringway_start") (result i32)
          (call $frames_at (i32.const 8192) (i32.const 16384) (i32.const 64) (i32.const 4096) (i32.const 256))
          i32.const 0)
        (func (export "ringway_frames") (param i32 i32)))"#;
    let new = dir.path().join("new");
    std::fs::write(&new, wat::parse_str(text).unwrap()).unwrap();
    std::fs::rename(&new, &module).unwrap();
    until("the program runs", || program(&daemon)["state"] == "running");
}

#[test]
fn a_program_that_refused_to_start_without_a_port_is_loaded_by_a_reload() {
    let dir = directory();
    let module = dir.path().join("a.wasm");
    let text = r#"(module
        (import "ringway" "frames_at" (func $frames_at (param i32 i32 i32 i32 i32)))
        (import "ringway" "port_by_name" (func $port_by_name (param i32 i32) (result i32)))
        (memory (export "memory") 2)
        (data (i32.const 0) "late")
        (func (export "ringway_interface") (result i32) i32.const 1)
        (func (export "ringway_start") (result i32)
          (call $frames_at (i32.const 8192) (i32.const 16384) (i32.const 64) (i32.const 4096) (i32.const 256))
          (i32.lt_s (call $port_by_name (i32.const 0) (i32.const 4)) (i32.const 0)))
        (func (export "ringway_frames") (param i32 i32)))"#;
    std::fs::write(&module, wat::parse_str(text).unwrap()).unwrap();
    let config = format!("[switch.lan0]\nforwarding = {{ program = \"{}\" }}\n", module.display());
    let daemon = Daemon::start(&config);
    let program = || daemon.status()["switches"][0]["program"].clone();
    let detail = || program()["detail"].as_str().unwrap_or_default().to_owned();
    until("it has refused", || detail().contains("the program refuses to start"));
    let _late = daemon.attach("lan0:late").expect("a port");
    daemon.ok(&["reload"]);
    until("the program runs", || program()["state"] == "running");
}
