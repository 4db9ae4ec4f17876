//! Several senders to one receiver: each has its share, and none loses frames unnecessarily.

use std::time::{Duration, Instant};

use ringway_api::client::Client;
use ringway_client::Port;
use ringway_scenes::flood::{address, client, clients, config, driver, drops, frame, reaches};
use ringway_scenes::{Daemon, PATIENCE, send, until};
use ringway_traffic::{Endpoint, Packed, Split, VirtioEndpoint, VirtioOptions};

/// A sender that pauses for so long keeps its share.
const SHORT: Duration = Duration::from_millis(8);
/// Most windows until the shares are right. There is no time limit, as windows take longer on a busy machine.
const WINDOWS: usize = 100;

/// Checks that two senders reach the wanted share (within a quarter), in two windows of `window` bytes in a row. In
/// other windows a sender or the switch may have waited for the processor.
fn shared(window: usize, wanted: f64, mut take: impl FnMut(&mut [usize; 2])) {
    let mut share = 0.0;
    let is_right = (0..WINDOWS).any(|_| {
        let mut bytes = [0; 2];
        while bytes[0] + bytes[1] <= window {
            let before = bytes[0] + bytes[1];
            until("more frames come", || {
                take(&mut bytes);
                bytes[0] + bytes[1] > before
            });
        }
        let had = std::mem::replace(&mut share, bytes[1] as f64 / bytes[0] as f64);
        eprintln!("{share} for {wanted}");
        // Two windows in a row, so that a change from one wrong share to another does not count.
        [had, share].iter().all(|share| (share - wanted).abs() < wanted / 4.0)
    });
    assert!(is_right, "no two of {WINDOWS} windows in a row have the share {wanted}; the last has {share}");
}

#[test]
fn senders_to_one_limited_port_share_it_by_weight_whatever_their_frames() {
    let daemon = Daemon::start(&config(&[
        "egress = { rate = \"80Mbit\", burst = \"1MB\", on_excess = \"drop\" }",
        "",
        "weight = 3",
        "",
    ]));
    let receiver = client(&daemon, 1, address(2), &[]);
    let senders = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    until("the port is limited", || drops(&daemon, "p1", "egress_limited") > 0);
    reaches(&daemon, "p1", 80e6);
    // The test receives itself, to count the bytes of each sender.
    drop((senders, receiver));
    until("all clients are gone", || {
        daemon.port("p1")["state"] == "waiting" && daemon.port("p3")["state"] == "waiting"
    });
    let mut receiver = daemon.attach("lan0:p1").unwrap();
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 1, 60));
    let senders = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    // The weight changes during the flood, and the shares follow.
    for weight in [3, 1, 2] {
        daemon.ok(&["port", "set", "p3", &format!("weight={weight}")]);
        shared(2_500_000, weight.into(), |bytes| {
            receiver.rx().drain(1024, |frame| bytes[usize::from(frame[11] == 3)] += frame.len());
        });
    }
    drop(senders);
}

#[test]
fn senders_to_a_slow_receiver_share_it_by_weight_without_any_limit() {
    let daemon = Daemon::start(&config(&["", "", "weight = 3"]));
    let mut receiver = daemon.attach("lan0:p1").unwrap();
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 1, 60));
    until("the receiver's address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:01"));
    let senders = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    let mut dropped = 0;
    shared(1_000_000, 3.0, |bytes| {
        // A slow receiver on any machine: it receives a little each time that it has lost some more frames.
        until("more frames are sent than the receiver takes", || drops(&daemon, "p1", "receiver_full") > dropped);
        receiver.rx().drain(64, |frame| bytes[usize::from(frame[11] == 3)] += frame.len());
        dropped = drops(&daemon, "p1", "receiver_full");
    });
    drop(senders);
}

#[test]
fn who_sends_little_to_a_receiver_that_others_flood_loses_nothing() {
    // The switch runs before other programs, if the test may have that.
    let daemon = Daemon::start_by(&["nice", "-n", "-10"], &config(&["", "", "", ""]));
    let (mut receiver, mut modest) = (daemon.attach("lan0:p1").unwrap(), daemon.attach("lan0:p4").unwrap());
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 1, 60));
    until("the receiver's address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:01"));
    let _floods = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    let client = Client::new(&daemon.runtime_dir()).patience(PATIENCE);
    let lost = || {
        let status = client.status().expect("the daemon answers");
        let receiver = status.ports.iter().find(|port| port.name == "p1").expect("the receiver");
        receiver.drops.get("receiver_full").copied().unwrap_or(0)
    };
    until("more frames are sent than the receiver takes", || lost() > 0);
    let (mut number, mut wanted, mut in_a_row) = (0u32, 0, 0);
    // A sender that pauses for more than 10 ms loses its reserved share. A frame after such a pause of this test may be lost: only the
    // others count. Some of these are lost if the switch had to wait for the processor.
    let (begun, mut timely) = (Instant::now(), Vec::new());
    let mut sent = begun;
    // More would take a processor that nobody else wants; of the others' frames most are lost.
    while in_a_row < 30 {
        let mut frame = frame(address(1), 4, 590);
        frame[14..18].copy_from_slice(&number.to_be_bytes());
        let before = std::mem::replace(&mut sent, Instant::now());
        send(&mut modest, &frame);
        timely.push(before.elapsed() < SHORT);
        number += 1;
        // A slow receiver on any machine: it receives a little each time that it has lost some more frames. The modest
        // sender sends less than its share of that.
        let before = lost();
        while lost() == before {
            assert!(begun.elapsed() < PATIENCE, "no thirty frames in a row arrive");
            std::thread::yield_now();
        }
        receiver.rx().drain(64, |frame| {
            if frame[..6] == address(1) && frame[11] == 4 {
                let number = u32::from_be_bytes(frame[14..18].try_into().unwrap());
                if timely[wanted as usize..number as usize].contains(&true) {
                    in_a_row = 0;
                }
                in_a_row += usize::from(timely[number as usize]);
                wanted = number + 1;
            }
        });
    }
}

