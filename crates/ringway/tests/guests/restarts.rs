//! Ringway is killed and started again under traffic.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use ringway_guests::{Builder, Guest, Nic, PATIENCE, Qemu, bulk};
use ringway_scenes::{Daemon, ringway, until};
use ringway_testing::child::{Ended, children, is_running, signal};
use ringway_testing::skip;
use rustix::process::Signal;

use crate::features::pings;
use crate::scene::{address, addresses, boot, mac, nic, port, turn, wait_for};
use crate::shared::Shared;
use crate::streams;

/// The TCP port of the data.
const PORT: u16 = 7000;

/// Each test has its own daemon and its own NICs in the guests.
struct Restarts {
    daemons: [Daemon; KINDS.len()],
    guests: [Guest; 2],
}

/// Options of the NICs.
const KINDS: [&str; 3] = ["packed=off", "packed=on", "packed=on"];

static RESTARTS: Shared<Restarts> = Shared::new(TESTS, restarts);
pub const TESTS: &[&str] = &[
    "restarts::guests_resume_without_a_wrong_byte_when_ringway_is_killed_and_started_again",
    "restarts::guests_with_packed_rings_do_so_too",
    "restarts::guests_with_packed_rings_go_on_when_qemu_threw_away_what_is_not_at_its_turn",
];

/// Starts two guests. vm0: QEMU connects, and tries again each second. vm1: QEMU listens, and Ringway connects.
fn restarts() -> Restarts {
    let config = port("vm0", "lan0", "") + &port("vm1", "lan0", "role = \"client\"");
    let daemons = KINDS.map(|_| Daemon::start(&format!("[switch.lan0]\n{config}")));
    let builder = |number: usize| {
        let nics = daemons.iter().zip(KINDS).enumerate().map(|(kind, (daemon, options))| {
            let nic = match number {
                0 => nic(daemon, "vm0").reconnect(1),
                _ => nic(daemon, "vm1").listen(),
            };
            nic.mac(&mac(number, kind)).option(options)
        });
        nics.fold(Guest::builder(["vm0", "vm1"][number]), Builder::nic)
    };
    let guests = boot([builder(0), builder(1)]);
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number, KINDS.len());
    }
    Restarts { daemons, guests }
}

/// A daemon that replaces a killed one.
struct Successor(Ended);

