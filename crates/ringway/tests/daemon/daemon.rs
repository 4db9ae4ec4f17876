//! The daemon end to end, with process clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ringway_client::{Port, Shape};
use ringway_scenes::{Daemon, PATIENCE, Said, frame, receive, ringway, send, until, why_ended};

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const ALL: [u8; 6] = [0xff; 6];

/// Makes the switch learn the addresses A and B.
fn introduce(a: &mut Port, b: &mut Port) {
    send(a, &frame(ALL, A, 1));
    assert_eq!(receive(b, PATIENCE).as_deref(), Some(&frame(ALL, A, 1)[..]));
    send(b, &frame(A, B, 2));
    assert_eq!(receive(a, PATIENCE).as_deref(), Some(&frame(A, B, 2)[..]));
}

#[test]
fn clients_exchange_frames_and_the_status_counts_them() {
    let daemon = Daemon::start("");
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    introduce(&mut a, &mut b);
    until("a's two frames are counted", || daemon.port("a")["out"]["frames"] == 1);
    let port = daemon.port("a");
    assert_eq!((&port["switch"], &port["kind"], &port["state"]), (&"lan0".into(), &"process".into(), &"up".into()));
    assert_eq!(port["in"], serde_json::json!({"frames": 1, "bytes": 60}));
    assert_eq!(port["out"], serde_json::json!({"frames": 1, "bytes": 60}));
    assert!(port["drops"].is_object() && port["kicks"].is_u64() && port["calls"].is_u64());
    let poller = &daemon.status()["pollers"][0];
    assert!(poller["core"].is_null() && poller["busy"].is_f64() && poller["free"].as_f64() > Some(0.0), "{poller}");

    let fdb: serde_json::Value = serde_json::from_str(&daemon.ok(&["fdb", "lan0", "--json"])).unwrap();
    let known: Vec<_> = fdb.as_array().unwrap().iter().map(|e| (e["mac"].clone(), e["port"].clone())).collect();
    assert_eq!(known, [("02:00:00:00:00:0a".into(), "a".into()), ("02:00:00:00:00:0b".into(), "b".into())]);
    assert!(daemon.ok(&["fdb"]).contains("lan0    -     02:00:00:00:00:0a  a"));

    drop(a);
    until("a's port is removed with its client", || daemon.port("a").is_null());
    assert_eq!(daemon.ok(&["fdb"]).lines().count(), 2, "a's address is forgotten");
    drop(b);
    until("the switch is removed with its last port", || daemon.status()["switches"] == serde_json::json!([]));
}

#[test]
fn isolation_and_removal_take_effect_while_frames_flow() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    introduce(&mut a, &mut b);
    assert!(daemon.ok(&["port", "set", "a", "isolated=true"]).starts_with("changed port a until its client goes"));
    assert!(daemon.ok(&["port", "set", "lan0:b", "isolated=true", "weight=3"]).starts_with("changed port b until"));
    assert_eq!(daemon.ok(&["port", "set", "lan0:b", "weight=3"]), "nothing differs\n");
    send(&mut a, &frame(B, A, 3));
    until("the frame is dropped", || daemon.port("a")["drops"]["isolated"] == 1);
    daemon.ok(&["port", "set", "b", "isolated=false"]);
    send(&mut a, &frame(B, A, 4));
    assert_eq!(receive(&mut b, PATIENCE).as_deref(), Some(&frame(B, A, 4)[..]), "the previous frame was dropped");

    assert_eq!(daemon.ok(&["port", "del", "b"]), "removed port b\n");
    assert!(why_ended(&mut b).contains("the port was removed"), "the client learns the reason");
    assert!(daemon.port("b").is_null());
}

#[test]
fn a_reload_changes_only_what_differs() {
    let base = "[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\n";
    let daemon = Daemon::start(&format!("{base}[port.old]\nswitch = \"lan0\"\nkind = \"process\"\n"));
    daemon.ok(&["port", "add", "mine", "switch=lan0", "kind=process"]);
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    let mut old = daemon.attach("lan0:old").unwrap();
    introduce(&mut a, &mut b);

    daemon.reload(&format!("{base}weight = 5\n[port.new]\nswitch = \"lan0\"\nkind = \"process\"\n"));
    assert_eq!(daemon.line(), "reloaded: removed port old, changed port a, added port new to switch lan0");
    assert!(why_ended(&mut old).contains("the port was removed"), "the removed port's client learns the reason");
    send(&mut a, &frame(B, A, 9));
    assert_eq!(receive(&mut b, PATIENCE).as_deref(), Some(&frame(B, A, 9)[..]), "a changed port keeps its client");
    let port = daemon.port("a");
    assert_eq!((&port["weight"], &port["in"]["frames"]), (&5.into(), &2.into()), "a changed port keeps its counters");
    assert_eq!(daemon.port("new")["state"], "waiting");
    assert_eq!(daemon.port("mine")["state"], "waiting", "a port that a command added stays");
    assert_eq!(daemon.port("b")["state"], "up", "a port that a client made stays");

    daemon.reload(&format!("{base}weight = 5\n[port.new]\nswitch = \"lan0\"\nkind = \"process\"\n"));
    assert_eq!(daemon.line(), "reloaded: nothing differs");
    daemon.reload("[port.a]\nswitch = \"lan9\"\nkind = \"process\"\n");
    daemon.complains("ringway.toml:2:10: key \"port.a.switch\": there is no switch \"lan9\"");
    daemon.complains("not reloaded: nothing has changed");
    daemon.reload("[switch.lan0]\nageing = \"1s\"\n");
    assert_eq!(
        daemon.line(),
        "reloaded: removed port a, removed port new, changed switch lan0",
        "a bad file changes nothing"
    );
}

