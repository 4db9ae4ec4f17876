//! Owner, group and mode of the sockets that a daemon makes, and who can connect to them.

use std::fs::{Permissions, metadata, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use ringway_scenes::{Daemon, until};
use ringway_testing::file::directory;
use ringway_testing::skip;

/// Numbers that need not have a name.
const USER: u32 = 65534;
const GROUP: u32 = 7;
const OTHER: u32 = 8;

/// User, group and mode of a file.
fn about(path: &Path) -> (u32, u32, u32) {
    let about = metadata(path).unwrap();
    (about.uid(), about.gid(), about.mode() & 0o777)
}

fn port(name: &str, kind: &str, keys: &str) -> String {
    format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"{kind}\"\n{keys}\n")
}

#[test]
fn modes_are_those_of_the_port_or_of_all_ports_and_hold_for_sockets_made_from_then_on() {
    let ports = |b: &str| {
        ["[switch.lan0]\n".to_owned(), port("a", "vhost-user", ""), port("b", "e1000", b), port("c", "stream", "")]
            .concat()
    };
    let all = "[sockets]\nmode = \"0606\"\ncontrol = { mode = \"0640\" }\nattach = { mode = \"0622\" }\n";
    let daemon = Daemon::start(&format!("{all}{}", ports("access = { mode = \"0660\" }")));
    let modes = || ["a", "b", "c", "control", "attach"].map(|name| about(&daemon.socket(&format!("{name}.sock"))).2);
    assert_eq!(modes(), [0o606, 0o660, 0o606, 0o640, 0o622]);
    let before = metadata(daemon.socket("a.sock")).unwrap().ino();

    daemon.reload(&format!("[sockets]\nmode = \"0600\"\n{}", ports("")));
    let remade = || metadata(daemon.socket("b.sock")).is_ok_and(|about| about.mode() & 0o777 == 0o600);
    until("the port has the mode of all ports", remade);
    assert_eq!(modes(), [0o606, 0o600, 0o606, 0o640, 0o622]);
    assert_eq!(metadata(daemon.socket("a.sock")).unwrap().ino(), before, "a port that need not go keeps its socket");
    daemon.ok(&["port", "add", "d", "switch=lan0", "kind=stream"]);
    daemon.ok(&["port", "add", "e", "switch=lan0", "kind=stream", "access.mode=0666"]);
    assert_eq!(["d.sock", "e.sock"].map(|name| about(&daemon.socket(name)).2), [0o600, 0o666]);
    let said = daemon.ringway(&["port", "set", "e", "access.mode=0600"]);
    assert!(said.err.contains("cannot change while the port exists"), "{}", said.err);
    let said = daemon.ringway(&["port", "add", "f", "switch=lan0", "kind=stream", "access.group=nobody-at-all"]);
    assert!(said.err.contains("there is no group \"nobody-at-all\" in /etc/group"), "{}", said.err);
}

#[test]
fn another_user_connects_where_the_socket_is_given_to_its_group() {
    if !rustix::process::geteuid().is_root() {
        skip!("needs root, to give files away");
    }
    let config = [
        format!(
            "[sockets]\ngroup = \"{GROUP}\"\n[sockets.attach]\nowner = \"{USER}\"\n[sockets.control]\ngroup = \"{OTHER}\"\n"
        ),
        "[switch.lan0]\n".to_owned(),
        port("mine", "vhost-user", ""),
        port("owned", "stream", &format!("access = {{ owner = \"{USER}\", mode = \"0600\" }}")),
        port("theirs", "e1000", &format!("access = {{ group = \"{OTHER}\" }}")),
        port("closed", "stream", "access = { mode = \"0600\" }"),
    ];
    let mut daemon = Daemon::start(&config.concat());
    let as_they_should_be = |daemon: &Daemon| {
        let here = |name: &str| about(&daemon.socket(name));
        assert_eq!(here("mine.sock"), (0, GROUP, 0o660));
        assert_eq!(here("owned.sock"), (USER, GROUP, 0o600));
        assert_eq!(here("theirs.sock"), (0, OTHER, 0o660));
        assert_eq!(here("closed.sock"), (0, GROUP, 0o600));
        assert_eq!(here("attach.sock"), (USER, 0, 0o600));
        assert_eq!(here("control.sock"), (0, OTHER, 0o660));
    };
    as_they_should_be(&daemon);

    // Only who may enter the folders can connect.
    set_permissions(daemon.runtime_dir(), Permissions::from_mode(0o711)).unwrap();
    set_permissions(daemon.runtime_dir().parent().unwrap(), Permissions::from_mode(0o711)).unwrap();
    let connects = |name: &str| {
        let connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
        let mut python = Command::new("/usr/bin/python3");
        let said = python
            .args(["-Ic", connect])
            .arg(daemon.socket(name))
            .current_dir("/")
            .uid(USER)
            .gid(GROUP)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.status.success() || error.contains("PermissionError"), "{error}");
        said.status.success()
    };
    let names = ["mine.sock", "owned.sock", "theirs.sock", "closed.sock", "control.sock"];
    assert_eq!(names.map(connects), [true, true, false, false, false]);

    // Also after a daemon that was killed: its sockets still belong to others.
    daemon.replace();
    as_they_should_be(&daemon);
}

