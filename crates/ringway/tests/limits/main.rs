//! Limits and shares, with clients that send as fast as they can. Rates are measured with the machine's clock, so only
//! roughly, except where the switch says what passed.

#[path = "../support/mod.rs"]
mod support;

mod exact;

use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, Packed, Split, VirtioEndpoint, VirtioOptions};
use serde_json::Value;
use support::flood::{address, client, clients, config, count, driver, drops, frame, rate, reaches};
use support::{Daemon, receive, send, until};

/// What two senders get comes (within a quarter) to the wanted share: in some window of so many bytes, as in others one of them, or the
/// switch, may have waited for the processor.
fn shared(window: usize, wanted: f64, mut take: impl FnMut(&mut [usize; 2])) {
    let mut share = 0.0;
    until("they have their shares", || {
        let mut bytes = [0; 2];
        until("enough has come", || {
            take(&mut bytes);
            bytes[0] + bytes[1] > window
        });
        let had = std::mem::replace(&mut share, bytes[1] as f64 / bytes[0] as f64);
        eprintln!("{share} for {wanted}");
        // Twice in a row: not in passing from one wrong share to another.
        [had, share].iter().all(|share| (share - wanted).abs() < wanted / 4.0)
    });
}

#[test]
fn a_flood_passes_at_its_rate_and_every_frame_beyond_is_counted() {
    let daemon = Daemon::start(&config(&["ingress = { rate = \"80Mbit\", burst = \"100kB\" }", ""]));
    let receiver = client(&daemon, 2, address(1), &[]);
    let flooder = client(&daemon, 1, address(2), &[60, 1514, 590]);
    until("it is limited", || drops(&daemon, "p1", "rate_limited") > 0);
    reaches(&daemon, "p2", 80e6);
    assert!(daemon.port("p1")["ingress"]["fill"].as_f64().unwrap() < 0.5);
    drop(flooder);
    drop(receiver);
    until("both are gone", || daemon.port("p1")["state"] == "waiting" && daemon.port("p2")["state"] == "waiting");
}

#[test]
fn what_waits_for_its_rate_arrives_in_order_and_nothing_is_lost() {
    let daemon =
        Daemon::start(&config(&["ingress = { frames = \"2kpps\", frames_burst = 32, on_excess = \"wait\" }", ""]));
    let (mut sender, mut receiver) = (daemon.attach("lan0:p1").unwrap(), daemon.attach("lan0:p2").unwrap());
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 2, 60));
    until("its address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:02"));
    let began = Instant::now();
    for number in 0..400u32 {
        let mut frame = frame(address(2), 1, 60);
        frame[14..18].copy_from_slice(&number.to_be_bytes());
        while !sender.tx().push(&frame) {
            std::thread::yield_now();
        }
    }
    sender.flush();
    for number in 0..400u32 {
        let frame = receive(&mut receiver, support::PATIENCE).expect("every frame arrives");
        assert_eq!(frame[14..18], number.to_be_bytes());
    }
    // 32 pass at once, and one more on credit; not before that many could have come in.
    assert!(began.elapsed() >= Duration::from_micros((400 - 33) * 500), "{:?}", began.elapsed());
    assert_eq!(daemon.port("p1")["drops"], serde_json::json!({}));
}

#[test]
fn senders_to_one_limited_port_share_it_by_weight_whatever_their_frames() {
    let daemon = Daemon::start(&config(&["egress = { rate = \"80Mbit\" }", "", "weight = 3", ""]));
    let receiver = client(&daemon, 1, address(2), &[]);
    let senders = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    until("it is limited", || drops(&daemon, "p1", "egress_limited") > 0);
    reaches(&daemon, "p1", 80e6);
    // Receiving by hand: how much comes from whom.
    drop((senders, receiver));
    until("all are gone", || daemon.port("p1")["state"] == "waiting" && daemon.port("p3")["state"] == "waiting");
    let mut receiver = daemon.attach("lan0:p1").unwrap();
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 1, 60));
    let senders = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    shared(2_500_000, 3.0, |bytes| {
        receiver.rx().drain(1024, |frame| bytes[usize::from(frame[11] == 3)] += frame.len());
    });
    drop(senders);
}

