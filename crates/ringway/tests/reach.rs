//! Who may reach whom: uplinks, allowed pairs, the rules of a switch, the MAC map.

mod support;

use std::time::Duration;

use ringway_client::Port;
use support::{Daemon, receive, send, until};

fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

/// Ports `p1`, `p2`, … with what follows their switch and kind; each bound to the address of its number.
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

/// Sends a frame from port `from`, with the address of another than itself if need be. Gives who heard it.
fn heard_by(daemon: &Daemon, clients: &mut [Port], from: u8, source: u8, to: [u8; 6]) -> Vec<u8> {
    let port = format!("p{from}");
    let taken = || daemon.port(&port)["in"]["frames"].as_u64();
    let before = taken();
    send(&mut clients[usize::from(from) - 1], &support::frame(to, mac(source), from));
    // When another has been taken after it, all has happened with this one.
    for frames in 1..3 {
        until("the frame is taken", || taken() == before.map(|before| before + frames));
        if frames == 1 {
            send(&mut clients[usize::from(from) - 1], &support::frame(mac(from), mac(from), from));
        }
    }
    let heard = (1..).zip(clients).filter(|(n, _)| *n != from);
    heard.filter_map(|(n, client)| receive(client, Duration::ZERO).map(|_| n)).collect()
}

const NOBODY: [u8; 0] = [];

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
        let heard = heard_by(&daemon, clients, from, from, mac(to));
        assert_eq!(heard, if wanted { vec![to] } else { Vec::new() }, "{from} to {to}");
    }
    assert_eq!(heard_by(&daemon, clients, 1, 1, mac(77)), [4], "what is for nobody here leaves by its uplink");
    assert_eq!(heard_by(&daemon, clients, 2, 2, mac(77)), [4], "the first of all");
    assert_eq!(heard_by(&daemon, clients, 4, 77, mac(78)), NOBODY, "and stays out");
    assert_eq!(heard_by(&daemon, clients, 4, 77, mac(1)), [1]);
    assert_eq!(heard_by(&daemon, clients, 1, 1, [0xff; 6]), [2, 4]);
    let drops = |port: &str, reason: &str| daemon.port(port)["drops"][reason].as_u64();
    assert_eq!((drops("p1", "pair_denied"), drops("p1", "uplink_denied")), (Some(1), Some(1)));
    assert_eq!((drops("p5", "uplink_denied"), drops("p4", "no_destination")), (Some(1), Some(1)));

    daemon.ok(&["port", "set", "p1", "allow=all", "uplinks=[\"p5\"]"]);
    daemon.ok(&["port", "set", "p3", "allow=p1"]);
    assert_eq!(heard_by(&daemon, clients, 1, 1, mac(3)), [3]);
    assert_eq!(heard_by(&daemon, clients, 1, 1, mac(77)), [5]);
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
    assert_eq!(heard_by(&daemon, clients, 1, 1, mac(2)), NOBODY);
    assert_eq!(heard_by(&daemon, clients, 1, 1, mac(77)), [3]);
    assert_eq!(heard_by(&daemon, clients, 3, 77, mac(1)), [1]);
    assert_eq!(heard_by(&daemon, clients, 3, 77, mac(78)), NOBODY);
    assert_eq!(heard_by(&daemon, clients, 3, 2, mac(1)), NOBODY, "a machine's address from outside");
    let drops = |port: &str, reason: &str| daemon.port(port)["drops"][reason].as_u64();
    assert!(drops("p1", "local_denied") >= Some(1), "{}", daemon.port("p1"));
    assert_eq!((drops("p3", "transit_denied"), drops("p3", "spoofed_mac")), (Some(1), Some(1)));
}
