//! e1000 ports of a daemon: they are added, changed and removed, together with their front ends.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use ringway_scenes::guest::{CLIENT, VM, both_ways};
use ringway_scenes::{Daemon, PATIENCE, frame, receive, send, until};
use ringway_traffic::e1000::{VfioUser, register as r};
use ringway_traffic::{E1000Endpoint, E1000Options, Endpoint};
use serde_json::{Value, json};

const SWITCHES: &str = "[switch.lan0]\n[switch.lan1]\n";

fn nic(name: &str, keys: &str) -> String {
    format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"e1000\"\n{keys}\n")
}

fn start(ports: &[String]) -> Daemon {
    Daemon::start(&(SWITCHES.to_owned() + &ports.concat()))
}

fn reload(daemon: &Daemon, ports: &[String]) {
    daemon.reload(&(SWITCHES.to_owned() + &ports.concat()));
}

/// Attaches a driver to the NIC behind this socket.
fn drive(daemon: &Daemon, name: &str) -> E1000Endpoint {
    E1000Endpoint::attach(&daemon.socket(name), &E1000Options::default()).expect("the port takes a front end")
}

/// Checks that the port has ended this connection.
fn ends(mut connection: &UnixStream) {
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reads = std::iter::repeat_with(|| connection.read(&mut [0; 64]).map_err(|error| error.kind()));
    let end = reads.find(|read| !matches!(read, Ok(1..) | Err(ErrorKind::Interrupted)));
    assert!(
        matches!(end, Some(Ok(0) | Err(ErrorKind::ConnectionReset))),
        "the connection does not end cleanly: {end:?}"
    );
}

fn link_is_up(guest: &mut VfioUser) -> bool {
    let mut status = [0; 4];
    guest.read(0, r::STATUS.into(), &mut status).expect("a register");
    u32::from_le_bytes(status) & r::STATUS_LU != 0
}

