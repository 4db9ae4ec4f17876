//! Events of a guest, which boots once for all of them: its settings change, it is stopped, it moves to another QEMU (`moves`), its driver is
//! removed and loaded, it reboots, it is killed. Its peers are the guests of `pair`.

use std::time::{Duration, Instant};

use ringway_guests::{Builder, Guest, bulk};
use ringway_scenes::{frame, until};

use crate::features::{pings, transfer};
use crate::moves;
use crate::pair::{PAIR, Pair};
use crate::scene::{self, address, mac, nic};

/// Addresses of the third guest (see [`mac`]) and of the program that sends frames to it.
const STOPPED: [u8; 6] = [0x52, 0x54, 0, 0, 0, 3];
const LOADER: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The number of the guest to which something happens. Its NIC is on the switch of the pair's first NICs.
const THIRD: usize = 2;

/// Gives the pair's first switch one more port.
fn add(pair: &Pair, name: &str) {
    pair.daemon.ok(&["port", "add", name, "switch=lan0", "kind=vhost-user", &format!("socket={name}.sock")]);
}

fn builder(pair: &Pair, name: &str) -> Builder {
    Guest::builder(name).memory_mib(128).nic(nic(&pair.daemon, name).mac(&mac(THIRD, 0)))
}

/// Gives the guest its address.
fn addresses(guest: &Guest) {
    scene::addresses(guest, THIRD, 1);
}

/// Sends pings and data between two guests with these numbers.
fn talk(guests: [&Guest; 2], numbers: [usize; 2], when: &str) {
    println!("{when}");
    for (from, to) in [(0, 1), (1, 0)] {
        let to_address = address(numbers[to], 0);
        let done = pings(guests[from], &to_address, &[1, 1472, 10_000])
            .and_then(|()| transfer(guests[from], guests[to], &to_address));
        done.unwrap_or_else(|why| panic!("{when}: {why}"));
    }
}

#[test]
fn guests_talk_after_new_settings_a_stop_a_move_a_new_driver_a_reboot_and_a_new_qemu() {
    let Some(pair) = PAIR.turn() else { return };
    ["events", "there"].iter().for_each(|name| add(&pair, name));
    let (guest, peer) = (builder(&pair, "events").start().unwrap(), &pair.guests[0]);
    addresses(&guest);
    let talk = |guest: &Guest, when: &str| talk([guest, peer], [THIRD, 0], when);
    talk(&guest, "at first");

    const SETTINGS: [&str; 5] = ["tso off", "gso off gro off", "tx off", "sg off", "tx on sg on tso on gso on gro on"];
    for (number, setting) in SETTINGS.into_iter().enumerate() {
        guest.ok(&format!("ethtool -K eth0 {setting}")).unwrap();
        // Segments that the kernel cuts, checksums that it writes, and all as before.
        if number % 2 == 0 || scene::is_whole() {
            talk(&guest, setting);
        }
    }

    a_stop_disturbs_nobody(&pair, &guest);
    let guest = moves::to_another_port(&pair, guest, THIRD, ["events", "there"], &builder(&pair, "there"));

    let device = "$(basename $(readlink /sys/class/net/eth0/device))";
    let rebind = format!("d={device}; cd /sys/bus/virtio/drivers/virtio_net; echo $d >unbind; echo $d >bind");
    guest.ok(&rebind).unwrap();
    addresses(&guest);
    talk(&guest, "after the driver was unbound and bound again");

    guest.ok("touch /tmp/before").unwrap();
    guest.reboot().unwrap();
    assert!(guest.ok("ls /tmp/before").is_err(), "a reboot starts anew");
    addresses(&guest);
    talk(&guest, "after a reboot");
    if scene::is_whole() {
        guest.reset().unwrap();
        addresses(&guest);
        talk(&guest, "after a reset");
    }

    // The guest is killed while it sends and receives.
    let send = |from: &Guest, to: usize| from.start(&bulk::send(&address(to, 0), 9, 1000)).unwrap();
    drop((send(&guest, 0), send(peer, THIRD)));
    guest.kill();
    until("the port sees the end of the connection", || pair.daemon.port("there")["state"] != "up");
    let again = builder(&pair, "events").start().unwrap();
    addresses(&again);
    talk(&again, "after a killed QEMU was started again");
    assert_eq!(pair.daemon.port("events")["state"], "up");
    pair.no_faults();
    drop(again);
    ["events", "there"].iter().for_each(|name| drop(pair.daemon.ok(&["port", "del", name])));
}

/// Returns the time for which a guest is stopped: once, or for a minute in `make guests`.
fn stopped_for() -> Duration {
    let seconds = std::env::var("RINGWAY_STOPPED_SECONDS").ok();
    Duration::from_secs(seconds.map_or(0, |seconds| seconds.parse().expect("RINGWAY_STOPPED_SECONDS is a number")))
}

/// More frames than any ring of a guest holds.
const BURST: u64 = 2000;

/// A stopped guest disturbs nobody, and goes on.
fn a_stop_disturbs_nobody(pair: &Pair, third: &Guest) {
    let daemon = &pair.daemon;
    let others = pair.guests.each_ref();
    pings(others[0], &address(THIRD, 0), &[64]).unwrap();

    // A program sends the frames, because a guest that sends them would have no time for anything else.
    let mut loader = daemon.attach("lan0:loader").unwrap();
    let full = || daemon.port("events")["drops"]["receiver_full"].as_u64().unwrap_or(0);
    let start = Instant::now();
    loop {
        third.freeze();
        let before = full();
        for number in 0..BURST {
            let sent = frame(STOPPED, LOADER, number as u8);
            until("the loader's frames are taken", || loader.tx().push(&sent));
            loader.flush();
        }
        // The ring may hold some of the frames.
        until("the frames without room are counted", || full() >= before + BURST / 2);
        talk(others, [0, 1], "while another guest is stopped");
        if start.elapsed() >= stopped_for() {
            break;
        }
    }
    third.thaw();
    talk([third, others[0]], [THIRD, 0], "when the stopped guest goes on");
    pair.no_faults();
}