#[test]
fn the_command_reload_has_the_answer() {
    let daemon = Daemon::start("[switch.lan0]\n");
    daemon.write("[switch.lan0]\n[port.new]\nswitch = \"lan0\"\nkind = \"process\"\n");
    assert_eq!(daemon.ok(&["reload"]), "added port new to switch lan0\n");
    assert_eq!(daemon.ok(&["reload"]), "nothing differs\n");
    daemon.write("[port.new]\nswitch = \"lan9\"\nkind = \"process\"\n[port.x]\n");
    let said = daemon.ringway(&["reload"]);
    assert!(
        said.code == Some(2) && said.err.starts_with("ringway reload: ") && said.err.contains("ringway.toml:4:"),
        "{said:?}"
    );
    assert_eq!(daemon.port("new")["state"], "waiting");
}

#[test]
fn another_engine_takes_over_without_losing_clients() {
    let daemon = Daemon::start("");
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    introduce(&mut a, &mut b);
    for (config, core) in [("cores = [0]\nidle = \"sleep\"", 0.into()), ("batch = 1", serde_json::Value::Null)] {
        daemon.reload(&format!("[engine]\n{config}\n"));
        assert_eq!(daemon.line(), "reloaded: changed engine");
        assert_eq!(daemon.status()["pollers"][0]["core"], core);
        send(&mut a, &frame(B, A, 5));
        assert_eq!(receive(&mut b, PATIENCE).as_deref(), Some(&frame(B, A, 5)[..]));
    }
}

#[test]
fn what_the_configuration_does_not_allow_is_refused_with_the_setting_to_change() {
    let why = |daemon: &Daemon, name: &str| daemon.attach(name).err().map(|e| e.to_string()).unwrap_or_default();
    let daemon = Daemon::start("[attach]\ncreate = \"ports\"\nmax_ports = 2\n[switch.lan0]\n");
    assert!(why(&daemon, "lan1:a").contains("no switch for lan1:a, and [attach] create = \"ports\" makes none"));
    let _a = daemon.attach("lan0:a").unwrap();
    assert!(why(&daemon, "lan0:a").contains("lan0:a is in use"));
    let _b = daemon.attach("lan0:b").unwrap();
    assert!(why(&daemon, "lan0:c").contains("[attach] max_ports allows no more"));

    let daemon = Daemon::start(
        "[attach]\ncreate = \"none\"\nmax_memory = \"64KiB\"\n[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\n",
    );
    assert!(why(&daemon, "lan0:b").contains("create = \"none\" makes none"));
    assert!(why(&daemon, "lan0:a").contains("[attach] max_memory allows 64KiB"), "{}", why(&daemon, "lan0:a"));
    let small = Shape { tx_slots: 8, rx_slots: 8, ..Shape::default() };
    let socket = daemon.runtime_dir().join("attach.sock");
    drop(Port::attach(socket, "lan0:a", small).unwrap());
    daemon.until_state("a", "waiting");
}

#[test]
fn a_map_switch_delivers_to_bound_addresses_only() {
    let daemon = Daemon::start(
        "[switch.lan0]\nforwarding = \"map\"\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\nmac = \"02:00:00:00:00:0a\"\n\
         [port.b]\nswitch = \"lan0\"\nkind = \"process\"\nmac = \"02:00:00:00:00:0b\"\n",
    );
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    assert_eq!(a.mac(), A);
    send(&mut a, &frame(B, A, 1));
    assert_eq!(receive(&mut b, PATIENCE).as_deref(), Some(&frame(B, A, 1)[..]));
    send(&mut a, &frame([2, 0, 0, 0, 0, 0xc], A, 2));
    until("a frame to an unbound address is dropped", || daemon.port("a")["drops"]["no_destination"] == 1);
    let said = daemon.ringway(&["port", "add", "c", "switch=lan0", "kind=process", "mac=02:00:00:00:00:0b"]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.err.contains("port add: key \"mac\": 02:00:00:00:00:0b is already bound to port \"b\""),
        "{}",
        said.err
    );
}

