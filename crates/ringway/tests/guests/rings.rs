//! Guests change the size of their rings, and read what the back end offers.

use crate::features::{pings, transfer};
use crate::pair::{PAIR, RINGS};
use crate::scene::address;

/// QEMU (7.2 to 11.1) does not tell the back end that a guest has reset a ring. A guest that is offered the reset (`ring_reset`) loses
/// its NIC with the first one.
#[test]
fn a_guest_of_qemu_that_wants_other_rings_keeps_its_nic() {
    let Some(pair) = PAIR.turn() else { return };
    let guests = &pair.guests;
    for (from, to) in [(0, 1), (1, 0)] {
        let said = guests[from].run(&format!("ethtool -G eth{RINGS} rx 512 tx 256")).unwrap();
        assert_ne!(said.status, 0, "{said:?}");
        pings(&guests[from], &address(to, RINGS), &[64, 1472]).unwrap();
        transfer(&guests[from], &guests[to], &address(to, RINGS)).unwrap();
    }
    pair.no_faults();
}
