//! Reachability between ports: uplinks, allowed pairs, the rules of a switch, the MAC map.

use std::time::Duration;

use ringway_client::Port;
use ringway_scenes::flood::{client, config, count, drops};
use ringway_scenes::{Daemon, receive, send, until};

fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

/// Starts a daemon with ports `p1`, `p2`, … that have these further keys. Each is bound to the address of its number.
fn daemon(switch: &str, ports: &[&str]) -> (Daemon, Vec<Port>) {
    let port = |(n, keys): (usize, &&str)| {
        let n = n + 1;
        format!("[port.p{n}]\nswitch = \"lan0\"\nkind = \"process\"\nmac = \"02:00:00:00:00:0{n}\"\n{keys}\n")
    };
    let daemon =
        Daemon::start(&format!("[switch.lan0]\n{switch}\n{}", ports.iter().enumerate().map(port).collect::<String>()));
    let attach = |n: usize| daemon.attach(&format!("lan0:p{n}")).unwrap();
    let clients = (1..=ports.len()).map(attach).collect();
    (daemon, clients)
}

/// Sends a frame from port `from`, with the source address of station `source`. Returns the receiving ports.
fn receivers_of(daemon: &Daemon, clients: &mut [Port], from: u8, source: u8, to: [u8; 6]) -> Vec<u8> {
    let port = format!("p{from}");
    let taken = || daemon.port(&port)["in"]["frames"].as_u64();
    let before = taken();
    send(&mut clients[usize::from(from) - 1], &ringway_scenes::frame(to, mac(source), from));
    // When a second frame was taken, the first one has been delivered.
    for frames in 1..3 {
        until("the frame is taken", || taken() == before.map(|before| before + frames));
        if frames == 1 {
            send(&mut clients[usize::from(from) - 1], &ringway_scenes::frame(mac(from), mac(from), from));
        }
    }
    let received = (1..).zip(clients).filter(|(n, _)| *n != from);
    received.filter_map(|(n, client)| receive(client, Duration::ZERO).map(|_| n)).collect()
}

const NO_PORT: [u8; 0] = [];

#[test]
fn a_port_reaches_its_pairs_and_its_uplink_only_and_is_set_while_attached() {
    let keys = [
        "allow = [\"p2\"]\nuplinks = [\"p4\"]",
        "",
        "allow = []",
        "uplink = true\nguard = \"off\"",
        "uplink = true\nguard = \"off\"",
    ];
    let (daemon, mut clients) = daemon("forwarding = \"map\"", &keys);
    let clients = &mut clients;
    for (from, to, wanted) in [
        (1, 2, true),
        (1, 3, false),
        (2, 3, false),
        (3, 1, false),
        (1, 4, true),
        (1, 5, false),
        (5, 1, false),
        (3, 5, true),
    ] {
        let received = receivers_of(&daemon, clients, from, from, mac(to));
        assert_eq!(received, if wanted { vec![to] } else { Vec::new() }, "{from} to {to}");
    }
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(77)), [4], "unknown addresses are behind the port's uplink");
    assert_eq!(receivers_of(&daemon, clients, 2, 2, mac(77)), [4], "a port without its own uplinks uses the first one");
    assert_eq!(
        receivers_of(&daemon, clients, 4, 77, mac(78)),
        NO_PORT,
        "an uplink's frames to unknown addresses stay outside"
    );
    assert_eq!(receivers_of(&daemon, clients, 4, 77, mac(1)), [1]);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, [0xff; 6]), [2, 4]);
    let drops = |port: &str, reason: &str| daemon.port(port)["drops"][reason].as_u64();
    assert_eq!((drops("p1", "pair_denied"), drops("p1", "uplink_denied")), (Some(1), Some(1)));
    assert_eq!((drops("p5", "uplink_denied"), drops("p4", "no_destination")), (Some(1), Some(1)));

    daemon.ok(&["port", "set", "p1", "allow=all", "uplinks=[\"p5\"]"]);
    daemon.ok(&["port", "set", "p3", "allow=p1"]);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(3)), [3]);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(77)), [5]);
    let said = daemon.ringway(&["port", "set", "p1", "uplinks=[\"p2\"]"]);
    assert!(said.code == Some(2) && said.err.contains("port \"p2\" is no uplink; write uplink = true"), "{}", said.err);
    let said = daemon.ringway(&["port", "set", "p1", "allow=[\"p4\"]"]);
    assert!(said.code == Some(2) && said.err.contains("port \"p4\" is an uplink; name it in uplinks"), "{}", said.err);
}

