//! Ringway is killed and started again under traffic.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use ringway_guests::bulk::{self, TRANSFER};
use ringway_guests::{Guest, Nic, Qemu};
use ringway_testing::child::Ended;
use ringway_testing::skip;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use crate::features::pings;
use crate::scene::{address, addresses, boot, mac, nic, port, turn, wait_for};
use crate::streams;
use ringway_scenes::{Daemon, ringway, until};

/// Number of copies of the data in one transfer: enough for several seconds.
const TIMES: u32 = 3;

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

    /// Ends the daemon as a user would.
    fn stop(mut self) {
        self.0.signal(Signal::TERM);
        assert!(self.0.end().success());
    }
}

#[test]
fn guests_resume_without_a_wrong_byte_when_ringway_is_killed_and_started_again() {
    resume_with("packed=off");
}

/// After a kill, neither QEMU nor a packed ring shows the device's position.
#[test]
fn guests_with_packed_rings_do_so_too() {
    resume_with("packed=on");
}

fn resume_with(options: &str) {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = pair(options);
    killed_twice(&daemon, &guests);
}

/// Starts two guests whose NICs have these options. vm0: QEMU connects, and tries again each second. vm1: QEMU listens,
/// and Ringway connects.
fn pair(options: &str) -> (Daemon, [Guest; 2]) {
    let config = port("vm0", "lan0", "") + &port("vm1", "lan0", "role = \"client\"");
    let daemon = Daemon::start(&format!("[switch.lan0]\n{config}"));
    let listening = Nic::vhost_user(daemon.runtime_dir().join("vm1.sock")).listen();
    let guests = boot([
        Guest::builder("vm0").nic(nic(&daemon, "vm0").reconnect(1).mac(&mac(0, 0)).option(options)),
        Guest::builder("vm1").nic(listening.mac(&mac(1, 0)).option(options)),
    ]);
    (daemon, guests)
}

/// QEMU (7.2) drops the frames that a guest sends while there is no switch. In a packed ring, it starts at the last
/// position that it knows, the ring's beginning. Here, this position is behind the frames not taken yet.
#[test]
fn guests_with_packed_rings_go_on_when_qemu_threw_away_what_is_not_at_its_turn() {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = pair("packed=on");
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number, 1);
    }
    pings(&guests[0], &address(1, 0), &[64]).unwrap();
    let status = daemon.port("vm0");
    // The wrap counter at the ring's beginning has the same value every other lap.
    let laps = 2 * status["vhost_user"]["ring_size"].as_u64().unwrap();
    let left = || laps - daemon.port("vm0")["in"]["frames"].as_u64().unwrap() % laps;
    let send = |frames: u64| guests[0].run(&format!("ping -q -c {frames} -i 0.003 -W 1 {}", address(1, 0))).unwrap();
    for _ in 0..5 {
        if (8..=20).contains(&left()) {
            break;
        }
        send((left() + laps - 14) % laps);
    }
    assert!((8..=20).contains(&left()), "{} frames to the next lap", left());
    daemon.pause();
    send(40);
    kill(&daemon);
    let _successor = Successor::start(&daemon);
    are_heard(&daemon, &guests);

    // A port that is removed and added again also continues at its position.
    daemon.ok(&["port", "del", "vm0"]);
    daemon.ok(&["port", "add", "vm0", "switch=lan0", "kind=vhost-user", "socket=vm0.sock"]);
    are_heard(&daemon, &guests);
}

/// Waits until both guests are connected and reach each other.
fn are_heard(daemon: &Daemon, guests: &[Guest; 2]) {
    for name in ["vm0", "vm1"] {
        wait_for(daemon, name, "up");
    }
    let pairs = [(&guests[0], address(1, 0)), (&guests[1], address(0, 0))];
    // After a link loss, a guest sends ARP requests each second. Its packets wait until a request is answered.
    for (from, to) in &pairs {
        from.until(&format!("ping -q -c 1 -W 1 {to} >/tmp/heard"), TRANSFER).unwrap();
    }
    for (from, to) in &pairs {
        pings(from, to, &[1, 1472]).unwrap();
    }
}

/// Kills the daemon, and waits until all its threads are dead. Until then it holds the lock of its folder.
fn kill(daemon: &Daemon) {
    daemon.signal(Signal::KILL);
    let dead = WaitId::Pid(Pid::from_raw(daemon.pid() as i32).unwrap());
    waitid(dead, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
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
    killed_twice(&daemon, &guests);
}

/// Kills the daemon twice under traffic, and ends it once.
fn killed_twice(daemon: &Daemon, guests: &[Guest; 2]) {
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number, 1);
        bulk::make(guest, 4).unwrap();
    }
    pings(&guests[0], &address(1, 0), &[64]).unwrap();

    let sums = guests.each_ref().map(|guest| bulk::sum_of(guest, TIMES).unwrap());
    let mut successor = None;
    for round in 0..2 {
        // Data flows both ways at once.
        let frames = || daemon.port("vm0")["in"]["frames"].as_u64().unwrap_or(0);
        let before = frames();
        let jobs = [(0, 1), (1, 0)].map(|(from, to): (usize, usize)| {
            let receiver = bulk::receive(&guests[to], 7000).unwrap();
            let sender = guests[from].start(&bulk::send(&address(to, 0), 7000, TIMES)).unwrap();
            (from, to, receiver, sender)
        });
        // In segments of 64 KiB there are almost 200.
        until("traffic flows", || frames() > before + 100);
        match successor.take() {
            None => kill(daemon),
            Some(running) => drop::<Successor>(running),
        }
        successor = Some(Successor::start(daemon));
        // The times until Ringway and QEMU connect depend on the machine. QEMU tries once per second.
        let took = ["vm1", "vm0"].map(|name| wait_for(daemon, name, "up"));
        println!("Ringway connected after {:?}, QEMU after {:?}", took[0], took[1]);
        for (from, to, receiver, sender) in jobs {
            assert_eq!(guests[from].wait(&sender, TRANSFER).unwrap().status, 0);
            let came = bulk::received(&guests[to], &receiver).unwrap();
            assert!(sums[from] == came, "round {round}: data from vm{from} arrived changed");
        }
        pings(&guests[0], &address(1, 0), &[1, 1472]).unwrap();
        pings(&guests[1], &address(0, 0), &[1, 1472]).unwrap();
    }
    successor.unwrap().stop();
    let _successor = Successor::start(daemon);
    are_heard(daemon, guests);
}
