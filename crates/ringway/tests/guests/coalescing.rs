//! Segments that a guest cuts itself.

use ringway_guests::bulk;
use ringway_testing::snmp;

use crate::features::MIB;
use crate::pair::{self, PAIR};
use crate::scene::address;

/// The pair's NIC with all that QEMU offers.
const NIC: usize = 0;

/// The sender writes checksums or not. The receiver is given the segments joined, every byte of them, and finds no wrong checksum.
#[test]
fn segments_that_a_guest_cuts_itself_reach_the_other_one_joined() {
    let Some(pair) = PAIR.turn() else { return };
    let (daemon, guests, receiver) = (&pair.daemon, &pair.guests, pair::name(1, NIC));
    let wrong = || {
        let counters = guests[1].ok("cat /proc/net/snmp").unwrap();
        snmp::counter(&counters, "Tcp", "InCsumErrors")
    };
    let before = wrong();
    for checksums in ["on", "off"] {
        guests[0].ok(&format!("ethtool -K eth{NIC} tx {checksums} tso off")).unwrap();
        for coalesce in ["auto", "off"] {
            daemon.ok(&["port", "set", &receiver, &format!("coalesce={coalesce}")]);
            let joined = || daemon.port(&receiver)["coalesced"].as_u64().unwrap();
            let before = joined();
            bulk::transfer(&guests[0], &guests[1], &address(1, NIC), MIB).unwrap();
            let joined = joined() - before;
            println!("checksums {checksums}, coalesce={coalesce}: {joined} segments joined");
            assert_eq!(joined > 0, coalesce == "auto", "{joined} segments joined, checksums {checksums}");
        }
    }
    assert_eq!(wrong(), before, "segments with a wrong checksum");
    guests[0].ok(&format!("ethtool -K eth{NIC} tx on; ethtool -K eth{NIC} sg on tso on")).unwrap();
    daemon.ok(&["port", "set", &receiver, "coalesce=auto"]);
}