#[test]
fn senders_to_a_slow_receiver_share_it_by_weight_without_any_limit() {
    let daemon = Daemon::start(&config(&["", "", "weight = 3"]));
    let mut receiver = daemon.attach("lan0:p1").unwrap();
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 1, 60));
    until("its address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:01"));
    let senders = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    let mut dropped = 0;
    shared(1_000_000, 3.0, |bytes| {
        // Slow, however fast this machine is: it takes a little when it has lost some more.
        until("more is sent than it takes", || drops(&daemon, "p1", "receiver_full") > dropped);
        receiver.rx().drain(64, |frame| bytes[usize::from(frame[11] == 3)] += frame.len());
        dropped = drops(&daemon, "p1", "receiver_full");
    });
    drop(senders);
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
    until("its address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:01"));
    let senders = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    let mut dropped = 0;
    shared(500_000, 3.0, |bytes| {
        // Slow, however fast this machine is: it gives a few descriptors back when it has lost some more.
        until("more is sent than it takes", || drops(&daemon, "p1", "receiver_full") > dropped);
        receiver.rx_batch(32, |frame| bytes[usize::from(frame[11] == 3)] += frame.len());
        dropped = drops(&daemon, "p1", "receiver_full");
    });
    drop(senders);
}

#[test]
fn virtual_machines_wait_for_a_receiver_that_has_them_wait_and_nothing_is_lost() {
    let vms =
        "[port.p2]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n[port.p3]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n";
    let daemon = Daemon::start(&(config(&["egress = { rate = \"40Mbit\", on_excess = \"wait\" }"]) + vms));
    let mut receiver = daemon.attach("lan0:p1").unwrap();
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 1, 60));
    until("its address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:01"));
    let senders = [driver::<Split>(&daemon, 2, address(1), 60), driver::<Packed>(&daemon, 3, address(1), 1514)];
    let (mut numbers, mut missing) = ([0u32; 2], 0);
    let mut take = |bytes: &mut [usize; 2]| {
        receiver.rx().drain(1024, |frame| {
            let who = usize::from(frame[11] == 3);
            let number = u32::from_be_bytes(frame[14..18].try_into().unwrap());
            missing += u64::from(number.checked_sub(numbers[who]).expect("they come in order"));
            (numbers[who], bytes[who]) = (number + 1, bytes[who] + frame.len());
        });
    };
    shared(2_500_000, 1.0, &mut take);
    drop(senders);
    until("both are gone", || daemon.port("p2")["state"] == "waiting" && daemon.port("p3")["state"] == "waiting");
    take(&mut [0; 2]);
    // This test may not be given the processor in time.
    assert!(missing <= drops(&daemon, "p1", "receiver_full"));
    assert_eq!(drops(&daemon, "p1", "egress_limited"), 0);
}

#[test]
fn senders_wait_for_a_receiver_that_has_them_wait_and_nothing_is_lost() {
    let daemon = Daemon::start(&config(&["egress = { rate = \"40Mbit\", on_excess = \"wait\" }", "", ""]));
    let mut receiver = daemon.attach("lan0:p1").unwrap();
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 1, 60));
    until("its address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:01"));
    let senders = clients(&daemon, address(1), &[(2, &[60]), (3, &[1514])]);
    shared(2_500_000, 1.0, |bytes| {
        receiver.rx().drain(1024, |frame| bytes[usize::from(frame[11] == 3)] += frame.len());
    });
    drop(senders);
    assert_eq!(drops(&daemon, "p1", "egress_limited"), 0);
}

#[test]
fn limits_change_under_a_flood_by_command_and_by_file_and_go_again() {
    let limited = config(&["ingress = { rate = \"40Mbit\" }", ""]);
    let daemon = Daemon::start(&limited);
    let _receiver = client(&daemon, 2, address(1), &[]);
    let _flooder = client(&daemon, 1, address(2), &[1514]);
    reaches(&daemon, "p2", 40e6);
    daemon.ok(&["port", "set", "p1", "ingress={rate=\"160Mbit\",on_excess=\"wait\"}"]);
    reaches(&daemon, "p2", 160e6);
    assert_eq!(daemon.port("p1")["ingress"]["rate"], "160Mbit");
    daemon.ok(&["port", "set", "p1", "ingress={}", "egress={frames=\"1Mpps\"}", "storm={broadcast=\"10pps\"}"]);
    until("it is not limited any more", || rate(&daemon, "p2") > 400e6);
    assert_eq!(daemon.port("p1")["ingress"], Value::Null);
    assert_eq!(daemon.port("p1")["storm"]["broadcast"], "10pps");
    let shared = "[bucket.tenant]\nrate = \"80Mbit\"\n".to_owned();
    daemon.reload(&(shared + &config(&["ingress = { bucket = \"tenant\", ceiling = \"400Mbit\" }", ""])));
    until("the file is in force", || daemon.status()["buckets"][0]["name"] == "tenant");
    reaches(&daemon, "p2", 80e6);
    assert_eq!(daemon.status()["buckets"][0]["ports"], 1);
    daemon.reload(&limited);
    until("the file is in force", || daemon.status()["buckets"] == serde_json::json!([]));
    reaches(&daemon, "p2", 40e6);
}

