//! The keeper starts another switch when one dies, and what it holds for it stays.

use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Output};

use ringway_scenes::namespace::{Lan, Namespace};
use ringway_scenes::{Daemon, Said, ringway, until};
use ringway_testing::child::{self, children, is_running, thread_states};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, recvmsg, socket_with, sockopt,
};
use rustix::process::{Signal, kill_process};

const CONFIG: &str = "[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\n\
                      [port.vm]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n";

/// Ends the switch by a signal, and does something before the keeper can start another one.
fn while_dead<T>(daemon: &Daemon, by: Signal, meanwhile: impl FnOnce() -> T) -> T {
    let (keeper, switch) = (daemon.keeper(), daemon.pid());
    child::signal(keeper, Signal::STOP);
    until("the keeper has stopped", || thread_states(keeper).iter().all(|state| *state == 'T'));
    child::signal(switch, by);
    // It cannot be waited for: its parent has stopped.
    until("the switch is dead", || !is_running(switch));
    let done = meanwhile();
    child::signal(keeper, Signal::CONT);
    done
}

/// The processes of a daemon with this runtime directory.
fn processes(runtime_dir: &Path) -> Vec<String> {
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let command = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&command).replace('\0', " "))
    };
    let all = std::fs::read_dir("/proc").expect("processes").filter_map(of);
    all.filter(|command| command.contains(" run ") && command.contains(runtime_dir.to_str().unwrap())).collect()
}

/// Ends the daemon, which was told to end, and looks whether it leaves something.
fn ends_in_order(mut daemon: Daemon) {
    assert_eq!(daemon.stop().code(), Some(0));
    // The keeper waits for some no longer than two seconds.
    until("all of its processes have ended", || processes(&daemon.runtime_dir()).is_empty());
    let mut left = daemon.left();
    left.retain(|name| name.ends_with(".sock") && !name.starts_with('.'));
    assert_eq!(left, Vec::<String>::new(), "sockets");
}

#[test]
fn a_switch_that_dies_is_replaced_and_who_connects_meanwhile_waits() {
    let daemon = Daemon::start(CONFIG);
    for by in [Signal::KILL, Signal::SEGV, Signal::ABORT] {
        let before = daemon.pid();
        let (mut asks, attaches) = while_dead(&daemon, by, || {
            let mut control = UnixStream::connect(daemon.socket("control.sock")).expect("it is not refused");
            control.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
            let attach = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            connect(&attach, &SocketAddrUnix::new(daemon.socket("attach.sock")).unwrap()).expect("it is not refused");
            (control, attach)
        });
        daemon.complains(&format!("the switch died (signal {})", by.as_raw()));
        let mut answer = String::new();
        asks.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_ne!(daemon.pid(), before);
        drop(attaches);
        drop(daemon.attach("lan0:a").expect("the port is there"));
        daemon.until_state("vm", "waiting");
    }
    ends_in_order(daemon);
}

#[test]
fn a_switch_that_ends_by_itself_is_replaced_as_long_as_nobody_ends_the_daemon() {
    let daemon = Daemon::start(CONFIG);
    let before = daemon.pid();
    // It ends in order, as a client that has it in its hands could have it do.
    child::signal(before, Signal::TERM);
    daemon.complains("the switch died (status 0)");
    daemon.complains("another switch serves");
    daemon.until_state("vm", "waiting");
    assert_ne!(daemon.pid(), before);
    ends_in_order(daemon);
}

#[test]
fn a_switch_that_was_started_ahead_takes_the_place_of_a_dead_one() {
    let daemon = Daemon::start(CONFIG);
    // The keeper may not have heard of it yet when the other one is killed.
    until("the one that waits is the next one", || {
        let waits = daemon.waiting();
        daemon.kill_switch() == waits
    });
    daemon.until_state("vm", "waiting");
    drop(daemon.attach("lan0:a").expect("it serves"));
    // The death of the switch that waits does no harm.
    let _ = daemon.waiting();
    for ahead in children(daemon.keeper(), "ringway-next") {
        // The keeper may have ended it meanwhile.
        let _ = kill_process(child::pid(ahead), Signal::KILL);
    }
    daemon.kill_switch();
    drop(daemon.attach("lan0:a").expect("it serves"));
    ends_in_order(daemon);
}

