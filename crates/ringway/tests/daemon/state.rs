//! What commands changed is there again after a kill and a restart, can be seen, pasted into the file, and dropped.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ringway_scenes::{Daemon, Said, frame, receive, ringway, send, until};
use ringway_testing::file::directory;
use ringway_testing::{PATIENCE, skip};
use serde_json::{Value, json};

const FILE: &str = "\
[switch.lan0]
[bucket.t]
rate = \"1Gbit\"
[bucket.u]
rate = \"1Gbit\"
[port.a]
switch = \"lan0\"
kind = \"process\"
weight = 2
[port.b]
switch = \"lan0\"
kind = \"process\"
[port.c]
switch = \"lan0\"
kind = \"process\"
";

/// A program of a switch that learns.
const PROGRAM: &str = r#"(module
    (import "ringway" "frames_at" (func $frames_at (param i32 i32 i32 i32 i32)))
    (memory (export "memory") 2)
    (func (export "ringway_interface") (result i32) i32.const 1)
    (func (export "ringway_start") (result i32)
      (call $frames_at (i32.const 8192) (i32.const 16384) (i32.const 64) (i32.const 4096) (i32.const 256))
      i32.const 0)
    (func (export "ringway_frames") (param i32 i32)))"#;

/// What commands changed, as section, name and change.
fn changes(daemon: &Daemon) -> Vec<[String; 3]> {
    let config: Value = serde_json::from_str(&daemon.ok(&["config", "--json"])).unwrap();
    let one = |change: &Value| ["section", "name", "change"].map(|key| change[key].as_str().unwrap().to_owned());
    config["changes"].as_array().unwrap().iter().map(one).collect()
}

