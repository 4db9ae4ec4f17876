//! A guest migrates from one QEMU to another under traffic.

use ringway_guests::Guest;
use ringway_guests::bulk::{self, TRANSFER};

use crate::features::pings;
use crate::scene::{address, addresses, boot, mac, nic, port, turn};
use ringway_scenes::{Daemon, until};

/// Number of copies of the data, 40 MiB each way: several times what the guests move while one of them migrates.
const TIMES: u32 = 10;

#[test]
fn a_guest_moves_to_another_port_under_traffic_without_a_wrong_byte() {
    let Some(_turn) = turn() else { return };
    let ports: String = ["vm0", "vm1", "there"].map(|name| port(name, "lan0", "")).concat();
    let daemon = Daemon::start(&format!("[switch.lan0]\n{ports}"));
    let on = |name: &str, number: usize| Guest::builder(name).nic(nic(&daemon, name).mac(&mac(number, 0)));
    let [moving, staying] = boot([on("vm0", 0), on("vm1", 1)]);
    addresses(&moving, 0, 1);
    addresses(&staying, 1, 1);
    for guest in [&moving, &staying] {
        bulk::make(guest, 4).unwrap();
    }
    pings(&moving, &address(1, 0), &[64]).unwrap();

    let sums = [&moving, &staying].map(|guest| bulk::sum_of(guest, TIMES).unwrap());
    let receivers = [bulk::receive(&staying, 7000).unwrap(), bulk::receive(&moving, 7000).unwrap()];
    let senders = [
        moving.start(&bulk::send(&address(1, 0), 7000, TIMES)).unwrap(),
        staying.start(&bulk::send(&address(0, 0), 7000, TIMES)).unwrap(),
    ];
    until("traffic flows", || daemon.port("vm0")["in"]["frames"].as_u64() > Some(1000));
    let moved = moving.migrate(&on("there", 0)).unwrap();

    assert_eq!(moved.wait(&senders[0], TRANSFER).unwrap().status, 0);
    assert_eq!(staying.wait(&senders[1], TRANSFER).unwrap().status, 0);
    let came = bulk::received(&staying, &receivers[0]).unwrap();
    assert!(sums[0] == came, "data from the moving guest arrived changed");
    let came = bulk::received(&moved, &receivers[1]).unwrap();
    assert!(sums[1] == came, "data to the moving guest arrived changed");
    pings(&staying, &address(0, 0), &[1, 1472]).unwrap();
    assert_eq!(daemon.port("there")["state"], "up");
    assert_ne!(daemon.port("vm0")["state"], "up");
    let there = daemon.port("there");
    assert!(there["in"]["frames"].as_u64() > Some(100), "the traffic does not follow the guest: {there}");
}
