//! Guests change the size of their rings, and read what the back end offers.

use ringway_guests::Guest;
use ringway_scenes::Daemon;

use crate::features::{pings, transfer};
use crate::scene::{address, addresses, boot, mac, nic, port, turn};

/// QEMU (7.2 to 11.1) does not tell the back end that a guest has reset a ring. A guest that is offered the reset (`ring_reset`) loses
/// its NIC with the first one.
#[test]
fn a_guest_of_qemu_that_wants_other_rings_keeps_its_nic() {
    let Some(_turn) = turn() else { return };
    let ports = [0, 1].map(|number| port(&format!("vm{number}"), "lan0", &format!("mac = [\"{}\"]", mac(number, 0))));
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", ports.concat()));
    let builder = |number: usize| {
        let name = format!("vm{number}");
        let nic = nic(&daemon, &name).mac(&mac(number, 0)).option("rx_queue_size=1024,tx_queue_size=1024");
        Guest::builder(&name).nic(nic)
    };
    // The host's QEMU and the newest.
    let guests = boot([builder(0), builder(1).vfio_user_qemu()]);
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number, 1);
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let said = guests[from].run("ethtool -G eth0 rx 512 tx 256").unwrap();
        assert_ne!(said.status, 0, "{said:?}");
        pings(&guests[from], &address(to, 0), &[64, 1472]).unwrap();
        transfer(&guests[from], &guests[to], &address(to, 0)).unwrap();
    }
    assert!(daemon.status()["faults"].as_array().is_none_or(Vec::is_empty), "{}", daemon.ok(&["status"]));
}