fn warnings(daemon: &Daemon) -> Vec<String> {
    let status = daemon.status();
    let one = |warning: &Value| format!("{}: {}", warning["key"].as_str().unwrap(), warning["what"].as_str().unwrap());
    status["warnings"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn what_commands_changed_is_there_again_after_kills_and_restarts_until_it_is_reset() {
    let modules = directory();
    let module = modules.path().join("a.wasm");
    std::fs::write(&module, wat::parse_str(PROGRAM).unwrap()).unwrap();
    let mut daemon = Daemon::start(FILE);
    let before = daemon.ok(&["config"]);
    assert!(!daemon.socket("state.toml").exists(), "nothing is kept of nothing");
    assert_eq!(daemon.ok(&["config", "--changes"]), "# No command has changed what the file says.\n");

    daemon.ok(&["port", "add", "vm1", "switch=lan0", "kind=vhost-user", "mac=52:54:00:00:00:01"]);
    daemon.ok(&["port", "add", "lan9:own", "kind=process"]);
    daemon.ok(&["port", "set", "a", "weight=3", "ingress.rate=1Gbit"]);
    daemon.ok(&["port", "set", "a", "ingress.bucket=t"]);
    daemon.ok(&["port", "set", "c", "mirror=a"]);
    daemon.ok(&["port", "del", "b"]);
    daemon.ok(&["bucket", "set", "t", "rate=2Gbit"]);
    daemon.ok(&["bucket", "set", "new", "rate=3Gbit", "burst=1MiB"]);
    daemon.ok(&["bucket", "del", "u"]);
    let program = format!("forwarding={{program={:?},config=\"x # y\"}}", module.to_str().unwrap());
    daemon.ok(&["switch", "set", "lan0", "ageing=7s", &program]);
    // What comes and goes is no change.
    daemon.ok(&["bucket", "set", "gone", "rate=3Gbit"]);
    daemon.ok(&["bucket", "del", "gone"]);
    // A port of a client is not kept.
    drop(daemon.attach("lan9:client").unwrap());

    let changed = daemon.ok(&["config"]);
    let expected = [
        ["switch", "lan0", "changed"],
        ["switch", "lan9", "added"],
        ["bucket", "new", "added"],
        ["bucket", "t", "changed"],
        ["bucket", "u", "deleted"],
        ["port", "a", "changed"],
        ["port", "b", "deleted"],
        ["port", "c", "changed"],
        ["port", "own", "added"],
        ["port", "vm1", "added"],
    ];
    assert_eq!(changes(&daemon), expected);
    let state = daemon.socket("state.toml");
    assert_eq!(state.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    for kill in [true, true, false] {
        if !kill {
            assert!(daemon.stop().success());
        }
        daemon.replace();
        assert_eq!(daemon.ok(&["config"]), changed);
        assert_eq!(daemon.port("vm1")["state"], "waiting");
        assert_eq!(daemon.port("a")["weight"], 3);
        assert_eq!(daemon.port("b"), Value::Null, "a deleted port stays deleted");
        until("the program runs", || daemon.status()["switches"][0]["program"]["state"] == "running");
        let none: [String; 0] = [];
        assert_eq!(warnings(&daemon), none);
    }
    assert!(daemon.ok(&["config", "reset"]).contains("added port b to switch lan0"));
    assert_eq!(daemon.ok(&["config"]), before);
    assert!(!state.exists(), "nothing is left to keep");
    daemon.replace();
    assert_eq!(daemon.ok(&["config"]), before);
    assert_eq!(daemon.ok(&["config", "reset"]), "nothing differs\n");
}

#[test]
fn a_reset_restores_what_the_file_says_and_disturbs_nobody_else() {
    let daemon = Daemon::start(FILE);
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    daemon.ok(&["port", "set", "b", "weight=9"]);
    daemon.ok(&["port", "add", "lan0:x", "kind=process"]);
    assert_eq!(daemon.ok(&["config", "reset"]), "removed port x, changed port b\n".replace(", ", "\n"));
    assert_eq!((&daemon.port("b")["weight"], &daemon.port("x")), (&json!(1), &Value::Null));
    send(&mut a, &frame([0xff; 6], [2, 0, 0, 0, 0, 1], 1));
    assert_eq!(receive(&mut b, PATIENCE), Some(frame([0xff; 6], [2, 0, 0, 0, 0, 1], 1).to_vec()), "both go on");
}

#[test]
fn the_running_configuration_can_take_the_place_of_the_file() {
    let daemon = Daemon::start(FILE);
    daemon.ok(&["port", "set", "a", "weight=3", "egress={rate=\"1Gbit\"}"]);
    daemon.ok(&["port", "del", "b"]);
    daemon.ok(&["port", "add", "vm1", "switch=lan0", "kind=e1000", "link=down"]);
    daemon.ok(&["switch", "set", "lan0", "forwarding=map"]);
    let plain = |text: String| -> Vec<String> {
        let without_mark = |line: &str| line.split(" # ").next().unwrap().to_owned();
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(without_mark).collect()
    };
    let running = daemon.ok(&["config"]);
    assert!(running.contains("\nweight = 3 # in the file: 2\n"), "{running}");
    assert!(running.contains("\n# [port.b] of the file was deleted by a command\n"), "{running}");
    daemon.ok(&["config", "reset"]);
    daemon.write(&running);
    daemon.ok(&["reload"]);
    let again = daemon.ok(&["config"]);
    assert_eq!(plain(again), plain(running.clone()));
    assert!(changes(&daemon).is_empty());

    // Without a reset in between, the file has what commands changed: neither contradicts the other.
    let daemon = Daemon::start(FILE);
    daemon.ok(&["port", "set", "a", "weight=3"]);
    daemon.ok(&["port", "del", "b"]);
    daemon.write(&daemon.ok(&["config"]));
    assert_eq!(daemon.ok(&["reload"]), "nothing differs\n");
    assert!(changes(&daemon).is_empty() && !daemon.socket("state.toml").exists());
}

#[test]
fn a_reload_says_what_of_the_commands_changes_the_file_contradicts_now() {
    for (conflict, weight, b) in [("file", 5, true), ("runtime", 3, false)] {
        let state = format!("[state]\nconflict = \"{conflict}\"\n");
        let mut daemon = Daemon::start(&format!("{FILE}{state}"));
        daemon.ok(&["port", "set", "a", "weight=3", "isolated=true"]);
        daemon.ok(&["port", "del", "b"]);
        daemon.ok(&["port", "del", "c"]);
        // Other keys, and another port, are no contradiction.
        let edited =
            FILE.replace("weight = 2", "weight = 5\ncoalesce = \"off\"").replace("[port.c]", "[port.c]\nuplink = true");
        daemon.write(&format!("{edited}{state}"));
        let said = daemon.ok(&["reload"]);
        let holds = if conflict == "file" { "the file holds" } else { "the command holds" };
        let tail = format!("{holds} ([state] conflict = \"{conflict}\")\n");
        for told in [
            "port \"a\": weight: a command made it 3, and the file was changed to 5 since: ",
            "port \"c\": a command deleted it, and the file has changed it since: ",
        ] {
            assert!(said.contains(&format!("{told}{tail}")), "{said}");
        }
        assert_eq!(said.matches(holds).count(), 2, "{said}");
        daemon.complains("weight: a command made it 3");
        let running = |daemon: &Daemon| {
            assert_eq!(daemon.port("a")["weight"], weight);
            let config = daemon.ok(&["config"]);
            assert!(
                config.contains("isolated = true # not in the file") && config.contains("coalesce = \"off\"\n"),
                "{config}"
            );
            assert_eq!((daemon.port("b").is_null(), daemon.port("c").is_null()), (true, !b));
        };
        running(&daemon);
        // It is settled: neither another reload nor a start tells it again.
        assert_eq!(daemon.ok(&["reload"]), "nothing differs\n");
        daemon.replace();
        running(&daemon);
        // A file that is edited while the switch is away is told at the start.
        assert!(daemon.stop().success());
        daemon.write(&format!(
            "{}{state}",
            edited.replace(
                "kind = \"process\"\nweight",
                "kind = \"process\"\nisolated = false\nmac = [\"02:00:00:00:00:01\"]\nweight"
            )
        ));
        daemon.replace();
        running(&daemon);
    }
    let mut daemon = Daemon::start(FILE);
    daemon.ok(&["port", "set", "a", "weight=3"]);
    assert!(daemon.stop().success());
    daemon.write(&FILE.replace("weight = 2", "weight = 6"));
    daemon.replace();
    daemon.complains("port \"a\": weight: a command made it 3, and the file was changed to 6 since: the file holds");
    assert_eq!(daemon.port("a")["weight"], 6);
    assert!(changes(&daemon).is_empty() && !daemon.socket("state.toml").exists());
}

#[test]
fn a_state_file_that_cannot_be_used_is_put_aside_and_the_switch_says_what_is_lost() {
    let mut daemon = Daemon::start(FILE);
    let state = daemon.socket("state.toml");
    daemon.ok(&["port", "set", "a", "weight=3"]);
    daemon.ok(&["port", "add", "x", "switch=lan0", "kind=process"]);
    let whole = std::fs::read_to_string(&state).unwrap();
    let cases = [
        (
            whole[..whole.len() - 9].to_owned(),
            "it was cut: it has ",
            "lost is what commands changed before, of port.a, port.x",
        ),
        (
            whole.replace("weight = 3", "weight = 4"),
            "it was altered",
            "lost is what commands changed before, of port.a, port.x",
        ),
        (
            whole.replace("state 1 ", "state 9 "),
            "it is of version 9, and this ringway reads version 1",
            "of port.a, port.x",
        ),
        ("rubbish\n".to_owned(), "it does not begin like a state file", "what commands changed before is lost"),
        (String::new(), "it does not begin like a state file", "what commands changed before is lost"),
    ];
    for (number, (text, why, lost)) in cases.into_iter().enumerate() {
        assert!(daemon.stop().success());
        std::fs::write(&state, &text).unwrap();
        daemon.replace();
        let aside = match number {
            0 => daemon.socket("state.toml.refused"),
            _ => daemon.socket(&format!("state.toml.refused.{}", number + 1)),
        };
        let said = daemon.complaint();
        for words in [
            &format!("state file {} cannot be used: {why}", state.display()),
            lost,
            &format!("it is {} now", aside.display()),
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(warnings(&daemon)[0].starts_with("state.file: state file ") && warnings(&daemon)[0].contains(lost));
        assert_eq!(std::fs::read_to_string(&aside).unwrap(), text);
        assert_eq!((&daemon.port("a")["weight"], daemon.port("x").is_null(), state.exists()), (&json!(2), true, false));
    }
    // The switch keeps what comes afterwards.
    daemon.ok(&["port", "set", "a", "weight=7"]);
    assert_eq!(warnings(&daemon).len(), 1);
    daemon.replace();
    assert_eq!((&daemon.port("a")["weight"], warnings(&daemon).len()), (&json!(7), 0));
    // A file that others can write to decides nothing.
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o666)).unwrap();
    daemon.replace();
    daemon.complains("others can write to it (mode 0666)");
    assert_eq!(daemon.port("a")["weight"], 2);
    daemon.ok(&["config", "reset"]);
    assert!(warnings(&daemon).is_empty(), "a reset ends the warning");
}

#[test]
fn what_cannot_be_in_force_any_more_is_named_kept_and_used_when_it_can_be() {
    let with_lan1 = format!("[switch.lan1]\n{FILE}");
    let mut daemon = Daemon::start(&with_lan1);
    daemon.ok(&["port", "add", "x", "switch=lan1", "kind=process"]);
    daemon.ok(&["port", "set", "a", "weight=3"]);
    assert!(daemon.stop().success());
    daemon.write(FILE);
    for _ in 0..2 {
        daemon.replace();
        daemon.complains(
            "port \"x\": a command added it, which is not in force any more: key \"port.x.switch\": there is no switch",
        );
        assert_eq!((&daemon.port("a")["weight"], daemon.port("x").is_null()), (&json!(3), true));
        assert!(
            warnings(&daemon)[0].starts_with("port.x: a command added it, which is not in force: "),
            "{:?}",
            warnings(&daemon)
        );
        assert!(daemon.ok(&["config"]).contains("# not in force: a command added [port.x]"));
        assert_eq!(changes(&daemon), [["port", "a", "changed"], ["port", "x", "added"]]);
    }
    daemon.write(&with_lan1);
    assert_eq!(daemon.ok(&["reload"]), "added switch lan1\nadded port x to switch lan1\n");
    assert!(warnings(&daemon).is_empty());
    // A reload that takes the switch away says so, and goes on.
    daemon.write(FILE);
    let said = daemon.ok(&["reload"]);
    assert!(
        said.contains(
            "removed port x\nremoved switch lan1\nport \"x\": a command added it, which is not in force any more"
        ),
        "{said}"
    );
    assert_eq!(
        daemon.ok(&["config", "reset"]),
        "changed port a\ndropped what a command added and was not in force: port \"x\"\n"
    );
    daemon.write(&with_lan1);
    assert_eq!(daemon.ok(&["reload"]), "added switch lan1\n");
}

#[test]
fn a_state_file_of_its_own_outlasts_the_runtime_directory_and_has_one_daemon() {
    let place = directory();
    let state = place.path().join("state.toml");
    let config = format!("{FILE}[state]\nfile = \"{}\"\n", state.display());
    // What was kept in the runtime directory goes with it.
    let mut daemon = Daemon::start(FILE);
    daemon.ok(&["port", "set", "a", "weight=3"]);
    daemon.write(&config);
    assert_eq!(daemon.ok(&["reload"]), "changed state, whose file is another one from the next start on\n");
    daemon.ok(&["port", "set", "a", "weight=4"]);
    assert!(daemon.socket("state.toml").exists() && !state.exists());
    daemon.replace();
    assert_eq!(daemon.port("a")["weight"], 4);
    assert!(!daemon.socket("state.toml").exists() && state.exists());

    let other = directory();
    std::fs::write(other.path().join("ringway.toml"), &config).unwrap();
    let run = |dir: &Path| -> Said {
        let mut command = ringway();
        command.arg("run").arg("--config").arg(dir.join("ringway.toml")).arg("--runtime-dir").arg(dir.join("run"));
        command.output().unwrap().into()
    };
    let said = run(other.path());
    assert!(said.err.contains(&format!("another ringway daemon uses the state file {}", state.display())), "{said:?}");
    assert!(daemon.stop().success());
    let mut other = Daemon::start_in(other, &[]);
    assert_eq!(other.port("a")["weight"], 4);
    assert!(other.stop().success());
}

#[test]
fn a_full_disk_refuses_no_command_and_is_told_until_there_is_room() {
    if !rustix::process::geteuid().is_root() {
        skip!("needs root, to mount");
    }
    let place = directory();
    let dir = place.path().display().to_string();
    let mount = format!("mount -t tmpfs -o size=8k none {dir} && exec \"$@\"");
    let config = format!("{FILE}[state]\nfile = \"{dir}/state.toml\"\n");
    let daemon = Daemon::start_by(&["unshare", "--mount", "sh", "-c", &mount, "sh"], &config);
    daemon.ok(&["port", "set", "a", "weight=3"]);
    // The daemon's own view of the folder.
    let inside = Path::new("/proc").join(daemon.pid().to_string()).join("root").join(&dir[1..]);
    let state = inside.join("state.toml");
    let kept = std::fs::read_to_string(&state).unwrap();
    assert!(kept.contains("weight = 3"), "{kept}");
    let filler = inside.join("filler");
    std::fs::write(&filler, [0; 4096]).unwrap();
    let said = daemon.ok(&["port", "set", "a", "weight=4"]);
    let why = format!("cannot write {dir}/state.toml: No space left on device");
    assert!(
        said.starts_with(&format!("changed port a\nwarning: this is lost if the switch ends now: {why}")),
        "{said}"
    );
    assert_eq!(daemon.port("a")["weight"], 4);
    daemon.complains(&format!("what commands changed is lost if the switch ends now: {why}"));
    assert!(warnings(&daemon)[0].contains(&why), "{:?}", warnings(&daemon));
    assert_eq!(std::fs::read_to_string(&state).unwrap(), kept, "what was written before is still whole");
    std::fs::remove_file(filler).unwrap();
    until("it is written", || std::fs::read_to_string(&state).unwrap().contains("weight = 4"));
    until("the warning ends", || warnings(&daemon).is_empty());
    assert_eq!(daemon.ok(&["port", "set", "a", "weight=5"]), "changed port a\n");
}

#[test]
fn mistakes_in_the_section_state_are_told_with_what_would_be_right() {
    let dir = directory();
    let file = dir.path().join("c.toml");
    for (section, wanted) in [
        ("[state]\nfil = \"/x\"\n", "c.toml:2:1: key \"state.fil\": unknown key; did you mean \"file\"?"),
        (
            "[state]\nfile = \"x.toml\"\n",
            "c.toml:2:8: key \"state.file\": \"x.toml\" is not the absolute path of a file; write one like",
        ),
        ("[state]\nfile = \"/var/\"\n", "key \"state.file\": \"/var/\" is not the absolute path of a file"),
        (
            "[state]\nconflict = \"runtme\"\n",
            "c.toml:2:12: key \"state.conflict\": unknown value \"runtme\"; did you mean \"runtime\"?",
        ),
        ("[stat]\n", "did you mean \"state\"?"),
    ] {
        std::fs::write(&file, section).unwrap();
        let said: Said = ringway().args(["run", "--check", "--config"]).arg(&file).output().unwrap().into();
        assert!(said.code == Some(78) && said.err.contains(wanted), "{wanted}: {said:?}");
    }
}

#[test]
fn a_script_may_add_a_port_again_that_was_kept_and_no_other_configuration_gets_it() {
    let mut daemon = Daemon::start(FILE);
    let add = ["port", "add", "vm1", "switch=lan0", "kind=process", "weight=5"];
    daemon.ok(&add);
    assert_eq!(daemon.ringway(&add).code, Some(2), "it is there already");
    daemon.replace();
    daemon.ok(&add);
    let other = daemon.ringway(&["port", "add", "vm1", "switch=lan0", "kind=process", "weight=6"]);
    assert!(other.code == Some(2) && other.err.contains("exists already"), "{other:?}");
    assert_eq!(daemon.port("vm1")["weight"], 5);

    let place = directory();
    std::fs::create_dir_all(place.path().join("run")).unwrap();
    std::fs::copy(daemon.socket("state.toml"), place.path().join("run/state.toml")).unwrap();
    std::fs::write(place.path().join("ringway.toml"), FILE).unwrap();
    let other = Daemon::start_in(place, &[]);
    assert!(changes(&other).is_empty());
    let said = warnings(&other);
    assert!(
        said.len() == 1 && said[0].contains("cannot be used: it is of \"") && said[0].contains(".refused"),
        "{said:?}"
    );
}

#[test]
fn a_reload_takes_nothing_away_that_commands_were_allowed() {
    let mut daemon = Daemon::start(FILE);
    // A port that names one of a client's.
    let wire = daemon.attach("lan0:wire").unwrap();
    daemon.ok(&["port", "set", "lan0:wire", "uplink=true"]);
    daemon.ok(&["port", "add", "vm1", "switch=lan0", "kind=process", "uplinks=wire"]);
    // A rate that has become one of bits: the burst of frames went with the other one.
    daemon.ok(&["port", "add", "vm2", "switch=lan0", "kind=process", "storm.broadcast=1kpps", "storm.frames_burst=50"]);
    daemon.ok(&["port", "set", "vm2", "storm.broadcast=10Mbit"]);
    assert_eq!(daemon.ok(&["reload"]), "nothing differs\n");
    assert!(daemon.status()["warnings"].as_array().unwrap().is_empty());
    daemon.port("vm1");
    drop(wire);
    daemon.replace();
    daemon.port("vm2");
}

#[test]
fn a_state_file_in_the_runtime_directory_by_another_path_is_the_same_one() {
    let place = directory();
    std::fs::create_dir_all(place.path().join("run")).unwrap();
    let link = place.path().join("link");
    std::os::unix::fs::symlink(place.path().join("run"), &link).unwrap();
    let config = format!("{FILE}[state]\nfile = \"{}\"\n", link.join("state.toml").display());
    std::fs::write(place.path().join("ringway.toml"), config).unwrap();
    let mut daemon = Daemon::start_in(place, &[]);
    daemon.ok(&["port", "set", "a", "weight=7"]);
    assert!(daemon.socket("state.toml").exists());
    daemon.replace();
    assert_eq!(daemon.port("a")["weight"], 7);
}