#[test]
fn front_ends_come_and_go_and_the_port_stays() {
    for (model, device, registers) in [("e1000", 0x100e, "trapped"), ("e1000e", 0x10d3, "mapped")] {
        let daemon = start(&[nic("vm1", &format!("model = \"{model}\"\nmac = \"02:00:00:00:00:0a\""))]);
        let port = daemon.port("vm1");
        assert_eq!((&port["kind"], &port["state"]), (&"e1000".into(), &"waiting".into()));
        let said = |key: &str| daemon.port("vm1")["e1000"][key].clone();
        assert_eq!((said("model"), said("registers"), said("csb")), (model.into(), registers.into(), false.into()));
        assert_eq!((said("address"), said("link")), ("02:00:00:00:00:0a".into(), "up".into()));
        assert_eq!(
            (said("interrupts"), said("transmit_ring"), said("receive_ring")),
            ("none".into(), 0.into(), 0.into())
        );
        let mode = std::fs::metadata(daemon.socket("vm1.sock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only the owner may use the socket");
        let mut client = daemon.attach("lan0:c").unwrap();
        let mut number = 0;
        for _ in 0..2 {
            let mut guest = drive(&daemon, "vm1.sock");
            assert_eq!(guest.mac().0, VM, "the address that is bound to the port");
            daemon.until_state("vm1", "up");
            both_ways(&mut guest, &mut client, number);
            assert!(said("transmit_ring").as_u64() > Some(0) && said("receive_ring").as_u64() > Some(0));
            assert_ne!(said("interrupts"), "none");
            let second = UnixStream::connect(daemon.socket("vm1.sock")).unwrap();
            ends(&second);
            both_ways(&mut guest, &mut client, number + 1);
            number += 2;
            assert_eq!(daemon.port("vm1")["in"]["frames"], u64::from(number), "the port's counters stay");
            drop(guest);
            daemon.until_state("vm1", "waiting");
            assert_eq!(said("transmit_ring"), 0);
        }
        assert!(daemon.ok(&["port", "list"]).contains(&format!("vm1.sock ({model})")));
        assert_eq!(daemon.status()["faults"], json!([]), "connecting and disconnecting is no fault");
        let mut guest = VfioUser::connect(&daemon.socket("vm1.sock"), PATIENCE).unwrap();
        let mut id = [0; 2];
        guest.read(7, 2, &mut id).unwrap();
        assert_eq!(u16::from_le_bytes(id), device);
    }
}

#[test]
fn the_cable_is_pulled_and_plugged_in_while_the_guest_runs() {
    let daemon = start(&[nic("vm1", "link = \"down\"")]);
    let mut guest = VfioUser::connect(&daemon.socket("vm1.sock"), PATIENCE).unwrap();
    guest.write(0, r::CTRL.into(), &(r::CTRL_SLU | r::CTRL_ASDE).to_le_bytes()).unwrap();
    assert!(!link_is_up(&mut guest));
    assert_eq!(daemon.ok(&["port", "set", "vm1", "link=up"]), "changed port vm1\n");
    until("the link is up", || link_is_up(&mut guest));
    daemon.ok(&["config", "reset"]);
    until("the link is down", || !link_is_up(&mut guest));
    assert_eq!(daemon.port("vm1")["e1000"]["link"], "down");
    let refused = daemon.ringway(&["port", "set", "vm1", "model=e1000e"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("cannot change while the port exists"), "{}", refused.err);
}

#[test]
fn a_front_end_that_breaks_the_rules_loses_its_connection_and_the_status_says_why() {
    let daemon = start(&[nic("vm1", ""), nic("vm2", "")]);
    let mut client = daemon.attach("lan0:c").unwrap();
    let mut bystander = drive(&daemon, "vm2.sock");
    let mut bad = UnixStream::connect(daemon.socket("vm1.sock")).unwrap();
    daemon.until_state("vm1", "connected");
    bad.write_all(&[0xff; 64]).unwrap();
    ends(&bad);
    daemon.until_state("vm1", "waiting");
    until("the fault is recorded", || daemon.status()["faults"][0]["port"] == "vm1");
    let fault = &daemon.status()["faults"][0];
    assert_eq!((&fault["switch"], &fault["reason"]), (&"lan0".into(), &"bad_message".into()));
    assert!(fault["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    daemon.complains("port lan0:vm1: the front end loses its connection: ");
    both_ways(&mut bystander, &mut client, 1);
    drop(bystander);
    both_ways(&mut drive(&daemon, "vm1.sock"), &mut client, 3);
}

#[test]
fn a_port_can_go_and_come_and_a_reload_keeps_those_that_need_not_go() {
    let mut daemon = start(&[nic("a", ""), nic("b", ""), nic("c", "")]);
    let mut client = daemon.attach("lan0:client").unwrap();
    let [mut a, b, mut c] = ["a.sock", "b.sock", "c.sock"].map(|name| drive(&daemon, name));
    let moved = nic("c", "link = \"up\"").replace("lan0", "lan1");
    reload(&daemon, &[nic("a", "weight = 3\ncall_interval = \"20us\""), nic("b", "csb = true"), moved]);
    assert_eq!(
        daemon.line(),
        "reloaded: removed port b, removed port c, changed port a, added port b to switch lan0, added port c to switch lan1"
    );
    ends(b.connection());
    both_ways(&mut a, &mut client, 1);
    assert_eq!(daemon.port("a")["weight"], 3);
    assert_eq!(daemon.port("a")["e1000"]["completion_delay"], "2ms");
    daemon.ok(&["port", "set", "a", "completion_delay=0s"]);
    assert_eq!(daemon.port("a")["e1000"]["completion_delay"], "0s");
    assert_eq!(daemon.port("b")["e1000"]["csb"], true);
    both_ways(&mut drive(&daemon, "b.sock"), &mut client, 2);
    assert_eq!(daemon.port("c")["state"], "up", "a front end moves to another switch with its port");
    both_ways(&mut c, &mut daemon.attach("lan1:client").unwrap(), 3);
    assert_eq!(daemon.ok(&["port", "del", "a"]), "removed port a\n");
    assert!(!daemon.socket("a.sock").exists(), "the command removes the socket before it answers");
    ends(a.connection());
    daemon.ok(&["port", "add", "a", "switch=lan0", "kind=e1000", "model=e1000e", "registers=trapped"]);
    let said: Value = daemon.port("a")["e1000"].clone();
    assert_eq!((&said["model"], &said["registers"]), (&"e1000e".into(), &"trapped".into()));
    let mut a = drive(&daemon, "a.sock");
    // The address was just at another port, which still exists without a driver. It moves again within a second.
    let deadline = Instant::now() + PATIENCE;
    let is_at_a = || {
        let fdb: Value = serde_json::from_str(&daemon.ok(&["fdb", "lan0", "--json"])).unwrap();
        fdb.as_array().unwrap().iter().any(|entry| entry["port"] == "a")
    };
    while !is_at_a() {
        assert!(Instant::now() < deadline, "the address does not move");
        let sent = frame(CLIENT, VM, 9);
        assert!(a.tx_push(sent.len(), |bytes| bytes.copy_from_slice(&sent)));
        a.tx_flush();
        assert_eq!(receive(&mut client, PATIENCE).as_deref(), Some(&sent[..]));
    }
    both_ways(&mut a, &mut client, 4);
    assert!(daemon.stop().success());
    ends(a.connection());
    assert_eq!(daemon.left(), ["state.toml"], "a clean end leaves no socket");
}

#[test]
fn a_frame_that_is_too_long_for_the_guest_is_named_so() {
    let daemon = start(&[nic("vm1", "")]);
    let guest = drive(&daemon, "vm1.sock");
    let mut client = daemon.attach("lan0:c").unwrap();
    // The driver has not enabled long packets (RCTL.LPE).
    let mut long = vec![0; 1523];
    long[..6].copy_from_slice(&guest.mac().0);
    long[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    send(&mut client, &long);
    until("it is counted", || daemon.port("vm1")["drops"] == serde_json::json!({ "receiver_too_small": 1 }));
}
