//! Stock QEMU with NICs of all kinds on stream ports.

use ringway_guests::{Builder, Guest, Nic};
use ringway_scenes::Daemon;

use crate::features::{pings, transfer};
use crate::pair::{PAIR, STREAMS};
use crate::scene::{address, addresses, boot, mac, turn};

/// Models of NICs that QEMU has.
pub const MODELS: [&str; 3] = ["virtio-net-pci", "e1000", "rtl8139"];

/// Sends pings of all sizes, both ways.
fn talk(guests: &[Guest; 2], nic: usize, when: &str) {
    println!("{when}");
    for (from, to) in [(0, 1), (1, 0)] {
        let done = pings(&guests[from], &address(to, nic), &[0, 64, 1472, 20_000])
            .and_then(|()| transfer(&guests[from], &guests[to], &address(to, nic)));
        done.unwrap_or_else(|why| panic!("{when}: {why}"));
    }
}

/// Returns the configuration of a stream port.
pub fn port(name: &str, switch: &str, role: &str) -> String {
    format!("[port.{name}]\nswitch = \"{switch}\"\nkind = \"stream\"\nrole = \"{role}\"\n")
}

/// Renames the NICs in the order of their addresses. The kernel names them in the order of their drivers.
pub fn name(guest: &Guest) {
    // Without programs of their own, which take 10 ms each.
    let number = "read mac <$n/address; mac=${mac#*:*:*:*:}; x=$((0x${mac%:*}))";
    let other = "[ $n = eth$x ] || { ip link set $n name x$x; names=\"$names $x\"; }";
    let rename = "for x in $names; do ip link set x$x name eth$x; done";
    guest.ok(&format!("cd /sys/class/net; for n in eth*; do {number}; {other}; done; {rename}")).unwrap();
}

#[test]
fn any_model_of_nic_talks_over_a_stream() {
    let Some(pair) = PAIR.turn() else { return };
    for (nic, model) in (STREAMS..).zip(MODELS) {
        talk(&pair.guests, nic, model);
    }
    pair.no_faults();
}

/// The port's side of a QEMU that comes and goes. Whether frames flow afterwards is asked by [`any_model_of_nic_talks_over_a_stream`] after a
/// first connection, and after others by `restarts`.
#[test]
fn a_killed_qemu_comes_back_to_its_stream_in_both_roles() {
    let Some(_turn) = turn() else { return };
    let ports = ["server", "client"].map(|role| port(role, "lan0", role)).concat();
    let daemon = Daemon::start(&format!("[switch.lan0]\n{ports}"));
    let start = || {
        let nic = |role: &str| Nic::stream(daemon.socket(&format!("{role}.sock"))).model("e1000");
        Guest::builder("vm").nic(nic("server")).nic(nic("client").listen()).start().unwrap()
    };
    let both = |state: &str| ["server", "client"].iter().for_each(|port| daemon.until_state(port, state));
    for _ in 0..2 {
        let guest = start();
        both("up");
        guest.kill();
        both("waiting");
    }
    let guest = start();
    both("up");
    drop(guest);
    assert!(daemon.status()["faults"].as_array().is_none_or(Vec::is_empty), "{}", daemon.ok(&["status"]));
}

/// The same with frames.
#[test]
#[ignore = "boots four guests: make guests"]
fn guests_talk_when_a_killed_qemu_has_come_back_to_its_stream() {
    let Some(_turn) = turn() else { return };
    let config = port("a0", "lan0", "server") + &port("b0", "lan0", "client");
    let daemon = Daemon::start(&format!("[switch.lan0]\n{config}"));
    // The second guest's QEMU listens.
    let builder = |guest: usize| -> Builder {
        let nic =
            Nic::stream(daemon.socket(&format!("{}0.sock", ["a", "b"][guest]))).model("e1000").mac(&mac(guest, 0));
        Guest::builder(["a", "b"][guest]).nic(if guest == 1 { nic.listen() } else { nic })
    };
    let guests = boot([builder(0), builder(1)]);
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number, 1);
    }
    let [first, second] = guests;
    first.kill();
    daemon.until_state("a0", "waiting");
    let again = builder(0).start().unwrap();
    addresses(&again, 0, 1);
    let guests = [again, second];
    talk(&guests, 0, "after a killed QEMU was started again");
    let [first, second] = guests;
    second.kill();
    daemon.until_state("b0", "waiting");
    let again = builder(1).start().unwrap();
    addresses(&again, 1, 1);
    daemon.until_state("b0", "up");
    talk(&[first, again], 0, "after a killed QEMU that listens was started again");
    assert!(daemon.status()["faults"].as_array().is_none_or(Vec::is_empty), "{}", daemon.ok(&["status"]));
}
