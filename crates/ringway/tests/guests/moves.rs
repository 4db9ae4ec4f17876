//! A guest migrates from one QEMU to another under traffic.

use ringway_guests::{Guest, bulk};

use crate::features::{MIB, pings};
use crate::pair::PAIR;
use crate::scene::{address, addresses, mac, nic};
use ringway_scenes::until;

/// The TCP port of the data.
const PORT: u16 = 7000;

/// The number of the guest that moves. Its NIC is on the switch of the pair's first NICs.
const MOVING: usize = 2;

#[test]
fn a_guest_moves_to_another_port_under_traffic_without_a_wrong_byte() {
    let Some(pair) = PAIR.turn() else { return };
    let (daemon, staying) = (&pair.daemon, &pair.guests[1]);
    for name in ["here", "there"] {
        daemon.ok(&["port", "add", name, "switch=lan0", "kind=vhost-user", &format!("socket={name}.sock")]);
    }
    // The less memory, the sooner all of it has moved.
    let on = |name: &str| Guest::builder(name).memory_mib(128).nic(nic(daemon, name).mac(&mac(MOVING, 0)));
    let moving = on("here").start().unwrap();
    addresses(&moving, MOVING, 1);
    for guest in [&moving, staying] {
        bulk::make(guest, MIB).unwrap();
    }
    pings(&moving, &address(1, 0), &[64]).unwrap();

    let receivers = [bulk::receive(staying, PORT).unwrap(), bulk::receive(&moving, PORT).unwrap()];
    let senders = [
        moving.start(&bulk::send_until_stopped(&address(1, 0), PORT)).unwrap(),
        staying.start(&bulk::send_until_stopped(&address(MOVING, 0), PORT)).unwrap(),
    ];
    until("traffic flows", || daemon.port("here")["in"]["frames"].as_u64() > Some(100));
    let moved = moving.migrate(&on("there")).unwrap();

    let frames = || daemon.port("there")["in"]["frames"].as_u64();
    until("the traffic follows the guest", || frames() > Some(100));
    let guests = [&moved, staying];
    guests.iter().for_each(|guest| bulk::stop(guest, PORT).unwrap());
    for ((from, to), (sender, receiver)) in [(0, 1), (1, 0)].into_iter().zip(senders.iter().zip(&receivers)) {
        let times = bulk::sent(guests[from], sender).unwrap();
        let came = bulk::received(guests[to], receiver).unwrap();
        let sum = bulk::sum_of(guests[from], times).unwrap();
        assert!(sum == came, "{times} MiB from guest {from} arrived changed");
    }
    pings(staying, &address(MOVING, 0), &[1, 1472]).unwrap();
    assert_eq!(daemon.port("there")["state"], "up");
    assert_ne!(daemon.port("here")["state"], "up");
    drop(moved);
    daemon.ok(&["port", "del", "here"]);
    daemon.ok(&["port", "del", "there"]);
}