#[test]
fn the_rules_of_a_switch_keep_its_machines_apart_by_who_is_known() {
    let keys = ["", "", "uplink = true\nguard = \"off\""];
    let rules = "forwarding = \"map\"\nlocal = \"drop\"\ntransit = \"drop\"";
    let (daemon, mut clients) = daemon(rules, &keys);
    let clients = &mut clients;
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(2)), NO_PORT);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(77)), [3]);
    assert_eq!(receivers_of(&daemon, clients, 3, 77, mac(1)), [1]);
    assert_eq!(receivers_of(&daemon, clients, 3, 77, mac(78)), NO_PORT);
    assert_eq!(receivers_of(&daemon, clients, 3, 2, mac(1)), NO_PORT, "a machine's address from outside");
    assert_eq!(receivers_of(&daemon, clients, 1, 1, [0xff; 6]), [2, 3], "the rules are for stations' addresses");
    let drops = |port: &str, reason: &str| daemon.port(port)["drops"][reason].as_u64();
    assert!(drops("p1", "local_denied") >= Some(1), "{}", daemon.port("p1"));
    assert_eq!((drops("p3", "transit_denied"), drops("p3", "spoofed_mac")), (Some(1), Some(1)));
}

#[test]
fn the_rules_of_a_switch_keep_its_machines_in_and_strangers_out() {
    let keys = ["", "", "uplink = true\nguard = \"off\""];
    let (daemon, mut clients) = daemon("forwarding = \"map\"\noutbound = \"drop\"\ninbound = \"drop\"", &keys);
    let clients = &mut clients;
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(2)), [2]);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(77)), NO_PORT, "out");
    assert_eq!(receivers_of(&daemon, clients, 3, 77, mac(1)), NO_PORT, "in");
    // A group address is not outside, although it is bound nowhere. Isolation applies to group frames, too.
    for group in [[0xff; 6], [1, 0, 0x5e, 0, 0, 5]] {
        assert_eq!(receivers_of(&daemon, clients, 1, 1, group), [2, 3]);
        for (key, on, off) in [("isolated", "true", "false"), ("allow", "[]", "all")] {
            let set = |value| ["p1", "p2"].map(|port| daemon.ok(&["port", "set", port, &format!("{key}={value}")]));
            set(on);
            assert_eq!(receivers_of(&daemon, clients, 1, 1, group), [3], "{key}");
            set(off);
        }
    }
    let drops = |port: &str, reason: &str| daemon.port(port)["drops"][reason].as_u64();
    assert_eq!((drops("p1", "outbound_denied"), drops("p3", "inbound_denied")), (Some(1), Some(1)));
}

#[test]
fn rules_pairs_isolation_addresses_and_vlans_change_under_a_flood_and_let_nothing_more_through_at_once() {
    let with = |rules: &str, keys: [&str; 2]| {
        let [one, other] = [1, 2].map(|n| format!("mac = \"02:00:00:00:00:0{n}\"\n{}", keys[n - 1]));
        config(&[&one, &other, ""]).replacen("[switch.lan0]\n", &format!("[switch.lan0]\n{rules}\n"), 1)
    };
    let open = with("", ["", ""]);
    let daemon = Daemon::start(&open);
    let _receiver = client(&daemon, 2, mac(1), &[]);
    let _flooder = client(&daemon, 1, mac(2), &[60]);
    let given = || count(&daemon.port("p2"), "out", "frames");
    for (closed, reason) in [
        (with("local = \"drop\"", ["", ""]), "local_denied"),
        (with("", ["allow = [\"p3\"]", ""]), "pair_denied"),
        (with("", ["", "allow = []"]), "pair_denied"),
        (with("", ["isolated = true", "isolated = true"]), "isolated"),
        (open.replace("02:00:00:00:00:01", "02:00:00:00:00:77"), "spoofed_mac"),
        (with("", ["trunk = [10]", ""]), "vlan_denied"),
        (with("", ["vlan = 10", ""]), "vlan_denied"),
        (with("", ["", "vlan = 10"]), "vlan_denied"),
    ] {
        let frames = given();
        until("frames flow", || given() > frames + 1000);
        // Not before: those that the rules of the last round denied may be counted until then.
        let before = drops(&daemon, "p1", reason);
        daemon.reload(&closed);
        until("the frames are denied", || drops(&daemon, "p1", reason) > before);
        let (frames, before) = (given(), drops(&daemon, "p1", reason));
        until("more frames are denied", || drops(&daemon, "p1", reason) > before + 1000);
        assert_eq!(given(), frames, "{reason}");
        daemon.reload(&open);
    }
}

