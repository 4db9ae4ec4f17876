//! A guest migrates from one QEMU to another under traffic. `events` calls this for its guest.

use ringway_guests::{Builder, Guest, bulk};
use ringway_scenes::until;

use crate::features::{MIB, pings};
use crate::pair::Pair;
use crate::scene::address;

/// The TCP port of the data.
const PORT: u16 = 7000;

/// Moves guest number `number`, whose NIC is on the switch of the pair's first NICs, from the port `here` to the port `there`, for which
/// `target` is made, without a wrong byte. Returns the guest that has moved.
pub fn to_another_port(pair: &Pair, moving: Guest, number: usize, [here, there]: [&str; 2], target: &Builder) -> Guest {
    println!("moves to another port");
    let (daemon, staying) = (&pair.daemon, &pair.guests[1]);
    for guest in [&moving, staying] {
        bulk::make(guest, MIB).unwrap();
    }
    pings(&moving, &address(1, 0), &[64]).unwrap();

    let receivers = [bulk::receive(staying, PORT).unwrap(), bulk::receive(&moving, PORT).unwrap()];
    let senders = [
        moving.start(&bulk::send_until_stopped(&address(1, 0), PORT)).unwrap(),
        staying.start(&bulk::send_until_stopped(&address(number, 0), PORT)).unwrap(),
    ];
    let before = daemon.port(here)["in"]["frames"].as_u64().unwrap();
    until("traffic flows", || daemon.port(here)["in"]["frames"].as_u64().is_some_and(|frames| frames > before + 100));
    let moved = moving.migrate(target).unwrap();

    let frames = || daemon.port(there)["in"]["frames"].as_u64();
    until("the traffic follows the guest", || frames() > Some(100));
    let guests = [&moved, staying];
    guests.iter().for_each(|guest| bulk::stop(guest, PORT).unwrap());
    for ((from, to), (sender, receiver)) in [(0, 1), (1, 0)].into_iter().zip(senders.iter().zip(&receivers)) {
        let times = bulk::sent(guests[from], sender).unwrap();
        let came = bulk::received(guests[to], receiver).unwrap();
        let sum = bulk::sum_of(guests[from], times).unwrap();
        assert!(sum == came, "{times} MiB from guest {from} arrived changed");
    }
    pings(staying, &address(number, 0), &[1, 1472]).unwrap();
    assert_eq!(daemon.port(there)["state"], "up");
    assert_ne!(daemon.port(here)["state"], "up");
    moved
}
