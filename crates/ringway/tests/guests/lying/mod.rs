//! A NIC that lies to the driver of the guest: a server of vfio-user in this process, which is an honest 82540EM until a test
//! tells it a lie.
//!
//! - `chip`: registers, EEPROM, PHY; `rings`: frames in descriptor rings; `station`: who answers them; `card`: all of that on
//!   a socket.
//! - `lie`: what the card lies about.

mod card;
mod chip;
mod lie;
mod rings;
mod station;

use ringway_guests::{Guest, Qemu};
use ringway_testing::{PATIENCE, skip};

use crate::scene;
use card::Card;

/// Subsystems: of a card of Intel's, and of one with a status block.
const PLAIN: u16 = 0x001e;

/// Kernel arguments: whoever writes beyond an object, or to freed memory, is found, and what a device writes reaches the guest by
/// copies, in the lengths that drivers name.
const CHECKED: &str = "slub_debug=FZPU page_poison=1 init_on_free=1 swiotlb=force";

#[test]
fn a_card_that_does_not_lie_carries_frames_for_an_unmodified_driver() {
    let Some(_turn) = scene::turn() else { return };
    if let Some(why) = Qemu::no_vfio_user() {
        skip::note(format!("needs a QEMU with vfio-user: {why}"));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let card = Card::start(&dir.path().join("card.sock"), [0x52, 0x54, 0, 0, 0, 9], PLAIN);
    let guest = Guest::builder("plain").nic(card.nic()).kernel_args(CHECKED).start().unwrap();
    guest.ok("ip link set eth0 up; ip addr add 10.9.0.1/24 dev eth0").unwrap();
    guest.until("ping -c 1 -W 1 10.9.0.2", PATIENCE).unwrap();
    // Frames in several descriptors.
    crate::features::pings(&guest, "10.9.0.2", &[64, 4000]).unwrap();
    assert_eq!(card.faults(), [""; 0]);
}
