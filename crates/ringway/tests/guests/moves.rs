//! A guest migrates from one QEMU to another under traffic.

use ringway_guests::{Guest, bulk};

use crate::features::pings;
use crate::scene::{address, addresses, boot, mac, nic, port, turn};
use ringway_scenes::{Daemon, until};

/// The TCP port of the data.
const PORT: u16 = 7000;

#[test]
fn a_guest_moves_to_another_port_under_traffic_without_a_wrong_byte() {
    let Some(_turn) = turn() else { return };
    let ports: String = ["vm0", "vm1", "there"].map(|name| port(name, "lan0", "")).concat();
    let daemon = Daemon::start(&format!("[switch.lan0]\n{ports}"));
    // The less memory, the sooner all of it has moved.
    let on =
        |name: &str, number: usize| Guest::builder(name).memory_mib(128).nic(nic(&daemon, name).mac(&mac(number, 0)));
    let [moving, staying] = boot([on("vm0", 0), on("vm1", 1)]);
    addresses(&moving, 0, 1);
    addresses(&staying, 1, 1);
    for guest in [&moving, &staying] {
        bulk::make(guest, 1).unwrap();
    }
    pings(&moving, &address(1, 0), &[64]).unwrap();

    let receivers = [bulk::receive(&staying, PORT).unwrap(), bulk::receive(&moving, PORT).unwrap()];
    let senders = [
        moving.start(&bulk::send_until_stopped(&address(1, 0), PORT)).unwrap(),
        staying.start(&bulk::send_until_stopped(&address(0, 0), PORT)).unwrap(),
    ];
    until("traffic flows", || daemon.port("vm0")["in"]["frames"].as_u64() > Some(100));
    let moved = moving.migrate(&on("there", 0)).unwrap();

    let frames = || daemon.port("there")["in"]["frames"].as_u64();
    until("the traffic follows the guest", || frames() > Some(100));
    let guests = [&moved, &staying];
    guests.iter().for_each(|guest| bulk::stop(guest, PORT).unwrap());
    for ((from, to), (sender, receiver)) in [(0, 1), (1, 0)].into_iter().zip(senders.iter().zip(&receivers)) {
        let times = bulk::sent(guests[from], sender).unwrap();
        let came = bulk::received(guests[to], receiver).unwrap();
        let sum = bulk::sum_of(guests[from], times).unwrap();
        assert!(sum == came, "{times} MiB from guest {from} arrived changed");
    }
    pings(&staying, &address(0, 0), &[1, 1472]).unwrap();
    assert_eq!(daemon.port("there")["state"], "up");
    assert_ne!(daemon.port("vm0")["state"], "up");
}
