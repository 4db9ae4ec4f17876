//! A program in a guest drives the guest's e1000 or e1000e itself: QEMU's, or Ringway's.

use ringway_guests::{Guest, Nic, Qemu};
use ringway_scenes::{Daemon, binary};
use ringway_testing::skip;

use crate::own_nic::{Scene, assert_unaltered, gen_in, modules, number};
use crate::scene::{mac, turn};
use crate::streams;

/// QEMU's own NICs.
const OF_QEMU: [&str; 2] = ["e1000", "e1000e"];
/// Ringway's NICs: keys of their ports.
const OF_RINGWAY: [&str; 4] = [
    "",
    "csb = true\n",
    "model = \"e1000e\"\nregisters = \"mapped\"\n",
    "model = \"e1000e\"\nregisters = \"trapped\"\n",
];

/// Starts a guest with QEMU's own NICs on stream ports.
fn with_qemus() -> Scene {
    let config: String = (0..OF_QEMU.len()).map(|nic| streams::port(&format!("vm{nic}"), "lan0", "server")).collect();
    start(&config, OF_QEMU.len(), |daemon, nic| {
        let socket = daemon.runtime_dir().join(format!("vm{nic}.sock"));
        Nic::stream(socket).model(OF_QEMU[nic]).mac(&mac(0, nic))
    })
}

/// Starts a guest with Ringway's NICs.
fn with_ringways(idle: &str) -> Option<Scene> {
    if let Some(why) = Qemu::no_vfio_user() {
        skip::note(format!("needs a QEMU with vfio-user: {why}"));
        return None;
    }
    let ports = OF_RINGWAY.iter().enumerate().map(|(nic, keys)| {
        let mac = mac(0, nic);
        format!("[port.vm{nic}]\nswitch = \"lan0\"\nkind = \"e1000\"\nmac = \"{mac}\"\n{keys}")
    });
    let ports: String = ports.collect();
    let config = format!("[engine]\nidle = \"{idle}\"\n{ports}");
    Some(start(&config, OF_RINGWAY.len(), |daemon, nic| {
        Nic::vfio_user(daemon.runtime_dir().join(format!("vm{nic}.sock")))
    }))
}

/// Starts a guest with NICs that programs may have. NIC `n` is at the port `vmN`.
fn start(ports: &str, nics: usize, nic: impl Fn(&Daemon, usize) -> Nic) -> Scene {
    let daemon = Daemon::start(&format!("[switch.lan0]\n{ports}"));
    let builder = Guest::builder("vm").program(binary());
    let guest = (0..nics).fold(builder, |builder, number| builder.nic(nic(&daemon, number))).start().unwrap();
    streams::name(&guest);
    let unbind = |number| {
        let address = guest.ok(&format!("basename $(readlink -f /sys/class/net/eth{number}/device)")).unwrap();
        let address = address.trim().to_owned();
        guest.ok(&format!("echo {address} >/sys/bus/pci/devices/{address}/driver/unbind")).unwrap();
        address
    };
    let nics = (0..nics).map(unbind).collect();
    modules(&guest);
    guest.ok("echo 40 >/proc/sys/vm/nr_hugepages").unwrap();
    Scene { daemon, guest, nics }
}

#[test]
fn a_program_in_a_guest_drives_qemus_nics_by_polling() {
    let Some(_turn) = turn() else { return };
    let scene = with_qemus();
    for (nic, what) in OF_QEMU.iter().enumerate() {
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
    let Some(_turn) = turn() else { return };
    // A poller that sleeps wants to be told, and a busy machine decides how often it does.
    let Some(scene) = with_ringways("spin") else { return };
    for (nic, what) in OF_RINGWAY.iter().enumerate() {
        let messages = || number(&scene.daemon.port(&format!("vm{nic}")), "/e1000/messages");
        let cost = |action: &dyn Fn()| {
            let before = messages();
            action();
            messages() - before
        };
        let set_up = cost(&|| drop(gen_in(&scene.guest, &format!("tx --pci {} --count 1 --spin", scene.nics[nic]))));
        let sent = cost(&|| drop(scene.sends(nic, "--spin --batch 32"))).saturating_sub(set_up);
        let received = cost(&|| drop(scene.receives(nic, "--spin"))).saturating_sub(set_up);
        println!("{what}: messages for a start {set_up}, 9,000 sent frames {sent}, 5,000 received {received}");
        if what.contains("csb") || what.contains("mapped") {
            assert!(sent <= 90 && received <= 50, "one register access for a hundred frames: {sent}, {received}");
        }
        assert_eq!(scene.answers(nic, "--spin").0, 0, "{what}: nothing wakes a program that polls");
    }
    // Between two models, and long frames.
    for (pair, size, buffers) in [([0, 2], 1514, 2048), ([1, 3], 9014, 16_384), ([0, 1], 16_110, 16_384)] {
        let [near, far] = pair.map(|nic| &scene.nics[nic]);
        let more = format!("--size {size} --buffer-size {buffers} --both --check full --duration 500ms");
        let looped = gen_in(&scene.guest, &format!("loop --pci {near} --pci {far} {more}"));
        println!("{looped}");
        for station in looped["stations"].as_array().unwrap() {
            assert!(number(station, "/received") > 0, "{looped}");
            assert_unaltered(station);
        }
    }
}

#[test]
fn a_program_in_a_guest_sleeps_until_qemus_nic_wakes_it() {
    let Some(_turn) = turn() else { return };
    let scene = with_qemus();
    for (nic, what) in OF_QEMU.iter().enumerate() {
        wakes(&scene, nic, what);
        scene.messages(nic, *what != "e1000");
    }
}

#[test]
fn a_program_in_a_guest_sleeps_until_ringways_nic_wakes_it() {
    let Some(_turn) = turn() else { return };
    let Some(scene) = with_ringways("adaptive") else { return };
    for (nic, what) in OF_RINGWAY.iter().enumerate() {
        wakes(&scene, nic, what);
        let [sent, _] = scene.messages(nic, true);
        assert!(sent < 1000, "{what}: the NIC segments whole buffers: {sent} frames for 5,000 messages");
    }
}

fn wakes(scene: &Scene, nic: usize, what: &str) {
    scene.sends(nic, "");
    scene.receives(nic, "");
    // Most answers of a busy machine are there before the program is asleep.
    assert!(scene.pings(nic, "") > 0, "{what} wakes the program");
    // Every wake-up needs the interrupt line open again.
    assert!(scene.answers(nic, "").0 > 20, "{what} wakes the program");
    // An interrupt comes late if the program has looked meanwhile. The kernel gives a line up if it finds no cause for 99.9 % of its
    // interrupts, which it counts from the first one without a cause.
    let path = format!("/proc/irq/$(cat /sys/bus/pci/devices/{}/irq)/spurious", scene.nics[nic]);
    let spurious = scene.guest.ok(&format!("cat {path}")).unwrap();
    println!("interrupts of NIC {nic}: {spurious}");
    let counted = |name: &str| spurious.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let (count, unhandled) = (counted("count ").unwrap(), counted("unhandled ").unwrap());
    assert!(unhandled < 1000 || unhandled < count / 10 * 9, "{what}: {spurious}");
}
