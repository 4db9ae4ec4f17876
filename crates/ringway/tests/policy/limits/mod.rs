//! Limits and shares, with clients that send as fast as they can: settings, and the effect of changes. These tests
//! measure rates with the machine's clock, so only roughly. `exact` uses the switch's own counters.

mod exact;
mod jumps;
mod kinds;
mod long;
mod shares;

use std::time::{Duration, Instant};

use ringway_scenes::flood::{address, client, config, count, drops, frame, rate, reaches};
use ringway_scenes::{Daemon, receive, send, settle, until};
use ringway_traffic::{Endpoint, Split, VirtioEndpoint, VirtioOptions};
use serde_json::Value;

#[test]
fn a_flood_passes_at_its_rate_and_every_frame_beyond_is_counted() {
    let daemon =
        Daemon::start(&config(&["ingress = { rate = \"80Mbit\", burst = \"1MB\", on_excess = \"drop\" }", ""]));
    let receiver = client(&daemon, 2, address(1), &[]);
    let flooder = client(&daemon, 1, address(2), &[60, 1514, 590]);
    until("the port is limited", || drops(&daemon, "p1", "rate_limited") > 0);
    reaches(&daemon, "p2", 80e6);
    // In 50 ms without frames, half of the burst is added.
    until("the bucket is nearly empty", || daemon.port("p1")["ingress"]["fill"].as_f64().unwrap() < 0.5);
    drop(flooder);
    drop(receiver);
    until("both clients are gone", || {
        daemon.port("p1")["state"] == "waiting" && daemon.port("p2")["state"] == "waiting"
    });
}

#[test]
fn what_waits_for_its_rate_arrives_in_order_and_nothing_is_lost() {
    let daemon =
        Daemon::start(&config(&["ingress = { frames = \"2kpps\", frames_burst = 32, on_excess = \"wait\" }", ""]));
    let (mut sender, mut receiver) = (daemon.attach("lan0:p1").unwrap(), daemon.attach("lan0:p2").unwrap());
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 2, 60));
    until("the receiver's address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:02"));
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
        let frame = receive(&mut receiver, ringway_scenes::PATIENCE).expect("every frame arrives");
        assert_eq!(frame[14..18], number.to_be_bytes());
    }
    // 32 frames pass at once, and one on credit. Each further frame waits for its tokens.
    assert!(began.elapsed() >= Duration::from_micros((400 - 33) * 500), "{:?}", began.elapsed());
    assert_eq!(daemon.port("p1")["drops"], serde_json::json!({}));
}

#[test]
fn limits_change_under_a_flood_by_command_and_by_file_and_go_again() {
    let limited = config(&["ingress = { rate = \"40Mbit\", burst = \"500kB\", on_excess = \"drop\" }", ""]);
    let daemon = Daemon::start(&limited);
    let _receiver = client(&daemon, 2, address(1), &[]);
    let _flooder = client(&daemon, 1, address(2), &[1514]);
    reaches(&daemon, "p2", 40e6);
    daemon.ok(&["port", "set", "p1", "ingress={rate=\"160Mbit\",burst=\"2MB\",on_excess=\"wait\"}"]);
    reaches(&daemon, "p2", 160e6);
    assert_eq!(daemon.port("p1")["ingress"]["rate"], "160Mbit");
    daemon.ok(&["port", "set", "p1", "ingress={}", "egress={frames=\"1Mpps\"}", "storm={broadcast=\"10pps\"}"]);
    until("the port is not limited any more", || rate(&daemon, "p2") > 400e6);
    assert_eq!(daemon.port("p1")["ingress"], Value::Null);
    assert_eq!(daemon.port("p1")["storm"]["broadcast"], "10pps");
    let shared = "[bucket.tenant]\nrate = \"80Mbit\"\nburst = \"1MB\"\n".to_owned();
    daemon.reload(&(shared + &config(&["ingress = { bucket = \"tenant\", ceiling = \"400Mbit\" }", ""])));
    until("the new configuration is in force", || daemon.status()["buckets"][0]["name"] == "tenant");
    reaches(&daemon, "p2", 80e6);
    assert_eq!(daemon.status()["buckets"][0]["ports"], 1);
    daemon.reload(&limited);
    until("the new configuration is in force", || daemon.status()["buckets"] == serde_json::json!([]));
    reaches(&daemon, "p2", 40e6);
}