#[test]
fn a_tap_device_keeps_its_address_route_and_link_and_goes_with_its_port() {
    let mut lan = Lan::new(2);
    let [a, b] = &lan.spaces[..] else { unreachable!() };
    // What an administrator has set since.
    a.ok("ip", &["link", "set", "t1", "mtu", "1400", "address", "02:00:00:00:00:77"]);
    a.ok("ip", &["route", "add", "10.99.0.0/24", "via", "10.77.0.2"]);
    b.ok("ip", &["link", "set", "t2", "alias", "ours"]);
    let look = |space: &Namespace| ["addr", "route", "link"].map(|what| space.ok("ip", &["-o", what, "show"]));
    let pings = a.start("ping", &["-i", "0.01", "10.77.0.2"], "icmp_seq=");
    let before = [look(a), look(b)];
    for round in 0..3 {
        if round > 0 {
            lan.daemon.ok(&["upgrade", "--keeper"]);
        }
        lan.daemon.kill_switch();
        let answered = a.snmp("Icmp", "InEchoReps");
        until("pings go on", || a.snmp("Icmp", "InEchoReps") > answered + 20);
        assert_eq!([look(a), look(b)], before);
    }
    drop(pings);
    lan.daemon.ok(&["port", "del", "t1"]);
    assert!(!a.has_device("t1") && b.has_device("t2"));
    assert!(lan.daemon.stop().success());
    assert!(!b.has_device("t2"));
}

#[test]
fn a_tap_device_whose_namespace_was_replaced_while_the_switch_was_dead_is_made_anew() {
    let lan = Lan::new(1);
    let space = &lan.spaces[0];
    let namespace = |what| assert!(Command::new("ip").args(["netns", what, &space.name]).status().unwrap().success());
    while_dead(&lan.daemon, Signal::KILL, || ["del", "add"].into_iter().for_each(namespace));
    lan.daemon.until_state("t1", "up");
    let shown = space.ok("ip", &["addr", "show", "dev", "t1"]);
    assert!(shown.contains(",UP") && !shown.contains("10.77.0.1"), "{shown}");
}

#[test]
fn what_commands_changed_is_there_after_a_kill() {
    let daemon = Daemon::start(CONFIG);
    daemon.ok(&["port", "add", "b", "switch=lan0", "kind=vhost-user"]);
    daemon.ok(&["port", "set", "a", "weight=7"]);
    daemon.ok(&["port", "del", "vm"]);
    daemon.kill_switch();
    assert_eq!(daemon.port("a")["weight"], 7);
    daemon.until_state("b", "waiting");
    assert!(daemon.port("vm").is_null() && !daemon.socket("vm.sock").exists());
}

#[test]
fn a_reload_that_nobody_hears_is_not_lost() {
    let daemon = Daemon::start(CONFIG);
    while_dead(&daemon, Signal::KILL, || daemon.reload(&CONFIG.replace("port.vm", "port.other")));
    daemon.until_state("other", "waiting");
    assert!(daemon.port("vm").is_null());
}

#[test]
fn after_twenty_kills_in_a_row_everything_is_there() {
    let daemon = Daemon::start(CONFIG);
    daemon.ok(&["port", "add", "b", "switch=lan0", "kind=process", "weight=3"]);
    let record = || std::fs::metadata(daemon.socket(".inflight-vm.sock")).expect("of a vhost-user port").ino();
    let (mut last, recorded) = (daemon.pid(), record());
    for _ in 0..20 {
        let next = daemon.kill_switch();
        assert_ne!(next, last);
        assert_eq!(record(), recorded, "what is in flight is known");
        last = next;
    }
    let status = daemon.status();
    let ports: Vec<_> =
        status["ports"].as_array().unwrap().iter().map(|port| (&port["name"], &port["state"])).collect();
    assert_eq!(serde_json::json!(ports), serde_json::json!([["a", "waiting"], ["b", "waiting"], ["vm", "waiting"]]));
    assert_eq!(status["faults"], serde_json::json!([]));
    assert_eq!(daemon.port("b")["weight"], 3);
    drop(daemon.attach("lan0:b").expect("it serves"));
    // The keeper of another version has it all, too.
    daemon.ok(&["upgrade", "--keeper"]);
    assert_eq!(daemon.pid(), last);
    assert_ne!(daemon.kill_switch(), last);
    assert_eq!(daemon.port("b")["weight"], 3);
    ends_in_order(daemon);
}

#[test]
fn whoever_ends_the_daemon_right_after_a_kill_leaves_nothing() {
    let daemon = Daemon::start(CONFIG);
    // The keeper learns of both at once.
    while_dead(&daemon, Signal::KILL, || daemon.signal(Signal::TERM));
    ends_in_order(daemon);
}