/// Returns address `n`. A quarter of the addresses is bound to each of ports 2 to 5.
fn mapped(n: u16) -> [u8; 6] {
    let [high, low] = n.to_be_bytes();
    [2, 0, 0, 1, high, low]
}

fn written(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

#[test]
fn frames_go_by_a_map_of_4096_addresses_and_follow_one_that_moves_while_they_flow() {
    const ADDRESSES: u16 = 4096;
    const BATCH: u16 = 64;
    let moved = mapped(5);
    // The moving address is bound to the second port at first, and then to the third.
    let with = |has_moved: bool| {
        let port = |n: u16| {
            let home = |address: &u16| if *address == 5 && has_moved { 3 } else { 2 + address / 1024 };
            let macs = (0..ADDRESSES).filter(|address| home(address) == n);
            let macs: Vec<String> = macs.map(|address| format!("\"{}\"", written(mapped(address)))).collect();
            format!("mac = [{}]", macs.join(", "))
        };
        let ports = ["mac = \"02:00:00:00:00:01\"".to_owned(), port(2), port(3), port(4), port(5)];
        config(&ports.each_ref().map(String::as_str)).replacen(
            "[switch.lan0]\n",
            "[switch.lan0]\nforwarding = \"map\"\n",
            1,
        )
    };
    let daemon = Daemon::start(&with(false));
    let [mut sender, mut clients @ ..] = [1, 2, 3, 4, 5].map(|n| daemon.attach(&format!("lan0:p{n}")).unwrap());
    assert_eq!(daemon.ok(&["fdb"]).matches("02:00:00:01:").count(), usize::from(ADDRESSES));
    // Sends a batch and receives it at all ports. Returns the port and the address of each frame.
    let mut send_to = |addresses: &mut dyn Iterator<Item = u16>| {
        let (mut sent, mut received) = (0, Vec::new());
        for address in addresses {
            assert!(sender.tx().push(&ringway_scenes::frame(mapped(address), mac(1), 0)));
            sent += 1;
        }
        sender.flush();
        until("all frames have arrived", || {
            for (port, client) in (2..).zip(&mut clients) {
                client.rx().drain(512, |frame| received.push((port, <[u8; 6]>::try_from(&frame[..6]).unwrap())));
            }
            received.len() >= sent
        });
        received
    };
    for first in (0..ADDRESSES).step_by(BATCH.into()) {
        for (port, address) in send_to(&mut (first..first + BATCH)) {
            assert_eq!(address, mapped(u16::from_be_bytes([address[4], address[5]])));
            assert_eq!(port, 2 + u16::from_be_bytes([address[4], address[5]]) / 1024, "{address:x?}");
        }
    }
    let mut at = [0; 2];
    daemon.reload(&with(true));
    until("the frames have followed", || {
        for (port, address) in send_to(&mut (0..BATCH).map(|_| 5)) {
            assert_eq!(address, moved);
            assert!(port == 2 && at[1] == 0 || port == 3, "{at:?} frames, and one more at port {port}");
            at[usize::from(port == 3)] += 1;
        }
        at[1] > 1000
    });
    assert_eq!(daemon.ok(&["fdb"]).matches("02:00:00:01:").count(), usize::from(ADDRESSES));
    assert_eq!(daemon.port("p1")["drops"], serde_json::json!({}));
}

#[test]
fn the_rules_of_a_switch_change_by_command_while_frames_flow() {
    let (daemon, mut clients) = daemon("", &["", "", "guard = \"off\""]);
    let clients = &mut clients;
    assert_eq!(receivers_of(&daemon, clients, 3, 3, [0xff; 6]), [1, 2]);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(2)), [2]);
    assert_eq!(receivers_of(&daemon, clients, 3, 77, mac(2)), [2]);
    assert_eq!(daemon.ok(&["switch", "set", "lan0", "local=drop", "broadcast=port:p3"]), "changed switch lan0\n");
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(2)), NO_PORT);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(77)), [3], "learned addresses are known");
    assert_eq!(receivers_of(&daemon, clients, 1, 1, [0xff; 6]), [3]);
    let settings = || {
        let switch = daemon.status()["switches"][0].clone();
        ["local", "transit", "broadcast", "unknown_unicast", "ageing"]
            .map(|key| switch[key].as_str().unwrap().to_owned())
    };
    assert_eq!(settings(), ["drop", "allow", "port:p3", "flood", "300s"]);
    daemon.ok(&["switch", "set", "lan0", "ageing=60s"]);
    assert_eq!(settings(), ["drop", "allow", "port:p3", "flood", "60s"], "omitted keys stay");
    daemon.ok(&["switch", "set", "lan0", "ageing=300s"]);
    // A refused command changes nothing.
    for (keys, wanted) in [
        (
            &["local=allow", "transit=maybe"][..],
            "key \"transit\": unknown value \"maybe\"; write \"allow\" or \"drop\"",
        ),
        (&["local=allow", "mac_entries=100"], "key \"mac_entries\": 100 is not a power of two; write 64 or 128"),
        (&["local=allow", "lokal=drop"], "key \"lokal\": unknown key; did you mean \"local\"?"),
        (&["forwarding=map", "unknown_unicast=flood"], "key \"unknown_unicast\": \"flood\" cannot be in a map switch"),
    ] {
        let said = daemon.ringway(&[&["switch", "set", "lan0"], keys].concat());
        assert!(said.code == Some(2) && said.err.contains(wanted), "{keys:?}: {}", said.err);
    }
    assert_eq!(settings(), ["drop", "allow", "port:p3", "flood", "300s"]);
    let said = daemon.ringway(&["switch", "set", "lan1", "local=drop"]);
    assert!(
        said.code == Some(2) && said.err.contains("there is no switch \"lan1\": there are \"lan0\""),
        "{}",
        said.err
    );

    daemon.ok(&["switch", "set", "lan0", "local=allow", "broadcast=flood", "unknown_unicast=drop"]);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(2)), [2]);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, [0xff; 6]), [2, 3]);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(78)), NO_PORT);
    assert_eq!(daemon.ok(&["switch", "set", "lan0", "unknown_unicast=drop"]), "nothing differs\n");
    daemon.ok(&["switch", "set", "lan0", "forwarding=map"]);
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(77)), NO_PORT, "learned addresses are ignored");
    assert_eq!(receivers_of(&daemon, clients, 1, 1, mac(2)), [2]);
    assert!((1..=3).all(|n| daemon.port(&format!("p{n}"))["state"] == "up"));
}

#[test]
fn a_switch_that_clients_made_stays_as_it_was_set_when_they_are_gone() {
    let daemon = Daemon::start("");
    let guest = daemon.attach("lan7:guest").unwrap();
    daemon.ok(&["switch", "set", "lan7", "unknown_unicast=drop"]);
    daemon.ok(&["port", "add", "p", "switch=lan7", "kind=process"]);
    daemon.ok(&["port", "del", "p"]);
    drop(guest);
    until("the port is gone", || daemon.port("guest").is_null());
    let (mut a, mut b) = (daemon.attach("lan7:a").unwrap(), daemon.attach("lan7:b").unwrap());
    send(&mut a, &ringway_scenes::frame(mac(9), mac(1), 0));
    until("the frame is dropped", || drops(&daemon, "a", "no_destination") == 1);
    send(&mut a, &ringway_scenes::frame([0xff; 6], mac(1), 0));
    assert!(receive(&mut b, ringway_scenes::PATIENCE).is_some_and(|frame| frame[..6] == [0xff; 6]));
}
