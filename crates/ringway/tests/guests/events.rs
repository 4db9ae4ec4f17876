//! Events of a guest: its settings change, its driver is removed and loaded, it reboots, it is stopped, it is killed.

use std::time::{Duration, Instant};

use ringway_guests::{Builder, Guest, bulk};

use crate::features::{pings, transfer};
use crate::scene::{address, addresses, boot, mac, nic, port, turn};
use ringway_scenes::{Daemon, frame, until};

/// Addresses of the third guest (see [`mac`]) and of the program that sends frames to it.
const STOPPED: [u8; 6] = [0x52, 0x54, 0, 0, 0, 3];
const LOADER: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Returns a configuration of a switch with ports vm0, vm1, ...
fn daemon(ports: usize) -> Daemon {
    let ports: String = (0..ports).map(|number| port(&format!("vm{number}"), "lan0", "")).collect();
    Daemon::start(&format!("[switch.lan0]\n{ports}"))
}

fn builder(daemon: &Daemon, number: usize) -> Builder {
    Guest::builder(&format!("vm{number}")).nic(nic(daemon, &format!("vm{number}")).mac(&mac(number, 0)))
}

/// Sends pings and data between the first two guests.
fn talk(guests: &[Guest; 2], when: &str) {
    println!("{when}");
    for (from, to) in [(0, 1), (1, 0)] {
        let done = pings(&guests[from], &address(to, 0), &[1, 1472, 10_000])
            .and_then(|()| transfer(&guests[from], &guests[to], &address(to, 0)));
        done.unwrap_or_else(|why| panic!("{when}: {why}"));
    }
}

#[test]
fn guests_talk_after_new_settings_a_new_driver_a_reboot_and_a_new_qemu() {
    let Some(_turn) = turn() else { return };
    let daemon = daemon(2);
    let mut guests = boot([builder(&daemon, 0), builder(&daemon, 1)]);
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number, 1);
    }
    talk(&guests, "at first");

    for setting in ["tso off", "gso off gro off", "tx off", "sg off", "tx on sg on tso on gso on gro on"] {
        guests[0].ok(&format!("ethtool -K eth0 {setting}")).unwrap();
        talk(&guests, setting);
    }

    let device = "$(basename $(readlink /sys/class/net/eth0/device))";
    let rebind = format!("d={device}; cd /sys/bus/virtio/drivers/virtio_net; echo $d >unbind; echo $d >bind");
    guests[0].ok(&rebind).unwrap();
    addresses(&guests[0], 0, 1);
    talk(&guests, "after the driver was unbound and bound again");

    guests[0].reboot().unwrap();
    addresses(&guests[0], 0, 1);
    talk(&guests, "after a reboot of the sender");
    guests[1].reset().unwrap();
    addresses(&guests[1], 1, 1);
    talk(&guests, "after a reset of the receiver");

    // The guest is killed while it sends and receives.
    let jobs = [0, 1].map(|from: usize| guests[from].start(&bulk::send(&address(1 - from, 0), 9, 1000)).unwrap());
    drop(jobs);
    let [first, second] = guests;
    second.kill();
    until("the port sees the end of the connection", || daemon.port("vm1")["state"] != "up");
    let again = builder(&daemon, 1).start().unwrap();
    addresses(&again, 1, 1);
    guests = [first, again];
    talk(&guests, "after a killed QEMU was started again");
    assert_eq!(daemon.port("vm1")["state"], "up");
    assert!(daemon.status()["faults"].as_array().is_none_or(Vec::is_empty), "{}", daemon.ok(&["status"]));
}

/// Returns the time for which a guest is stopped. `make nightly` sets a minute.
fn stopped_for() -> Duration {
    let seconds = std::env::var("RINGWAY_STOPPED_SECONDS").ok();
    Duration::from_secs(seconds.map_or(4, |seconds| seconds.parse().expect("RINGWAY_STOPPED_SECONDS is a number")))
}

/// More frames than any ring of a guest holds.
const BURST: u64 = 2000;

#[test]
fn a_stopped_guest_disturbs_nobody_and_goes_on() {
    let Some(_turn) = turn() else { return };
    let daemon = daemon(3);
    let guests = boot([0, 1, 2].map(|number| builder(&daemon, number)));
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number, 1);
    }
    let [first, second, third] = guests;
    let pair = [first, second];
    talk(&pair, "at first");
    pings(&pair[0], &address(2, 0), &[64]).unwrap();

    // A program sends the frames, because a guest that sends them would have no time for anything else.
    let mut loader = daemon.attach("lan0:loader").unwrap();
    let full = || daemon.port("vm2")["drops"]["receiver_full"].as_u64().unwrap_or(0);
    let start = Instant::now();
    while start.elapsed() < stopped_for() {
        third.freeze();
        let before = full();
        for number in 0..BURST {
            let sent = frame(STOPPED, LOADER, number as u8);
            until("the loader's frames are taken", || loader.tx().push(&sent));
            loader.flush();
        }
        // The ring may hold some of the frames.
        until("the frames without room are counted", || full() >= before + BURST / 2);
        talk(&pair, "while another guest is stopped");
    }
    third.thaw();
    pings(&third, &address(0, 0), &[64]).unwrap();
    transfer(&pair[0], &third, &address(2, 0)).unwrap();
    transfer(&third, &pair[1], &address(1, 0)).unwrap();
    assert!(daemon.status()["faults"].as_array().is_none_or(Vec::is_empty), "{}", daemon.ok(&["status"]));
}
