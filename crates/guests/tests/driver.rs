//! Guests with the driver of `guest/linux`, on QEMU's own NICs.

use ringway_guests::{Guest, Nic};
use ringway_testing::skip;

/// Returns the builder of a guest with one of QEMU's 82540EM, whose subsystem id is not 0x1101.
fn builder(name: &str) -> ringway_guests::Builder {
    Guest::builder(name).memory_mib(128).nic(Nic::netdev("hubport,hubid=0").model("e1000"))
}

#[test]
fn the_own_driver_takes_other_nics_only_if_it_is_told_to() {
    if std::env::var_os("RINGWAY_NO_QEMU").is_some() {
        skip!("guests are left out, as RINGWAY_NO_QEMU is set");
    }
    const OF_EVERY_NIC: &str = "cd /sys/bus/pci/devices; grep -l 0x100e */device | while read nic; do \
                                basename $(readlink ${nic%device}driver || echo none); cat ${nic%device}driver_override; done";
    let guest = builder("some").own_driver("").start().unwrap();
    assert_eq!(guest.ok(OF_EVERY_NIC).unwrap(), "e1000\n(null)\n");
    guest.ok("test -e /sys/module/ringway_e1000").unwrap();
    let guest = builder("all").own_driver_for_all("combine=off csb=off").start().unwrap();
    assert!(guest.ok(OF_EVERY_NIC).unwrap().ends_with("\nringway_e1000\n"));
}