#[test]
fn a_storm_is_held_back_and_what_goes_to_one_station_is_not() {
    let storm =
        "storm = { broadcast = \"1pps\", multicast = \"1pps\", unknown_unicast = \"8kbit\", frames_burst = 20 }";
    let daemon = Daemon::start(&config(&[storm, ""]));
    let (mut sender, mut receiver) = (daemon.attach("lan0:p1").unwrap(), daemon.attach("lan0:p2").unwrap());
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 2, 60));
    until("the receiver's address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:02"));
    let began = Instant::now();
    for to in [[0xff; 6], [1, 0, 0x5e, 0, 0, 9], [2, 0, 0, 0, 0xff, 0xff], address(2)] {
        for _ in 0..100 {
            send(&mut sender, &frame(to, 1, 60));
        }
    }
    settle(&daemon, "p1", &mut sender, 400);
    let (dropped, arrived) = (drops(&daemon, "p1", "storm_limited"), count(&daemon.port("p2"), "out", "frames"));
    assert_eq!(dropped + arrived, 400);
    let storm = &daemon.port("p1")["storm"];
    let bursts = serde_json::json!({"broadcast": "20 frames", "multicast": "20 frames", "unknown_unicast": "16KiB"});
    assert_eq!(storm["bursts"], bursts);
    // Of two classes, 20 frames pass at once, one on credit, and those for the tokens added meanwhile. All frames of
    // the third pass.
    let passed = 20 + 1 + began.elapsed().as_secs();
    assert!((2 * (100 - passed.min(100))..=2 * (100 - 20)).contains(&dropped), "{dropped}");
    let class = |what: &str, class: &str| storm[what][class].as_u64().unwrap();
    let classes = ["broadcast", "multicast", "unknown_unicast"];
    assert_eq!(classes.map(|name| class("passed", name) + class("refused", name)), [100; 3]);
    assert_eq!(classes.map(|name| class("refused", name)).iter().sum::<u64>(), dropped);
}

#[test]
fn storm_control_comes_and_goes_under_a_storm() {
    let daemon = Daemon::start(&config(&["", ""]));
    let _receiver = client(&daemon, 2, address(1), &[]);
    let _flooder = client(&daemon, 1, [0xff; 6], &[60]);
    let given = || count(&daemon.port("p2"), "out", "frames");
    for _ in 0..2 {
        let before = given();
        until("the storm passes", || given() > before + 10_000);
        daemon.ok(&["port", "set", "p1", "storm={broadcast=\"100pps\",frames_burst=10}"]);
        let (began, before) = (Instant::now(), given());
        let refused = drops(&daemon, "p1", "storm_limited");
        until("tokens for some frames were added", || {
            let (passed, time) = (given() - before, began.elapsed());
            // The burst, one frame on credit, and the frames for the added tokens.
            let most = 10 + 1 + 100 * time.as_millis() as u64 / 1000;
            assert!(passed <= most, "{passed} in {time:?}, {most} may");
            passed > 10 && drops(&daemon, "p1", "storm_limited") > refused + 10_000
        });
        daemon.ok(&["port", "set", "p1", "storm={}"]);
    }
}

#[test]
fn the_largest_limit_is_none_and_the_least_holds_at_once() {
    let daemon = Daemon::start(&config(&["ingress = { rate = \"400Gbit\", burst = \"1GiB\" }", ""]));
    let _receiver = client(&daemon, 2, address(1), &[]);
    let _flooder = client(&daemon, 1, address(2), &[1514]);
    until("the limit has no visible effect", || rate(&daemon, "p2") > 400e6);
    // None of the bucket's earlier tokens counts.
    daemon.ok(&["port", "set", "p1", "ingress={rate=\"8kbit\",burst=\"1514B\"}"]);
    let bytes = || count(&daemon.port("p2"), "out", "bytes");
    let (began, before) = (Instant::now(), bytes());
    let passed = |before: u64| bytes() - before;
    until("tokens for some frames were added", || {
        let passed = passed(before);
        assert!(passed <= 3 * 1514 + began.elapsed().as_secs() * 1000 + 1000, "{passed} bytes");
        passed > 0 && began.elapsed() > Duration::from_secs(2)
    });
    daemon.ok(&["port", "set", "p1", "ingress={rate=\"400Gbit\",burst=\"1GiB\"}"]);
    until("the limit again has no visible effect", || rate(&daemon, "p2") > 400e6);
}

