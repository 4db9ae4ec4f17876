//! vhost-user ports of a daemon: they are added, changed and removed, together with their front ends.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use ringway_scenes::guest::{both_ways, ends};
use ringway_scenes::{Daemon, until};
use ringway_traffic::{Packed, Ring, SocketRole, Split, VirtioEndpoint, VirtioOptions};
use serde_json::{Value, json};

const SWITCHES: &str = "[switch.lan0]\n[switch.lan1]\n";

fn vm(name: &str, keys: &str) -> String {
    format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n{keys}\n")
}

fn start(ports: &[String]) -> Daemon {
    Daemon::start(&(SWITCHES.to_owned() + &ports.concat()))
}

fn reload(daemon: &Daemon, ports: &[String]) {
    daemon.reload(&(SWITCHES.to_owned() + &ports.concat()));
}

fn state(daemon: &Daemon, port: &str) -> Value {
    daemon.port(port)["state"].clone()
}

/// Attaches a driver to the port behind this socket.
fn drive<R: Ring>(daemon: &Daemon, name: &str) -> VirtioEndpoint<R> {
    VirtioEndpoint::attach(&daemon.socket(name), &VirtioOptions::default()).expect("the port takes a front end")
}

#[test]
fn front_ends_come_and_go_and_the_port_stays() {
    let daemon = start(&[vm("vm1", "mtu = 1500\nqueues = 2")]);
    let port = daemon.port("vm1");
    assert_eq!((&port["kind"], &port["state"]), (&"vhost-user".into(), &"waiting".into()));
    let waiting = json!({"socket": "vm1.sock", "role": "server", "most_queues": 2, "mtu": 1500, "ring_reset": false,
        "config_space": false,
        "offload": true,
        "features": [], "queues": 0, "ring_size": 0});
    assert_eq!(port["vhost_user"], waiting);
    let mode = std::fs::metadata(daemon.socket("vm1.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only the owner may use the socket");

    let mut client = daemon.attach("lan0:c").unwrap();
    let mut guest = drive::<Split>(&daemon, "vm1.sock");
    daemon.until_state("vm1", "up");
    both_ways(&mut guest, &mut client, 1);
    // A guest that polls sees a frame before it is counted.
    until("the frame to the guest is counted", || daemon.port("vm1")["out"]["frames"] == 1);
    let port = daemon.port("vm1");
    assert_eq!((&port["in"]["frames"], &port["out"]["frames"]), (&1.into(), &1.into()));
    assert_eq!((&port["vhost_user"]["queues"], &port["vhost_user"]["ring_size"]), (&2.into(), &256.into()));
    assert_eq!(port["vhost_user"]["features"].as_array().unwrap().last(), Some(&"version_1".into()));
    assert!(daemon.ok(&["status"]).contains("vm1   lan0    vhost-user  up"), "{}", daemon.ok(&["status"]));
    assert!(daemon.ok(&["port", "list"]).contains("vm1.sock (server)"));

    drop(guest);
    daemon.until_state("vm1", "waiting");
    assert_eq!(daemon.port("vm1")["vhost_user"], waiting);
    let mut guest = drive::<Packed>(&daemon, "vm1.sock");
    both_ways(&mut guest, &mut client, 3);
    let port = daemon.port("vm1");
    assert!(port["vhost_user"]["features"].as_array().unwrap().contains(&"ring_packed".into()), "{port}");
    assert_eq!(port["in"]["frames"], 2, "the port's counters stay");
    assert_eq!(daemon.status()["faults"], json!([]), "connecting and disconnecting is no fault");

    let second = UnixStream::connect(daemon.socket("vm1.sock")).unwrap();
    ends(&second);
    both_ways(&mut guest, &mut client, 5);
}

#[test]
fn a_front_end_that_breaks_the_rules_loses_its_connection_and_the_status_says_why() {
    let daemon = start(&[vm("vm1", ""), vm("vm2", "")]);
    let mut client = daemon.attach("lan0:c").unwrap();
    let mut bystander = drive::<Split>(&daemon, "vm2.sock");
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
    assert!(daemon.ok(&["status"]).contains(fault["detail"].as_str().unwrap()));

    both_ways(&mut bystander, &mut client, 1);
    drop(bystander);
    both_ways(&mut drive::<Split>(&daemon, "vm1.sock"), &mut client, 3);
}

#[test]
fn a_port_can_go_and_come_while_it_is_in_use() {
    let mut daemon = start(&[]);
    let mut client = daemon.attach("lan0:c").unwrap();
    for number in 0..3 {
        daemon.ok(&["port", "add", "vm1", "switch=lan0", "kind=vhost-user"]);
        let mut guest = drive::<Split>(&daemon, "vm1.sock");
        both_ways(&mut guest, &mut client, number);
        assert_eq!(daemon.ok(&["port", "del", "vm1"]), "removed port vm1\n");
        assert!(!daemon.socket("vm1.sock").exists(), "the command removes the socket before it answers");
        ends(guest.connection());
    }
    daemon.ok(&["port", "add", "vm1", "switch=lan0", "kind=vhost-user"]);
    let guest = drive::<Split>(&daemon, "vm1.sock");
    assert!(daemon.stop().success());
    ends(guest.connection());
    assert_eq!(daemon.left(), ["state.toml"], "a clean end leaves no socket");
}

#[test]
fn a_reload_keeps_the_front_ends_of_ports_that_need_not_go() {
    let daemon = start(&[vm("a", ""), vm("b", ""), vm("c", "")]);
    let mut client = daemon.attach("lan0:client").unwrap();
    let [mut a, b, mut c] = ["a.sock", "b.sock", "c.sock"].map(|name| drive::<Split>(&daemon, name));
    let fewer = format!("queues = 1\nsocket = {:?}", daemon.socket("b.sock"));
    let moved = vm("c", "").replace("lan0", "lan1");
    reload(&daemon, &[vm("a", "weight = 3\ncall_interval = \"20us\""), vm("b", &fewer), moved]);
    assert_eq!(
        daemon.line(),
        "reloaded: removed port b, removed port c, changed port a, added port b to switch lan0, added port c to switch lan1"
    );
    ends(b.connection());
    both_ways(&mut a, &mut client, 1);
    let port = daemon.port("a");
    assert_eq!((&port["weight"], &port["call_interval"]), (&3.into(), &"20us".into()));
    let mut b = drive::<Split>(&daemon, "b.sock");
    both_ways(&mut b, &mut client, 3);
    assert_eq!(daemon.port("b")["vhost_user"]["most_queues"], 1);
    assert_eq!(state(&daemon, "c"), "up", "a front end moves to another switch with its port");
    both_ways(&mut c, &mut daemon.attach("lan1:client").unwrap(), 5);

    // The ports' sockets are exchanged. The connected socket of a now belongs to b.
    reload(&daemon, &[vm("a", "socket = \"b.sock\""), vm("b", "socket = \"a.sock\"")]);
    assert!(daemon.line().starts_with("reloaded: "));
    [&b, &c].into_iter().for_each(|guest| ends(guest.connection()));
    both_ways(&mut a, &mut client, 7);
    assert_eq!(
        (state(&daemon, "a"), state(&daemon, "b")),
        ("waiting".into(), "up".into()),
        "the front end is now at b"
    );
    let _guest = drive::<Split>(&daemon, "b.sock");
    daemon.until_state("a", "up");
    assert!(!daemon.socket("c.sock").exists());
}

#[test]
fn a_change_that_cannot_be_made_whole_takes_no_front_end_away() {
    let daemon = start(&[vm("a", "")]);
    let mut client = daemon.attach("lan0:client").unwrap();
    let mut a = drive::<Split>(&daemon, "a.sock");
    std::fs::write(daemon.socket("file"), "precious").unwrap();
    let _theirs = UnixListener::bind(daemon.socket("theirs.sock")).unwrap();
    for (other, why) in [("nowhere/z.sock", "No such file"), ("file", "not a socket"), ("theirs.sock", "listens")] {
        reload(&daemon, &[vm("a", "queues = 1"), vm("z", &format!("socket = \"{other}\""))]);
        daemon.complains(why);
        daemon.complains("not reloaded: nothing has changed");
        let said = daemon.ringway(&["port", "add", "z", "switch=lan0", "kind=vhost-user", &format!("socket={other}")]);
        assert_eq!(said.code, Some(1));
        assert!(said.err.contains(other) && said.err.contains(why), "{}", said.err);
    }
    both_ways(&mut a, &mut client, 1);
    assert_eq!(std::fs::read(daemon.socket("file")).unwrap(), b"precious");
    for key in ["queues=1", "mtu=1500", "socket=b.sock", "role=client", "offload=false", "switch=lan1"] {
        let said = daemon.ringway(&["port", "set", "a", key]);
        assert_eq!(said.code, Some(2));
        assert!(said.err.contains("cannot change while the port exists"), "{}", said.err);
    }
    both_ways(&mut a, &mut client, 3);
}

/// One change cannot be tested before a reload: another process binds the socket that a port has released.
#[test]
fn a_socket_that_cannot_be_bound_again_is_tried_until_it_can() {
    let daemon = start(&[]);
    let (there, away) = (daemon.runtime_dir().join("vms"), daemon.runtime_dir().join("away"));
    std::fs::create_dir(&there).unwrap();
    let at = "socket = \"vms/a.sock\"\n";
    reload(&daemon, &[vm("a", at)]);
    assert_eq!(daemon.line(), "reloaded: added port a to switch lan0");
    let guest = drive::<Split>(&daemon, "vms/a.sock");
    std::fs::rename(&there, &away).unwrap();
    reload(&daemon, &[vm("a", &format!("{at}queues = 1"))]);
    daemon.complains("port lan0:a cannot be opened again: ");
    daemon.complains("not reloaded: nothing has changed");
    ends(guest.connection());
    let port = daemon.port("a");
    assert_eq!((&port["state"], &port["vhost_user"]["most_queues"]), (&"failed".into(), &8.into()));
    let detail = port["detail"].as_str().unwrap();
    assert!(detail.contains("vms/a.sock") && detail.ends_with("; tried again every second"), "{detail}");
    assert!(daemon.ok(&["status"]).contains(detail));
    std::fs::rename(&away, &there).unwrap();
    daemon.until_state("a", "waiting");
    drive::<Split>(&daemon, "vms/a.sock");
}

#[test]
fn a_killed_daemons_sockets_are_no_obstacle_to_the_next() {
    let mut daemon = start(&[vm("vm1", "")]);
    let guest = drive::<Split>(&daemon, "vm1.sock");
    daemon.replace();
    ends(guest.connection());
    let mut client = daemon.attach("lan0:c").unwrap();
    both_ways(&mut drive::<Split>(&daemon, "vm1.sock"), &mut client, 1);
}

#[test]
fn a_port_that_is_the_client_connects_and_connects_again() {
    let mut daemon = start(&[vm("vm1", "role = \"client\"\nsocket = \"qemu.sock\"")]);
    assert_eq!(state(&daemon, "vm1"), "waiting");
    let options = VirtioOptions { socket_role: SocketRole::Listen, ..VirtioOptions::default() };
    for round in 0..3 {
        let mut guest = VirtioEndpoint::<Split>::attach(&daemon.socket("qemu.sock"), &options).unwrap();
        both_ways(&mut guest, &mut daemon.attach("lan0:c").unwrap(), round);
        if round == 1 {
            // The next daemon finds a hypervisor that listens.
            drop(guest);
            daemon.replace();
        }
    }
    daemon.until_state("vm1", "waiting");
}

#[test]
fn ports_are_on_the_pollers_they_are_to_be_on() {
    let daemon =
        Daemon::start(&format!("[engine]\ncores = [0, 1]\n{SWITCHES}{}{}", vm("a", ""), vm("b", "poller = 1")));
    let mut client = daemon.attach("lan0:client").unwrap();
    let mut b = drive::<Split>(&daemon, "b.sock");
    let poller = |port: &str| daemon.port(port)["poller"].clone();
    assert_eq!((poller("a"), poller("b")), (0.into(), 1.into()));
    for number in 0..20 {
        daemon.ok(&["port", "set", "b", &format!("poller={}", number % 2)]);
        assert_eq!(poller("b"), number % 2);
        both_ways(&mut b, &mut client, number);
    }
    daemon.ok(&["port", "set", "b", "poller=any"]);
    assert_eq!(poller("b"), 1, "a port without a fixed poller stays");
    for port in ["b", "lan0:client"] {
        let said = daemon.ringway(&["port", "set", port, "poller=2"]);
        assert_eq!(said.code, Some(2));
        assert!(said.err.contains("there is no poller 2; [engine] cores makes 0 to 1"), "{}", said.err);
    }
}