#[test]
fn sockets_that_somebody_removed_are_made_again() {
    let ports = [port("a", "vhost-user", ""), port("b", "e1000", ""), port("peer", "stream", "role = \"client\"")];
    let daemon = Daemon::start(&format!("[sockets]\nmode = \"0640\"\n[switch.lan0]\n{}", ports.concat()));
    let client = daemon.attach("lan0:client").unwrap();
    for name in ["control.sock", "attach.sock"] {
        std::fs::remove_file(daemon.socket(name)).unwrap();
        until("it is there again", || daemon.socket(name).exists());
        assert_eq!(about(&daemon.socket(name)).2, 0o600);
        daemon.complains(&format!("{name} was removed: it is made again"));
    }
    let second = daemon.attach("lan0:second").unwrap();
    assert_eq!(["client", "second"].map(|name| daemon.port(name)["state"].clone()), ["up", "up"]);
    drop((client, second));
    // The port that waits, and not the one with a front end.
    let front_end = std::os::unix::net::UnixStream::connect(daemon.socket("b.sock")).unwrap();
    daemon.until_state("b", "connected");
    ["a.sock", "b.sock"].into_iter().for_each(|name| std::fs::remove_file(daemon.socket(name)).unwrap());
    assert_eq!(daemon.ok(&["reload"]), "opened port a again, whose socket was removed\n");
    assert_eq!((about(&daemon.socket("a.sock")).2, daemon.socket("b.sock").exists()), (0o640, false));
    assert_eq!(daemon.port("b")["state"], "connected");
    drop(front_end);
    daemon.until_state("b", "waiting");
    assert_eq!(daemon.ok(&["reload"]), "opened port b again, whose socket was removed\n");
    assert_eq!(daemon.ok(&["reload"]), "nothing differs\n");
}

#[test]
fn a_reload_says_of_a_removed_socket_that_it_cannot_be_made_again() {
    let dir = directory();
    let folder = dir.path().join("sockets");
    std::fs::create_dir(&folder).unwrap();
    let kinds = ["vhost-user", "e1000", "stream"];
    let ports = kinds.map(|kind| port(&kind[..5], kind, &format!("socket = \"{}/{kind}\"", folder.display())));
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", ports.concat()));
    std::fs::remove_dir_all(&folder).unwrap();
    let said = daemon.ok(&["reload"]);
    assert_eq!(said.lines().count(), 3, "{said}");
    for line in said.lines() {
        let is_told =
            ["whose socket was removed, cannot be opened again: ", "No such file", "tried again every second"];
        assert!(is_told.iter().all(|words| line.contains(words)), "{said}");
    }
    std::fs::create_dir(&folder).unwrap();
    kinds.iter().for_each(|kind| daemon.until_state(&kind[..5], "waiting"));
}

#[test]
fn a_refused_exchange_of_sockets_gives_them_back_and_names_the_connections_that_it_ended() {
    let dir = directory();
    let socket = |number: u32| format!("socket = \"{}/{number}\"", dir.path().display());
    let config = |names: [&str; 3], kind: &str| {
        let ports = names.iter().zip(1..).map(|(name, number)| port(name, kind, &socket(number)));
        format!("[switch.lan0]\n{}", ports.collect::<String>())
    };
    let daemon = Daemon::start(&config(["a", "b", "c"], "vhost-user"));
    for _ in 0..8 {
        let _front_end = std::os::unix::net::UnixStream::connect(dir.path().join("1")).unwrap();
        daemon.until_state("a", "connected");
        // The last new port cannot have its socket.
        std::fs::remove_file(dir.path().join("3")).unwrap();
        std::fs::write(dir.path().join("3"), "").unwrap();
        daemon.write(&config(["d", "e", "f"], "e1000"));
        let said = daemon.ringway(&["reload"]);
        assert!(said.code == Some(1) && said.err.contains("exists and is not a socket"), "{said:?}");
        assert!(said.err.contains("the connection of port a was ended for that"), "{said:?}");
        assert!(!said.err.contains("of port b "), "nobody was connected: {said:?}");
        assert!(said.err.contains("port c has closed its socket for that, and cannot be opened again"), "{said:?}");
        assert_eq!(said.err.matches("cannot be opened again").count(), 1, "{said:?}");
        std::fs::remove_file(dir.path().join("3")).unwrap();
        ["a", "b", "c"].iter().for_each(|name| daemon.until_state(name, "waiting"));
    }
}
