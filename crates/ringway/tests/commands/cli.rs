//! The command's texts and exit codes, without a daemon.

use std::process::Stdio;

use ringway_scenes::{Said, ringway};

fn run(args: &[&str]) -> Said {
    let dir = tempfile::tempdir().unwrap();
    ringway().arg("--runtime-dir").arg(dir.path()).args(args).output().unwrap().into()
}

#[test]
fn every_subcommand_explains_itself_with_an_example() {
    for command in [
        &["run"][..],
        &["status"],
        &["port"],
        &["port", "add"],
        &["port", "set"],
        &["port", "del"],
        &["port", "list"],
        &["bucket"],
        &["bucket", "set"],
        &["bucket", "del"],
        &["bucket", "list"],
        &["switch"],
        &["switch", "set"],
        &["switch", "list"],
        &["fdb"],
        &["capture"],
        &["top"],
        &["program"],
        &["program", "new"],
        &["program", "check"],
        &["program", "run"],
        &["gen"],
        &["bench"],
        &["demo"],
        &["completions"],
    ] {
        let said = run(&[command, &["--help"]].concat());
        assert_eq!(said.code, Some(0), "{command:?}");
        assert!(said.out.contains("Example"), "{command:?} --help shows no example:\n{}", said.out);
        assert!(said.out.contains("--runtime-dir"), "{command:?}");
    }
}

#[test]
fn without_a_daemon_commands_say_how_to_start_one() {
    for command in [
        &["status"][..],
        &["top"],
        &["capture", "p", "-w", "/dev/null"],
        &["port", "list"],
        &["port", "del", "p"],
        &["fdb"],
        &["port", "set", "p", "weight=1"],
        &["bucket", "set", "b", "rate=1Gbit"],
        &["switch", "set", "s", "local=drop"],
        &["bucket", "list"],
        &["switch", "list"],
    ] {
        let said = run(command);
        assert_eq!(said.code, Some(1), "{command:?}");
        assert!(said.err.contains("control.sock: start one with \"ringway run\""), "{}", said.err);
    }
}

#[test]
fn mistakes_in_a_command_exit_2_and_name_the_key() {
    for (args, wanted) in [
        (&["port", "add", "p", "weight=65"][..], "port add: key \"weight\": 65 is out of range"),
        (&["port", "add", "p", "wieght=6"], "port add: key \"wieght\": unknown key; did you mean \"weight\"?"),
        (&["port", "set", "p", "weight"], "port set: \"weight\" is not KEY=VALUE"),
        (&["port", "set", "p", "weight=1", "weight=2"], "port set: key \"weight\": given twice"),
        (&["port", "set", "p", "isolated=maybe"], "port set: key \"isolated\": expected true or false"),
        (&["port", "add", "p", "kind=vxlan"], "port add: key \"kind\": \"vxlan\" is not available in this version"),
        (&["port", "add", "p", "kind=vhost-user", "queues=9"], "port add: key \"queues\": 9 is out of range"),
        (&["port", "add", "p", "socket=../p.sock"], "port add: key \"socket\": \"../p.sock\" is not a socket's path"),
        (&["port", "set", "p", "call_above=fast"], "port set: key \"call_above\": \"fast\" is not a rate of frames"),
        (&["port", "set", "p", "poller=none"], "port set: key \"poller\": expected a poller's number or \"any\""),
        (&["port", "add", "p", "mac=52:54"], "port add: key \"mac\": \"52:54\" is not an Ethernet address"),
        (&["port", "add", "p", "mac=[52:54]"], "port add: key \"mac\": \"[52:54]\" cannot be read: did the shell take"),
        (&["port", "add", "a/b", "kind=tap"], "port add: \"a/b\" is not a name"),
        (&["port", "del", "a b"], "port del: \"a b\" is not a name"),
        (&["bucket", "set", "b", "rate"], "bucket set: \"rate\" is not KEY=VALUE"),
        (&["switch", "set", "a/b", "local=drop"], "switch set: \"a/b\" is not a name"),
        (&["fdb", "a/b"], "fdb: \"a/b\" is not a name"),
        (&["stauts"], "similar subcommand exists: 'status'"),
        (&["port", "add", "p"], "required arguments"),
    ] {
        let said = run(args);
        assert_eq!(said.code, Some(2), "{args:?}: {}", said.err);
        assert!(said.err.contains(wanted), "{args:?}: {}", said.err);
    }
}

#[test]
fn mistakes_in_a_configuration_exit_78_with_file_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.toml");
    std::fs::write(&file, "[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"tpa\"\nweight = 0\n").unwrap();
    let path = file.to_str().unwrap();
    for args in [&["run", "--config", path][..], &["run", "--check", "--config", path]] {
        let said = run(args);
        assert_eq!(said.code, Some(78));
        assert!(said.err.contains(&format!("{path}:4:8: key \"port.p.kind\": unknown value \"tpa\"")), "{}", said.err);
        assert!(said.err.contains("did you mean \"tap\"?"), "{}", said.err);
        assert!(said.err.contains(&format!("{path}:5:10: key \"port.p.weight\": 0 is out of range")), "{}", said.err);
        assert_eq!(said.out, "");
    }
    let said = run(&["run", "--config", "/nonexistent.toml"]);
    assert_eq!(said.code, Some(78));
    assert!(said.err.contains("cannot read /nonexistent.toml: No such file"), "{}", said.err);
}

#[test]
fn check_accepts_a_good_configuration_and_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("good.toml");
    std::fs::write(&file, "[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n").unwrap();
    let said = run(&["run", "--check", "--config", file.to_str().unwrap()]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "valid: 1 switches, 1 ports\n"));
}

#[test]
fn a_socket_is_checked_in_the_runtime_directory_that_the_daemon_will_have() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.toml");
    std::fs::write(&file, "[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n").unwrap();
    let check = |run: &str| -> Said {
        ringway().args(["run", "--check", "--runtime-dir", run, "--config"]).arg(&file).output().unwrap().into()
    };
    let long = format!("/{}", "x".repeat(100));
    assert_eq!(check(&long[..100]).code, Some(0));
    let said = check(&long);
    assert_eq!(said.code, Some(78));
    let wanted = format!("r.toml:2:7: key \"port.p.socket\": {long}/p.sock has 108 bytes");
    assert!(said.err.contains(&wanted), "{}", said.err);
}

#[test]
fn a_reader_that_went_away_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("good.toml");
    std::fs::write(&file, "").unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = ringway();
    command.args(["run", "--check", "--config"]).arg(&file).stdout(writer).stderr(Stdio::piped());
    let said: Said = command.output().unwrap().into();
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
}
