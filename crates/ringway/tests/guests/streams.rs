//! Stock QEMU with NICs of all kinds on stream ports.

use ringway_guests::{Builder, Guest, Nic};

use crate::features::{pings, transfer};
use crate::scene::{address, addresses, boot, mac, turn, wait_for};
use ringway_scenes::Daemon;

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
    let number = "$((0x$(cut -d: -f5 /sys/class/net/$n/address)))";
    guest.ok(&format!("for n in $(cd /sys/class/net; echo eth*); do ip link set $n name x{number}; done")).unwrap();
    guest.ok("for n in $(cd /sys/class/net; echo x*); do ip link set $n name eth${n#x}; done").unwrap();
}

const MODELS: [&str; 3] = ["virtio-net-pci", "e1000", "rtl8139"];

#[test]
fn any_model_of_nic_talks_over_a_stream_and_a_killed_qemu_comes_back() {
    let Some(_turn) = turn() else { return };
    let config: String = (0..MODELS.len())
        .map(|lan| format!("[switch.lan{lan}]\n") + &port(&format!("a{lan}"), &format!("lan{lan}"), "server"))
        .chain((0..MODELS.len()).map(|lan| port(&format!("b{lan}"), &format!("lan{lan}"), "client")))
        .collect();
    let daemon = Daemon::start(&config);
    // The second guest's QEMU listens.
    let builder = |guest: usize| -> Builder {
        MODELS.iter().enumerate().fold(Guest::builder(["a", "b"][guest]), |builder, (lan, model)| {
            let nic = Nic::stream(daemon.runtime_dir().join(format!("{}{lan}.sock", ["a", "b"][guest])));
            let nic = if guest == 1 { nic.listen() } else { nic };
            builder.nic(nic.model(model).mac(&mac(guest, lan)))
        })
    };
    let guests = boot([builder(0), builder(1)]);
    for (number, guest) in guests.iter().enumerate() {
        name(guest);
        addresses(guest, number, MODELS.len());
    }
    for (lan, model) in MODELS.iter().enumerate() {
        talk(&guests, lan, model);
    }

    let [first, second] = guests;
    first.kill();
    daemon.until_state("a1", "waiting");
    let again = builder(0).start().unwrap();
    name(&again);
    addresses(&again, 0, MODELS.len());
    let guests = [again, second];
    talk(&guests, 1, "after a killed QEMU was started again");
    let [first, second] = guests;
    second.kill();
    daemon.until_state("b1", "waiting");
    let again = builder(1).start().unwrap();
    name(&again);
    addresses(&again, 1, MODELS.len());
    wait_for(&daemon, "b1", "up");
    talk(&[first, again], 1, "after a killed QEMU that listens was started again");
    assert!(daemon.status()["faults"].as_array().is_none_or(Vec::is_empty), "{}", daemon.ok(&["status"]));
}