#[test]
fn senders_to_a_virtual_machine_with_few_packed_descriptors_share_it_by_weight_without_any_limit() {
    let vm = "[switch.lan0]\n[port.p1]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n";
    let sender = |number, keys| format!("[port.p{number}]\nswitch = \"lan0\"\nkind = \"process\"\n{keys}\n");
    let daemon = Daemon::start(&(vm.to_owned() + &sender(2, "") + &sender(3, "weight = 3")));
    let options = VirtioOptions { rx_ring: 32, tx_ring: 32, ..VirtioOptions::default() };
    let socket = daemon.runtime_dir().join("p1.sock");
    let mut receiver = VirtioEndpoint::<Packed>::attach(&socket, &options).expect("the port takes a front end");
    let hello = frame([2, 0, 0, 0, 0xff, 0xff], 1, 60);
    assert!(receiver.tx_push(hello.len(), |bytes| bytes.copy_from_slice(&hello)));
    receiver.tx_flush();
    until("the receiver's address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:01"));
    let senders = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    let mut dropped = 0;
    shared(500_000, 3.0, |bytes| {
        // A slow receiver on any machine: it gives a few descriptors back each time that it has lost some more frames.
        until("more frames are sent than the receiver takes", || drops(&daemon, "p1", "receiver_full") > dropped);
        receiver.rx_batch(32, |frame| bytes[usize::from(frame[11] == 3)] += frame.len());
        dropped = drops(&daemon, "p1", "receiver_full");
    });
    drop(senders);
}

/// Numbered frames that a receiver got from `p2` and `p3`.
#[derive(Default)]
struct Taken {
    next: [u32; 2],
    missing: u64,
}

impl Taken {
    fn take(&mut self, receiver: &mut Port, bytes: &mut [usize; 2]) {
        receiver.rx().drain(1024, |frame| {
            // The senders' announcements are not counted.
            if frame[..6] == address(1) {
                let who = usize::from(frame[11] == 3);
                let number = u32::from_be_bytes(frame[14..18].try_into().unwrap());
                self.missing += u64::from(number.checked_sub(self.next[who]).expect("frames come in order"));
                (self.next[who], bytes[who]) = (number + 1, bytes[who] + frame.len());
            }
        });
    }

    /// Ends the senders, and checks that each missing frame is counted.
    fn lack_nothing<T>(&mut self, daemon: &Daemon, receiver: &mut Port, senders: T) {
        drop(senders);
        until("both senders are gone", || {
            daemon.port("p2")["state"] == "waiting" && daemon.port("p3")["state"] == "waiting"
        });
        self.take(receiver, &mut [0; 2]);
        // The receiver may lose frames if this test does not get the processor in time.
        assert!(self.missing <= drops(daemon, "p1", "receiver_full"), "{} are missing", self.missing);
        assert_eq!(drops(daemon, "p1", "egress_limited"), 0);
    }
}

#[test]
fn virtual_machines_wait_for_a_receiver_that_has_them_wait_and_nothing_is_lost() {
    let vms =
        "[port.p2]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n[port.p3]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n";
    let daemon = Daemon::start(&(config(&["egress = { rate = \"40Mbit\", on_excess = \"wait\" }"]) + vms));
    let mut receiver = daemon.attach("lan0:p1").unwrap();
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 1, 60));
    until("the receiver's address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:01"));
    let senders = [driver::<Split>(&daemon, 2, address(1), 60), driver::<Packed>(&daemon, 3, address(1), 1514)];
    let mut taken = Taken::default();
    shared(2_500_000, 1.0, |bytes| taken.take(&mut receiver, bytes));
    taken.lack_nothing(&daemon, &mut receiver, senders);
}

#[test]
fn senders_wait_for_a_receiver_that_has_them_wait_and_nothing_is_lost() {
    let daemon = Daemon::start(&config(&["egress = { rate = \"40Mbit\", on_excess = \"wait\" }", "", ""]));
    let mut receiver = daemon.attach("lan0:p1").unwrap();
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 1, 60));
    until("the receiver's address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:01"));
    let senders = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    let mut taken = Taken::default();
    shared(2_500_000, 1.0, |bytes| taken.take(&mut receiver, bytes));
    taken.lack_nothing(&daemon, &mut receiver, senders);
}