#[test]
fn whoever_ends_the_daemon_between_two_switches_leaves_nothing() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let pause = |line: &str| line.split_once("is started in ")?.1.strip_suffix(" ms")?.parse::<u64>().ok();
    let mut died = String::new();
    // The pauses become longer and longer while no switch lives for a second.
    while pause(&died) < Some(600) {
        child::signal(daemon.pid(), Signal::KILL);
        loop {
            died = daemon.complaint();
            if died.contains("the switch died") {
                break;
            }
        }
    }
    ends_in_order(daemon);
}

#[test]
fn a_first_start_that_fails_says_why_once_and_is_not_tried_again() {
    let daemon = Daemon::start(CONFIG);
    let run = |config: &str| -> Said {
        let dir = ringway_testing::file::directory();
        std::fs::write(dir.path().join("c.toml"), config).unwrap();
        let mut command = ringway();
        command.arg("--runtime-dir").arg(daemon.runtime_dir()).args(["run", "--config"]).arg(dir.path().join("c.toml"));
        Output::into(command.output().unwrap())
    };
    let taken = run("[switch.lan0]\n");
    assert!(taken.code == Some(1) && taken.err.contains("a ringway daemon is already running"), "{taken:?}");
    let mistaken = run("[switch.lan0\n");
    assert!(mistaken.code == Some(78) && mistaken.err.contains("c.toml:1:"), "{mistaken:?}");
    for said in [taken, mistaken] {
        assert!(!said.err.contains("died") && said.out.is_empty(), "{said:?}");
    }
}

/// Returns the next message for the service manager, and its sender.
fn next_message(manager: &UnixDatagram) -> (String, u32) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 256];
    let mut buffers = [std::io::IoSliceMut::new(&mut bytes)];
    let length = recvmsg(manager, &mut buffers, &mut beside, RecvFlags::empty()).expect("a message").bytes;
    let sender = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid.as_raw_nonzero().get()),
        _ => None,
    });
    let text = String::from_utf8_lossy(&bytes[..length]).trim().to_owned();
    (text, u32::try_from(sender.expect("its credentials")).unwrap())
}

#[test]
fn the_service_manager_hears_the_keeper_alone_also_of_a_successor() {
    let dir = ringway_testing::file::directory();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(ringway_scenes::PATIENCE)).unwrap();
    sockopt::set_socket_passcred(&manager, true).unwrap();
    let variables = [format!("NOTIFY_SOCKET={}", path.display()), "WATCHDOG_USEC=200000".to_owned()];
    let mut daemon = Daemon::start_by(&["env", &variables[0], &variables[1]], CONFIG);
    let keeper = daemon.keeper();
    // Other messages that come before are the watchdog's.
    let hears = |wanted: &str| {
        until(wanted, || {
            let (said, sender) = next_message(&manager);
            assert_eq!(sender, keeper, "{said}");
            assert!(said == wanted || ["WATCHDOG=1", "READY=1"].contains(&&*said), "{said}");
            said == wanted
        });
    };
    for wanted in ["READY=1", "WATCHDOG=1"] {
        hears(wanted);
    }
    daemon.kill_switch();
    for wanted in ["READY=1", "WATCHDOG=1"] {
        hears(wanted);
    }
    daemon.signal(Signal::TERM);
    hears("STOPPING=1");
    assert!(daemon.stop().success());
}

#[test]
fn a_killed_keeper_leaves_no_switch() {
    let mut daemon = Daemon::start(CONFIG);
    daemon.kill();
    assert!(UnixStream::connect(daemon.socket("control.sock")).is_err(), "nobody listens");
    daemon.replace();
    daemon.until_state("vm", "waiting");
    ends_in_order(daemon);
}

#[test]
fn without_a_keeper_there_is_one_process_whose_end_is_the_end() {
    let mut daemon = Daemon::start_alone(CONFIG);
    assert!(children(daemon.pid(), "ringway-switch").is_empty());
    assert_eq!(processes(&daemon.runtime_dir()).len(), 1);
    daemon.kill();
    assert!(UnixStream::connect(daemon.socket("control.sock")).is_err(), "nobody listens");
    // The keeper waits for some no longer than two seconds.
    until("all of its processes have ended", || processes(&daemon.runtime_dir()).is_empty());
    daemon.replace();
    daemon.until_state("vm", "waiting");
    ends_in_order(daemon);
}