#[test]
fn names_that_two_switches_have_need_the_switch() {
    let daemon = Daemon::start("");
    let (_a, _b) = (daemon.attach("lan0:p").unwrap(), daemon.attach("lan1:p").unwrap());
    let said = daemon.ringway(&["port", "del", "p"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("write \"lan0:p\" or \"lan1:p\""), "{}", said.err);
    daemon.ok(&["port", "del", "lan1:p"]);
    assert_eq!(daemon.port("p")["switch"], "lan0");
}

#[test]
fn a_switch_made_by_port_add_goes_with_its_last_port() {
    let daemon = Daemon::start("[switch.lan0]\n");
    daemon.ok(&["port", "add", "lan7:p", "kind=process"]);
    let said = daemon.ringway(&["port", "add", "p", "switch=lan0", "kind=process"]);
    assert!(said.code == Some(2) && said.err.contains("\"p\" exists already, on switch \"lan7\""), "{}", said.err);
    assert_eq!(daemon.ok(&["port", "del", "p"]), "removed port p\nremoved switch lan7\n");
    assert_eq!(daemon.status()["switches"].as_array().unwrap().len(), 1);
}

#[test]
fn a_moderated_port_is_called_once_per_interval_and_misses_nothing() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    introduce(&mut a, &mut b);
    let interval = Duration::from_millis(100);
    let calls = || daemon.port("b")["calls"].as_u64().unwrap();
    // Sends ten frames to a client that sleeps until each frame comes. Returns true if there were more calls than one
    // per interval. The time begins before the first count and ends after the second. A call may be counted some time after the
    // switch has looked at its clock for it.
    let mut calls_are_frequent = || {
        let (start, before) = (Instant::now(), calls());
        for number in 0..10 {
            send(&mut a, &frame(B, A, number));
            assert_eq!(receive(&mut b, PATIENCE).as_deref(), Some(&frame(B, A, number)[..]));
        }
        let made = calls() - before;
        u128::from(made) > start.elapsed().as_nanos() / interval.as_nanos() + 2
    };
    for (keys, moderated) in [
        (&["call_interval=100ms"][..], true),
        (&["call_interval=0us"], false),
        (&["call_interval=100ms", "call_above=1Gpps"], false),
        (&["call_above=0pps"], true),
    ] {
        daemon.ok(&[&["port", "set", "b"], keys].concat());
        if moderated {
            assert!(!calls_are_frequent(), "{keys:?}");
        } else {
            until(&format!("calls are not delayed: {keys:?}"), &mut calls_are_frequent);
        }
    }
    let port = daemon.port("b");
    assert_eq!((&port["call_interval"], &port["call_above"]), (&"100ms".into(), &"0pps".into()));
    assert_eq!(port["call_intervals"], serde_json::json!({ "receive": "100ms", "send": "100ms" }));
    // Who sleeps until each frame comes is called at once.
    daemon.ok(&["port", "set", "b", "call_interval=auto"]);
    until("calls are not delayed", &mut calls_are_frequent);
    let port = daemon.port("b");
    assert_eq!(port["call_interval"], "auto");
    assert_eq!(port["call_intervals"], serde_json::json!({ "receive": "0s", "send": "0s" }));
}

#[test]
fn one_directory_has_one_daemon_and_its_end_leaves_nothing() {
    let mut daemon = Daemon::start("");
    let run = daemon.runtime_dir();
    let said: Said = ringway().arg("run").arg("--runtime-dir").arg(&run).output().unwrap().into();
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("already running"), "{}", said.err);
    let mut client = daemon.attach("lan0:a").unwrap();
    assert!(daemon.stop().success());
    assert!(!run.join("control.sock").exists() && !run.join("attach.sock").exists());
    assert!(why_ended(&mut client).contains("shutting down"), "clients learn the reason");
}

#[test]
fn silent_clients_of_the_control_socket_do_not_lock_others_out() {
    let daemon = Daemon::start("");
    let socket = daemon.runtime_dir().join("control.sock");
    for said in
        ["", "GET /v1/status HTTP/1.1\r\nhost:", "POST /v1/ports HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"]
    {
        let silent = || {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.set_nonblocking(true).unwrap();
            // The daemon may have closed the connection already.
            let _ = stream.write_all(said.as_bytes());
            stream
        };
        let is_open = |mut stream: &UnixStream| {
            stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        // A daemon that serves connections one after the other would answer after all their timeouts. The test tries
        // again if it was itself delayed for that time.
        until("the daemon answers before the last connection's timeout", || {
            let silent: Vec<_> = (0..500).map(|_| silent()).collect();
            daemon.status();
            is_open(silent.last().expect("500 clients"))
        });
    }
}

#[test]
fn faults_of_deleted_ports_are_forgotten_when_there_are_many() {
    let daemon = Daemon::start("[switch.lan0]\n");
    for number in 0..100 {
        let name = format!("vm{number}");
        daemon.ok(&["port", "add", &name, "switch=lan0", "kind=vhost-user"]);
        let mut front_end = UnixStream::connect(daemon.socket(&format!("{name}.sock"))).unwrap();
        front_end.write_all(&[0xff; 12]).unwrap();
        until("the front end has broken the rules", || daemon.port(&name)["faults"] != serde_json::json!({}));
        daemon.ok(&["port", "del", &name]);
    }
    let status = daemon.status();
    assert_eq!(status["faults"].as_array().unwrap().len(), 64);
    assert_eq!(status["faults"][0]["port"], "vm99");
    assert!(status["fault_counts"].as_array().unwrap().iter().any(|total| total["count"].as_u64() >= Some(100)));
}
