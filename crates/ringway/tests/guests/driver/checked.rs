//! The driver, and the kernel's, in a kernel that checks itself.

use super::*;
use crate::e1000::{talk, turn};

#[test]
#[ignore = "builds a kernel: make guests"]
fn a_kernel_with_checks_finds_no_fault_in_the_driver() {
    let Some(_turn) = turn() else { return };
    let daemon = Daemon::start(&ports());
    let guests = boot([builder(&daemon, 0).kernel(Release::Debug), builder(&daemon, 1)]);
    for (number, guest) in guests.iter().enumerate() {
        settle(guest, number);
    }
    for nic in 0..=OTHER {
        talk(&guests, nic).unwrap();
    }
    tell(&guests[0], "ip link set eth0 down; ip link set eth1 down; rmmod ringway_e1000").unwrap();
    assert_eq!(guests[0].kernel_complaints().unwrap(), [""; 0]);
    no_faults(&daemon);
}
