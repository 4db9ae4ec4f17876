//! Segments that a guest cuts itself.

use ringway_guests::{Guest, bulk};
use ringway_scenes::Daemon;
use ringway_testing::snmp;

use crate::scene::{address, addresses, boot, mac, nic, port, turn};

/// The sender writes checksums or not. The receiver is given the segments joined, every byte of them, and finds no wrong checksum.
#[test]
fn segments_that_a_guest_cuts_itself_reach_the_other_one_joined() {
    let Some(_turn) = turn() else { return };
    let names = ["vm0", "vm1"];
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", names.map(|name| port(name, "lan0", "")).concat()));
    let guests = boot(
        [0, 1].map(|number: usize| Guest::builder(names[number]).nic(nic(&daemon, names[number]).mac(&mac(number, 0)))),
    );
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number, 1);
    }
    for checksums in ["on", "off"] {
        guests[0].ok(&format!("ethtool -K eth0 tx {checksums} tso off")).unwrap();
        for coalesce in ["auto", "off"] {
            daemon.ok(&["port", "set", "vm1", &format!("coalesce={coalesce}")]);
            let joined = || daemon.port("vm1")["coalesced"].as_u64().unwrap();
            let before = joined();
            bulk::transfer(&guests[0], &guests[1], &address(1, 0), 4).unwrap();
            let joined = joined() - before;
            println!("checksums {checksums}, coalesce={coalesce}: {joined} segments joined");
            assert_eq!(joined > 0, coalesce == "auto", "{joined} segments joined, checksums {checksums}");
        }
    }
    let counters = guests[1].ok("cat /proc/net/snmp").unwrap();
    assert_eq!(snmp::counter(&counters, "Tcp", "InCsumErrors"), Some(0), "segments with a wrong checksum");
}