#[test]
fn a_storm_is_held_back_and_what_goes_to_one_station_is_not() {
    let storm =
        "storm = { broadcast = \"1pps\", multicast = \"1pps\", unknown_unicast = \"8kbit\", frames_burst = 20 }";
    let daemon = Daemon::start(&config(&[storm, ""]));
    let (mut sender, mut receiver) = (daemon.attach("lan0:p1").unwrap(), daemon.attach("lan0:p2").unwrap());
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 2, 60));
    until("its address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:02"));
    for to in [[0xff; 6], [1, 0, 0x5e, 0, 0, 9], [2, 0, 0, 0, 0xff, 0xff], address(2)] {
        for _ in 0..100 {
            send(&mut sender, &frame(to, 1, 60));
        }
    }
    until("all are taken", || count(&daemon.port("p1"), "in", "frames") == 400);
    let (dropped, arrived) = (drops(&daemon, "p1", "storm_limited"), count(&daemon.port("p2"), "out", "frames"));
    assert_eq!(dropped + arrived, 400);
    let storm = &daemon.port("p1")["storm"];
    let bursts = serde_json::json!({"broadcast": "20 frames", "multicast": "20 frames", "unknown_unicast": "16KiB"});
    assert_eq!(storm["bursts"], bursts);
    // 20 frames of two classes pass at once, and those that come in meanwhile; of the third all do.
    assert!((2 * (100 - 20 - 10)..=2 * (100 - 20)).contains(&dropped), "{dropped}");
    let class = |what: &str, class: &str| storm[what][class].as_u64().unwrap();
    let classes = ["broadcast", "multicast", "unknown_unicast"];
    assert_eq!(classes.map(|name| class("passed", name) + class("refused", name)), [100; 3]);
    assert_eq!(classes.map(|name| class("refused", name)).iter().sum::<u64>(), dropped);
}

#[test]
fn the_largest_limit_is_none_and_the_least_holds_at_once() {
    let daemon = Daemon::start(&config(&["ingress = { rate = \"400Gbit\", burst = \"1GiB\" }", ""]));
    let _receiver = client(&daemon, 2, address(1), &[]);
    let _flooder = client(&daemon, 1, address(2), &[1514]);
    until("it is as good as none", || rate(&daemon, "p2") > 400e6);
    // Nothing of what the bucket held passes.
    daemon.ok(&["port", "set", "p1", "ingress={rate=\"8kbit\",burst=\"1514B\"}"]);
    let bytes = || count(&daemon.port("p2"), "out", "bytes");
    let (before, began) = (bytes(), Instant::now());
    let passed = |before: u64| bytes() - before;
    until("some frames were paid for", || {
        let passed = passed(before);
        assert!(passed <= 3 * 1514 + began.elapsed().as_secs() * 1000 + 1000, "{passed} bytes");
        passed > 0 && began.elapsed() > Duration::from_secs(2)
    });
    daemon.ok(&["port", "set", "p1", "ingress={rate=\"400Gbit\",burst=\"1GiB\"}"]);
    until("it is as good as none again", || rate(&daemon, "p2") > 400e6);
}

#[test]
fn a_switch_that_stood_still_lets_no_more_than_a_burst_through() {
    const RATE: u64 = 1000;
    let daemon = Daemon::start(&config(&["ingress = { frames = \"1kpps\", frames_burst = 10 }", ""]));
    let mut receiver = daemon.attach("lan0:p2").unwrap();
    send(&mut receiver, &frame([0xff; 6], 2, 60));
    let _flooder = client(&daemon, 1, address(2), &[60]);
    let mut drain = || receiver.rx().drain(512, |_| {}) as u64;
    until("frames arrive", || drain() > 0);
    for _ in 0..3 {
        daemon.signal(rustix::process::Signal::STOP);
        let stopped = Instant::now();
        until("its clock is two seconds ahead", || {
            while drain() > 0 {}
            stopped.elapsed() > Duration::from_secs(2)
        });
        let (mut frames, goes_on) = (0, Instant::now());
        daemon.signal(rustix::process::Signal::CONT);
        until("frames arrive again", || {
            frames += drain();
            frames > 10
        });
        let most = 10 + 1 + RATE * (goes_on.elapsed().as_millis() as u64 + 1) / 1000;
        assert!(frames <= most, "{frames} frames where {most} may pass");
    }
}

