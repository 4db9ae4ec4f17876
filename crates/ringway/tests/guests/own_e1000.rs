//! A program in a guest drives the guest's e1000 or e1000e itself: QEMU's, or Ringway's.

use crate::own_nic::{self, Scene, gen_in, its_turn, number};
use crate::scene::{is_whole, mac};

/// QEMU's own NICs.
pub const OF_QEMU: [&str; 2] = ["e1000", "e1000e"];
/// Ringway's NICs: keys of their ports.
pub const OF_RINGWAY: [&str; 4] = [
    "",
    "csb = true\n",
    "model = \"e1000e\"\nregisters = \"mapped\"\n",
    "model = \"e1000e\"\nregisters = \"trapped\"\n",
];

/// Returns the configuration of the port of one of Ringway's NICs.
pub fn port(name: &str, nic: usize, keys: &str) -> String {
    format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"e1000\"\nmac = \"{}\"\n{keys}", mac(0, nic))
}

/// QEMU's own NICs with their numbers, and Ringway's.
fn of_qemu() -> impl Iterator<Item = (usize, &'static str)> {
    (own_nic::OF_QEMU..).zip(OF_QEMU)
}

fn of_ringway() -> impl Iterator<Item = (usize, &'static str)> {
    (own_nic::OF_RINGWAY..).zip(OF_RINGWAY)
}

#[test]
#[ignore = "as with Ringway's NICs: make guests"]
fn a_program_in_a_guest_drives_qemus_nics_by_polling() {
    let Some(scene) = its_turn() else { return };
    for (nic, what) in of_qemu() {
        scene.sends(nic, "--spin");
        scene.receives(nic, "--spin");
        assert_eq!(scene.answers(nic, "--spin").0, 0, "{what}: nothing wakes a program that polls");
        let long = format!("ringway gen tx --pci {} --size 2000 --count 1", scene.nics[nic]);
        let said = scene.guest.run(&long).unwrap();
        assert!(said.status != 0 && said.text.contains("a frame of 2000 bytes: "), "{said:?}");
    }
}

#[test]
fn a_program_in_a_guest_drives_ringways_nics_by_polling() {
    let Some(scene) = its_turn() else { return };
    // A poller that sleeps wants to be told, and a busy machine decides how often it does.
    scene.idles("spin");
    // Those with a status block and mapped registers, whose registers a program need not access.
    for (nic, what) in of_ringway().filter(|(_, what)| what.contains("csb") || what.contains("mapped") || is_whole()) {
        let messages = || number(&scene.daemon.port(&format!("vm{nic}")), "/e1000/messages");
        let cost = |action: &dyn Fn()| {
            let before = messages();
            action();
            messages() - before
        };
        let set_up = cost(&|| drop(gen_in(&scene.guest, &format!("tx --pci {} --count 1 --spin", scene.nics[nic]))));
        let sent = cost(&|| drop(scene.sends(nic, "--spin --batch 32"))).saturating_sub(set_up);
        let received = cost(&|| drop(scene.receives(nic, "--spin"))).saturating_sub(set_up);
        println!("{what}: messages for a start {set_up}, 3,000 sent frames {sent}, 1,000 received {received}");
        if what.contains("csb") || what.contains("mapped") {
            assert!(sent <= 30 && received <= 10, "one register access for a hundred frames: {sent}, {received}");
        }
        assert_eq!(scene.answers(nic, "--spin").0, 0, "{what}: nothing wakes a program that polls");
    }
    scene.idles("adaptive");
    // Between two models, and long frames.
    for (pair, size, buffers) in [([0, 2], 1514, 2048), ([1, 3], 9014, 16_384), ([0, 1], 16_110, 16_384)] {
        let [near, far] = pair.map(|nic| own_nic::OF_RINGWAY + nic);
        scene.loops(near, far, &format!("--size {size} --buffer-size {buffers}"));
    }
}

#[test]
fn a_program_in_a_guest_sleeps_until_qemus_nic_wakes_it() {
    let Some(scene) = its_turn() else { return };
    for (nic, what) in of_qemu() {
        wakes(&scene, nic, what);
        // The one without segmentation says so.
        scene.messages(nic, what != "e1000");
    }
}

#[test]
fn a_program_in_a_guest_sleeps_until_ringways_nic_wakes_it() {
    let Some(scene) = its_turn() else { return };
    for (nic, what) in of_ringway() {
        wakes(&scene, nic, what);
        // Registers alone, and a status block.
        if nic >= own_nic::OF_RINGWAY + 2 && !is_whole() {
            continue;
        }
        let [sent, _] = scene.messages(nic, true);
        assert!(sent < own_nic::MESSAGES / 5, "{what}: the NIC segments whole buffers: {sent} frames for all messages");
    }
}

fn wakes(scene: &Scene, nic: usize, what: &str) {
    if is_whole() {
        scene.sends(nic, "");
        scene.receives(nic, "");
    }
    // Most answers of a busy machine are there before the program is asleep.
    assert!(scene.pings(nic, "") > 0, "{what} wakes the program");
    // Every wake-up needs the interrupt line open again.
    assert!(scene.answers(nic, "").0 > 2, "{what} wakes the program");
    // An interrupt comes late if the program has looked meanwhile. The kernel gives a line up if it finds no cause for 99.9 % of its
    // interrupts, which it counts from the first one without a cause.
    let path = format!("/proc/irq/$(cat /sys/bus/pci/devices/{}/irq)/spurious", scene.nics[nic]);
    let spurious = scene.guest.ok(&format!("cat {path}")).unwrap();
    println!("interrupts of NIC {nic}: {spurious}");
    let counted = |name: &str| spurious.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let (count, unhandled) = (counted("count ").unwrap(), counted("unhandled ").unwrap());
    assert!(unhandled < 1000 || unhandled < count / 10 * 9, "{what}: {spurious}");
}