impl Successor {
    /// Starts the daemon and waits for "ready".
    fn start(dead: &Daemon) -> Successor {
        let mut command = ringway();
        command.arg("run").arg("--runtime-dir").arg(dead.runtime_dir());
        command.arg("--config").arg(dead.runtime_dir().with_file_name("ringway.toml"));
        let mut child = Ended(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Successor(child)
    }

    /// Kills its switch. Its keeper starts another one.
    fn kill_switch(&self) {
        let switch = children(self.0.id(), "ringway-switch")[0];
        signal(switch, Signal::KILL);
        until("the switch is dead", || !is_running(switch));
    }

    /// Ends the daemon as a user would.
    fn stop(mut self) {
        self.0.signal(Signal::TERM);
        assert!(self.0.end().success());
    }
}

#[test]
fn guests_resume_without_a_wrong_byte_when_ringway_is_killed_and_started_again() {
    let Some(scene) = RESTARTS.turn() else { return };
    killed_twice(&scene.daemons[0], &scene.guests, 0);
}

/// After a kill, neither QEMU nor a packed ring shows the device's position.
#[test]
fn guests_with_packed_rings_do_so_too() {
    let Some(scene) = RESTARTS.turn() else { return };
    killed_twice(&scene.daemons[1], &scene.guests, 1);
}

/// QEMU (7.2) drops the frames that a guest sends while there is no switch. In a packed ring, it starts at the last
/// position that it knows, the ring's beginning. Here, this position is behind the frames not taken yet.
#[test]
fn guests_with_packed_rings_go_on_when_qemu_threw_away_what_is_not_at_its_turn() {
    let Some(scene) = RESTARTS.turn() else { return };
    let (daemon, guests, nic) = (&scene.daemons[2], &scene.guests, 2);
    pings(&guests[0], &address(1, nic), &[64]).unwrap();
    let status = daemon.port("vm0");
    // The wrap counter at the ring's beginning has the same value every other lap.
    let laps = 2 * status["vhost_user"]["ring_size"].as_u64().unwrap();
    let left = || laps - daemon.port("vm0")["in"]["frames"].as_u64().unwrap() % laps;
    let send = |frames: u64| guests[0].run(&format!("ping -q -c {frames} -i 0.003 -W 1 {}", address(1, nic))).unwrap();
    until("the ring is just before its beginning", || {
        let is_there = (8..=20).contains(&left());
        if !is_there {
            send((left() + laps - 14) % laps);
        }
        is_there
    });
    daemon.pause();
    send(40);
    daemon.kill();
    let _successor = Successor::start(daemon);
    are_heard(daemon, guests, nic);

    // A port that is removed and added again also continues at its position.
    daemon.ok(&["port", "del", "vm0"]);
    daemon.ok(&["port", "add", "vm0", "switch=lan0", "kind=vhost-user", "socket=vm0.sock"]);
    are_heard(daemon, guests, nic);
}

/// Waits until both guests are connected and reach each other.
fn are_heard(daemon: &Daemon, guests: &[Guest; 2], nic: usize) {
    for name in ["vm0", "vm1"] {
        wait_for(daemon, name, "up");
    }
    let pairs = [(&guests[0], address(1, nic)), (&guests[1], address(0, nic))];
    // After a link loss, a guest sends ARP requests each second. Its packets wait until a request is answered.
    for (from, to) in &pairs {
        from.until(&format!("ping -q -c 1 -W 1 {to} >/tmp/heard"), PATIENCE).unwrap();
    }
    for (from, to) in &pairs {
        pings(from, to, &[1, 1472]).unwrap();
    }
}

/// Guests on stream ports, with NICs that QEMU emulates.
#[test]
#[ignore = "takes more than a minute: make guests"]
fn guests_on_streams_do_so_too() {
    let Some(_turn) = turn() else { return };
    if let Some(why) = Qemu::no_vfio_user() {
        skip!("needs a QEMU with vfio-user, as it is new enough: {why}");
    }
    let ports = streams::port("vm0", "lan0", "server") + &streams::port("vm1", "lan0", "client");
    let daemon = Daemon::start(&format!("[switch.lan0]\n{ports}"));
    let stream = |name: &str| Nic::stream(daemon.runtime_dir().join(format!("{name}.sock"))).model("e1000");
    let guests = boot([
        Guest::builder("vm0").nic(stream("vm0").reconnect(1).mac(&mac(0, 0))),
        Guest::builder("vm1").nic(stream("vm1").listen().mac(&mac(1, 0))),
    ]);
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number, 1);
    }
    killed_twice(&daemon, &guests, 0);
}

/// Kills the daemon twice under traffic, and ends it once.
fn killed_twice(daemon: &Daemon, guests: &[Guest; 2], nic: usize) {
    guests.iter().for_each(|guest| drop(bulk::make(guest, 1).unwrap()));
    pings(&guests[0], &address(1, nic), &[64]).unwrap();

    let mut successor = None;
    for round in 0..2 {
        // Data flows both ways at once.
        let frames = || daemon.port("vm0")["in"]["frames"].as_u64().unwrap_or(0);
        let before = frames();
        let jobs = [(0, 1), (1, 0)].map(|(from, to): (usize, usize)| {
            let receiver = bulk::receive(&guests[to], PORT).unwrap();
            let sender = guests[from].start(&bulk::send_until_stopped(&address(to, nic), PORT)).unwrap();
            (from, to, receiver, sender)
        });
        // In segments of 64 KiB.
        until("traffic flows", || frames() > before + 100);
        match &successor {
            None => {
                daemon.kill();
                successor = Some(Successor::start(daemon));
            }
            Some(running) => running.kill_switch(),
        }
        // The times until Ringway and QEMU connect depend on the machine. QEMU tries once per second.
        let took = ["vm1", "vm0"].map(|name| wait_for(daemon, name, "up"));
        println!("Ringway connected after {:?}, QEMU after {:?}", took[0], took[1]);
        // Its counts began anew.
        until("traffic flows again", || frames() > 50);
        guests.iter().for_each(|guest| bulk::stop(guest, PORT).unwrap());
        for (from, to, receiver, sender) in jobs {
            let times = bulk::sent(&guests[from], &sender).unwrap();
            let came = bulk::received(&guests[to], &receiver).unwrap();
            let sum = bulk::sum_of(&guests[from], times).unwrap();
            assert!(sum == came, "round {round}: {times} MiB from vm{from} arrived changed");
        }
        pings(&guests[0], &address(1, nic), &[1, 1472]).unwrap();
        pings(&guests[1], &address(0, nic), &[1, 1472]).unwrap();
    }
    successor.unwrap().stop();
    let _successor = Successor::start(daemon);
    are_heard(daemon, guests, nic);
}