/// What arrives at `p2` of floods from `p1`, when both come anew for each, and for how long they came.
fn given_again_and_again(config: &str) -> (u64, Duration) {
    const FRAMES: u64 = 40;
    let daemon = Daemon::start(config);
    let (began, mut given) = (Instant::now(), 0);
    let storm = frame([0xff; 6], 1, 1514);
    let is_vm = daemon.port("p1")["kind"] == "vhost-user";
    for _ in 0..10 {
        until("both are gone", || daemon.port("p1")["state"] == "waiting" && daemon.port("p2")["state"] == "waiting");
        let _receiver = daemon.attach("lan0:p2").unwrap();
        let before = count(&daemon.port("p1"), "in", "frames");
        let _sender: Box<dyn std::any::Any> = if is_vm {
            let socket = daemon.runtime_dir().join("p1.sock");
            let options = VirtioOptions::default();
            let mut sender = VirtioEndpoint::<Split>::attach(&socket, &options).expect("the port takes a front end");
            (0..FRAMES).for_each(|_| assert!(sender.tx_push(storm.len(), |bytes| bytes.copy_from_slice(&storm))));
            sender.tx_flush();
            Box::new(sender)
        } else {
            let mut sender = daemon.attach("lan0:p1").unwrap();
            (0..FRAMES).for_each(|_| assert!(sender.tx().push(&storm)));
            sender.flush();
            Box::new(sender)
        };
        until("all are taken", || count(&daemon.port("p1"), "in", "frames") == before + FRAMES);
        until("the burst has passed", || given + count(&daemon.port("p2"), "out", "bytes") > 0);
        given += count(&daemon.port("p2"), "out", "bytes");
    }
    (given, began.elapsed())
}

#[test]
fn a_client_that_comes_again_and_again_has_one_burst() {
    let burst = 16 << 10;
    for (p1, p2) in [
        ("ingress = { rate = \"8kbit\" }", ""),
        ("ingress = { bucket = \"tenant\", ceiling = \"8kbit\" }", ""),
        ("ingress = { bucket = \"poor\" }", ""),
        ("ingress = { frames = \"1pps\", frames_burst = 10 }", ""),
        ("storm = { broadcast = \"8kbit\" }", ""),
        ("", "egress = { rate = \"8kbit\" }"),
        ("kind = \"vhost-user\"\ningress = { rate = \"8kbit\" }", ""),
    ] {
        let config = config(&[p1, p2]).replace("kind = \"process\"\nkind", "kind");
        let buckets = "[bucket.tenant]\nrate = \"1Gbit\"\n[bucket.poor]\nrate = \"8kbit\"\n";
        let (given, time) = given_again_and_again(&format!("{buckets}{config}"));
        // Of frames one is paid later, and of 8 kbit a second a frame has come in 1.5 s.
        let most = burst + 1514 + time.as_millis() as u64 * 1514 / 1000;
        assert!(given <= most, "{p1} {p2}: {given} bytes where {most} may pass");
    }
}

#[test]
fn a_wrong_limit_is_refused_with_what_would_be_right() {
    let daemon = Daemon::start(&config(&[""]));
    let _guest = daemon.attach("lan0:guest").unwrap();
    for (keys, right) in [
        ("ingress={rate=\"0bit\"}", "write 8kbit to 400Gbit"),
        ("ingress={rate=\"401Gbit\"}", "write 8kbit to 400Gbit"),
        ("ingress={rate=\"1Gbit\",burst=\"60B\"}", "write 1514B to 1GiB"),
        ("storm={broadcast=\"1kpps\",burst=\"64KiB\"}", "write a rate of bits, or leave it out"),
        ("storm={broadcast=\"1Mbit\",frames_burst=64}", "write a rate of frames, or leave it out"),
        ("storm={broadcast=\"1kpps\",frames_burst=0}", "write a whole number from 1 to 1000000000"),
        ("egress=1Gbit", "expected a limit like { rate = \"1Gbit\" }"),
        ("egress={bucket=\"none\"}", "write [bucket.none] to have one"),
    ] {
        for port in ["p1", "guest"] {
            let said = daemon.ringway(&["port", "set", port, keys]);
            assert!(said.code == Some(2) && said.err.contains(right), "{port} {keys}: {}", said.err);
        }
    }
}