/// Floods `p2` from `p1` repeatedly, with new clients for each flood. Returns the bytes that arrived at `p2`, and the
/// total time.
fn given_again_and_again(config: &str) -> (u64, Duration) {
    const FRAMES: u64 = 40;
    let daemon = Daemon::start(config);
    let (began, mut given) = (Instant::now(), 0);
    let storm = frame([0xff; 6], 1, 1514);
    let is_vm = daemon.port("p1")["kind"] == "vhost-user";
    for _ in 0..10 {
        until("both clients are gone", || {
            daemon.port("p1")["state"] == "waiting" && daemon.port("p2")["state"] == "waiting"
        });
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
        until("all frames are taken", || count(&daemon.port("p1"), "in", "frames") == before + FRAMES);
        until("the burst has passed", || count(&daemon.port("p2"), "out", "bytes") > 0);
        given = count(&daemon.port("p2"), "out", "bytes");
    }
    (given, began.elapsed())
}

#[test]
fn a_client_that_comes_again_and_again_has_one_burst() {
    let burst = 16 << 10;
    for (p1, p2) in [
        ("ingress = { rate = \"8kbit\", on_excess = \"drop\" }", ""),
        ("ingress = { bucket = \"tenant\", ceiling = \"8kbit\" }", ""),
        ("ingress = { bucket = \"poor\" }", ""),
        ("ingress = { frames = \"1pps\", frames_burst = 10 }", ""),
        ("storm = { broadcast = \"8kbit\" }", ""),
        ("", "egress = { rate = \"8kbit\", on_excess = \"drop\" }"),
        ("kind = \"vhost-user\"\ningress = { rate = \"8kbit\", on_excess = \"drop\" }", ""),
    ] {
        let config = config(&[p1, p2]).replace("kind = \"process\"\nkind", "kind");
        let buckets = "[bucket.tenant]\nrate = \"1Gbit\"\n[bucket.poor]\nrate = \"8kbit\"\n";
        let (given, time) = given_again_and_again(&format!("{buckets}{config}"));
        // One frame passes on credit, and at 8 kbit/s the tokens of one frame are added in 1.5 s.
        let most = burst + 1514 + time.as_millis() as u64 * 1514 / 1000;
        assert!(given <= most, "{p1} {p2}: {given} bytes passed, at most {most} may");
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
        ("ingress={frames=\"0pps\"}", "write 1pps to 1Gpps"),
        ("egress={frames=\"2Gpps\"}", "write 1pps to 1Gpps"),
        ("egress={frames=\"1kpps\",frames_burst=0}", "write a whole number from 1 to 1000000000"),
        ("ingress={rate=\"1Gbit\",burst=\"2GiB\"}", "write 1514B to 1GiB"),
        ("storm={broadcast=\"0pps\"}", "write 1pps to 1Gpps, or 8kbit to 400Gbit"),
        ("storm={multicast=\"401Gbit\"}", "write 1pps to 1Gpps, or 8kbit to 400Gbit"),
        ("egress=1Gbit", "expected a limit like { rate = \"1Gbit\" }"),
        ("egress={bucket=\"none\"}", "make it with [bucket.none] in the file"),
    ] {
        for port in ["p1", "guest"] {
            let said = daemon.ringway(&["port", "set", port, keys]);
            assert!(said.code == Some(2) && said.err.contains(right), "{port} {keys}: {}", said.err);
        }
    }
    for (keys, right) in [
        ("rate=0bit", "write 8kbit to 400Gbit"),
        ("frames=0pps", "write what its ports may have together"),
        ("rate=1Gbit burst=2GiB", "write 1514B to 1GiB"),
        ("rate=1Gbit frames=0pps", "write 1pps to 1Gpps"),
    ] {
        let said = daemon.ringway(&[&["bucket", "set", "b"], &keys.split(' ').collect::<Vec<_>>()[..]].concat());
        assert!(said.code == Some(2) && said.err.contains(right), "{keys}: {}", said.err);
    }
    assert_eq!(daemon.status()["buckets"], serde_json::json!([]));
    // The smallest and the largest values are in force as written.
    for (keys, limit) in [
        ("rate=\"8kbit\",burst=\"1514B\"", serde_json::json!({"rate": "8kbit", "burst": "1514B"})),
        ("rate=\"400Gbit\",burst=\"1GiB\"", serde_json::json!({"rate": "400Gbit", "burst": "1GiB"})),
        ("frames=\"1pps\",frames_burst=1", serde_json::json!({"frames": "1pps", "frames_burst": 1})),
        (
            "frames=\"1Gpps\",frames_burst=1000000000",
            serde_json::json!({"frames": "1Gpps", "frames_burst": 1000000000}),
        ),
    ] {
        daemon.ok(&["port", "set", "guest", &format!("ingress={{{keys}}}")]);
        let now = daemon.port("guest")["ingress"].clone();
        for (key, value) in limit.as_object().unwrap() {
            assert_eq!(now[key], *value, "{keys}");
        }
    }
}
