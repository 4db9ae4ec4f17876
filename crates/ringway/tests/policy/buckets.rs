//! Buckets that ports share, and the counters of limits.

use std::time::Instant;

use ringway_scenes::flood::{address, client, clients, config, count, drops, frame, reaches};
use ringway_scenes::{Daemon, send, until};
use serde_json::Value;

/// Number of frames of `len` bytes that each sender sends.
const FRAMES: u64 = 100;
/// Bytes that a shared bucket holds. Enough that no tokens are lost while senders or the switch wait for the processor.
const BURST: u64 = 4_000_000;

/// Frames that a limit or bucket refused, by the exhausted resource.
fn refused(limit: &Value) -> [u64; 3] {
    ["bits", "frames", "bucket"].map(|by| limit["refused"][by].as_u64().unwrap_or(0))
}

fn passed(limit: &Value) -> [u64; 2] {
    ["frames", "bytes"].map(|what| count(limit, "passed", what))
}

#[test]
fn every_frame_is_counted_at_the_limit_that_let_it_pass_or_did_not() {
    let bucket = "[bucket.tenant]\nrate = \"8kbit\"\nburst = \"6000B\"\n".to_owned();
    let ports = [
        "ingress = { rate = \"8kbit\", burst = \"3000B\", on_excess = \"drop\" }",
        "ingress = { frames = \"1pps\", frames_burst = 10 }",
        "ingress = { bucket = \"tenant\" }",
        "ingress = { frames = \"200pps\", frames_burst = 32, on_excess = \"wait\" }",
        "",
        "egress = { frames = \"1pps\", frames_burst = 5 }",
        "",
    ];
    let daemon = Daemon::start(&(bucket + &config(&ports)));
    let mut clients = [1, 2, 3, 4, 5, 6, 7].map(|n| daemon.attach(&format!("lan0:p{n}")).unwrap());
    for number in [6, 7] {
        send(&mut clients[number - 1], &frame([2, 0, 0, 0, 0xff, 0xff], number as u8, 60));
    }
    until("their addresses are known", || daemon.ok(&["fdb"]).matches("02:00:00:00:00:0").count() == 2);
    // The fifth sender floods a port with its own limit, the others a port without a limit.
    let mut wanted = 1;
    until("the last port has received the frames of the previous sender", || {
        count(&daemon.port("p7"), "out", "frames") == wanted
    });
    for (number, to) in [(1, 7), (2, 7), (3, 7), (4, 7), (5, 6)] {
        let client = &mut clients[number - 1];
        let frame = frame(address(to), number as u8, 150 * number);
        (0..FRAMES).for_each(|_| assert!(client.tx().push(&frame)));
        client.flush();
        let port = format!("p{number}");
        until("all frames are taken", || {
            clients[6].rx().drain(512, |_| {});
            count(&daemon.port(&port), "in", "frames") == FRAMES
        });
        if to == 6 {
            continue;
        }
        until("all frames are counted", || {
            let limit = &daemon.port(&port)["ingress"];
            passed(limit)[0] + refused(limit).iter().sum::<u64>() == FRAMES
        });
        let limit = daemon.port(&port)["ingress"].clone();
        let ([frames, bytes], refused) = (passed(&limit), refused(&limit));
        assert_eq!(bytes, frames * 150 * number as u64);
        assert_eq!(refused.iter().sum::<u64>(), drops(&daemon, &port, "rate_limited"));
        let by = refused.map(|frames| frames > 0);
        assert_eq!(by, [[true, false, false], [false, true, false], [false, false, true], [false; 3]][number - 1]);
        assert_eq!(number == 4, limit["waits"].as_u64().unwrap() > 0 && limit["waited"].as_f64().unwrap() > 0.0);
        wanted += frames;
        until("the passed frames have arrived", || count(&daemon.port("p7"), "out", "frames") == wanted);
    }
    let (tenant, member) = (daemon.status()["buckets"][0].clone(), daemon.port("p3")["ingress"].clone());
    assert_eq!(passed(&tenant), passed(&member));
    assert_eq!(refused(&tenant), [refused(&member)[2], 0, 0]);
    until("all frames are counted", || {
        let limit = &daemon.port("p6")["egress"];
        // One further frame announced the sender to all.
        passed(limit)[0] + refused(limit)[1] == FRAMES + 1
    });
    let port = daemon.port("p6");
    assert_eq!(passed(&port["egress"]), [count(&port, "out", "frames"), count(&port, "out", "bytes")]);
    assert_eq!(refused(&port["egress"]), [0, drops(&daemon, "p6", "egress_limited"), 0]);
    // The client detaches. The counters stay.
    let [sender, ..] = clients;
    drop(sender);
    daemon.until_state("p1", "waiting");
    assert!(refused(&daemon.port("p1")["ingress"])[0] > 0);
}

/// Returns the bits per second charged to the bucket and to each of three ports, in about two seconds of the daemon's
/// clock. Also returns the bits charged to the bucket, and the seconds of the test's clock from before the first
/// reading to after the second.
fn charged(daemon: &Daemon) -> ([f64; 4], [f64; 2]) {
    let bytes = |status: &Value| {
        let port = |name: &str| {
            let ports = status["ports"].as_array().unwrap();
            passed(&ports.iter().find(|port| port["name"] == name).unwrap()["ingress"])[1]
        };
        [passed(&status["buckets"][0])[1], port("p1"), port("p2"), port("p3")]
    };
    let began = Instant::now();
    let (before, mut after) = (daemon.status(), Value::Null);
    let mut time = 0.0;
    until("a window has passed", || {
        after = daemon.status();
        time = after["uptime"].as_f64().unwrap() - before["uptime"].as_f64().unwrap();
        time > 2.0
    });
    let outer = began.elapsed().as_secs_f64();
    let (before, after) = (bytes(&before), bytes(&after));
    let bits: [f64; 4] = std::array::from_fn(|place| (after[place] - before[place]) as f64 * 8.0);
    (bits.map(|bits| bits / time), [bits[0], outer])
}

/// Checks that the bucket gives exactly its rate, and that the ports have the `wanted` shares. Two windows in a row
/// must be right. In other windows the senders or the switch may have waited for the processor.
fn shares(daemon: &Daemon, wanted: [f64; 3]) {
    let sum: f64 = wanted.iter().sum();
    let mut right = 0;
    // The number of windows is limited, not their time.
    let is_right = (0..100).any(|_| {
        let (now, [bits, seconds]) = charged(daemon);
        eprintln!("{now:.0?} for {wanted:.0?}");
        // The initial tokens, the new tokens, and one frame.
        let most = BURST as f64 * 8.0 + sum * seconds + 1514.0 * 8.0;
        assert!(bits <= most, "{bits} bits in {seconds} s, at most {most} are allowed");
        let near = |(now, wanted): (f64, f64)| (now - wanted).abs() < wanted / 5.0;
        right = if [(now[0], sum)].into_iter().chain(now[1..].iter().copied().zip(wanted)).all(near) {
            right + 1
        } else {
            0
        };
        right == 2
    });
    assert!(is_right, "no two windows in a row have the shares {wanted:?}");
}

#[test]
fn ports_share_a_bucket_by_guarantee_ceiling_and_weight_also_when_its_rate_changes_under_the_flood() {
    let with_rate = |rate: &str| {
        let ports = [
            "ingress = { bucket = \"tenant\", rate = \"20Mbit\", burst = \"1MB\" }",
            "ingress = { bucket = \"tenant\", ceiling = \"10Mbit\", burst = \"500kB\" }",
            "ingress = { bucket = \"tenant\" }",
            "",
        ];
        format!("[bucket.tenant]\nrate = \"{rate}\"\nburst = \"{BURST}B\"\n{}", config(&ports))
    };
    let daemon = Daemon::start(&with_rate("80Mbit"));
    let _receiver = client(&daemon, 4, address(1), &[]);
    let _senders = clients(&daemon, address(4), &[(1, &[590]), (2, &[1514]), (3, &[60, 1514])]);
    until("all senders exceed their limits", || {
        ["p1", "p2", "p3"].iter().all(|port| drops(&daemon, port, "rate_limited") > 0)
    });
    // The rest beyond the guarantee and the ceiling is halved. The port with the guarantee has it in addition.
    shares(&daemon, [45e6, 10e6, 25e6]);
    assert_eq!(daemon.status()["buckets"][0]["ports"], 3);
    for (rate, wanted) in [("160Mbit", [85e6, 10e6, 65e6]), ("32Mbit", [24e6, 4e6, 4e6])] {
        daemon.reload(&with_rate(rate));
        until("the new configuration is in force", || daemon.status()["buckets"][0]["rate"] == rate);
        shares(&daemon, wanted);
    }
}

#[test]
fn a_bucket_comes_changes_and_goes_by_command_under_a_flood_and_what_it_counted_goes_on() {
    let config = config(&["", "", ""]);
    let daemon = Daemon::start(&config);
    let set = |args: &[&str], wanted: &str| assert_eq!(daemon.ok(args), format!("{wanted}\n"));
    set(&["bucket", "set", "tenant", "rate=80Mbit", "burst=1MB"], "set bucket tenant");
    set(&["port", "set", "p1", "ingress={bucket=\"tenant\",rate=\"20Mbit\"}"], "changed port p1");
    set(&["port", "set", "p2", "ingress={bucket=\"tenant\"}"], "changed port p2");
    let _receiver = client(&daemon, 3, address(1), &[]);
    let _senders = clients(&daemon, address(3), &[(1, &[590]), (2, &[1514])]);
    until("both senders exceed their limits", || {
        ["p1", "p2"].iter().all(|port| drops(&daemon, port, "rate_limited") > 0)
    });
    reaches(&daemon, "p3", 80e6);
    let totals = || {
        let (status, ports) = (daemon.status(), ["p1", "p2"].map(|port| daemon.port(port)));
        let bucket = &status["buckets"][0];
        let mut all = [passed(bucket), passed(&ports[0]["ingress"]), passed(&ports[1]["ingress"])].concat();
        all.extend([refused(bucket)[0], count(&ports[0], "in", "frames"), count(&ports[1], "in", "frames")]);
        all
    };
    for (rate, keys, bits) in
        [("160Mbit", &["rate=160Mbit", "burst=2MB"][..], 160e6), ("40Mbit", &["rate=40Mbit", "burst=500kB"], 40e6)]
    {
        let before = totals();
        set(&[&["bucket", "set", "tenant"], keys].concat(), "set bucket tenant");
        assert_eq!(daemon.status()["buckets"][0]["rate"], rate);
        let after = totals();
        assert!(before.iter().zip(&after).all(|(before, after)| before <= after), "{before:?} {after:?}");
        reaches(&daemon, "p3", bits);
    }
    set(&["bucket", "set", "tenant", "rate=40Mbit"], "set bucket tenant");
    assert_eq!(daemon.status()["buckets"][0]["burst"], "50000B", "omitted keys have their default");
    // A refused command changes nothing, and a reload does not remove what commands made.
    for (args, code, wanted) in [
        (
            &["bucket", "set", "tenant", "rate=10Mbit", "burst=64KiB"][..],
            2,
            "the rates of the ports of bucket \"tenant\" add up to 20Mbit",
        ),
        (
            &["bucket", "set", "tenant", "rate=80Mbit", "burst=1B"],
            2,
            "key \"burst\": 1B is out of range; write 1514B to 1GiB",
        ),
        (
            &["bucket", "set", "tenant", "burst=64KiB"],
            2,
            "key \"rate\": missing; write what its ports may have together",
        ),
        (
            &["bucket", "set", "tenant", "rate=80Mbit", "weight=2"],
            2,
            "key \"weight\": unknown key; the keys here are burst",
        ),
        (&["bucket", "set", "tenant", "rate=1.5"], 2, "key \"rate\": \"1.5\" is not a rate"),
        (&["bucket", "set", "ten ant", "rate=1Gbit"], 2, "\"ten ant\" is not a name"),
        (&["bucket", "del", "tenant"], 2, "bucket \"tenant\" is part of a limit of port \"p1\": change that first"),
        (&["bucket", "del", "tenent"], 2, "there is no bucket \"tenent\": there are \"tenant\""),
    ] {
        let said = daemon.ringway(args);
        assert!(said.code == Some(code) && said.err.contains(wanted), "{args:?}: {}", said.err);
    }
    daemon.reload(&config.replace("[port.p1]", "[port.p1]\nweight = 2"));
    until("the new configuration is in force", || daemon.port("p1")["weight"] == 2);
    let bucket = daemon.status()["buckets"][0].clone();
    assert_eq!((&bucket["rate"], &bucket["burst"]), (&"40Mbit".into(), &"50000B".into()));
    // The ports' limits came from commands as well.
    for port in ["p1", "p2"] {
        set(&["port", "set", port, "ingress={}"], &format!("changed port {port}"));
    }
    set(&["bucket", "del", "tenant"], "removed bucket tenant");
    assert_eq!(daemon.status()["buckets"], serde_json::json!([]));
    // Frames flow, and none of them is refused any more.
    let now = || {
        let refused = ["p1", "p2"].map(|port| drops(&daemon, port, "rate_limited"));
        (refused, count(&daemon.port("p3"), "out", "frames"))
    };
    let (refused, before) = now();
    until("many frames pass", || now().1 > before + 100_000);
    assert_eq!(now().0, refused, "a frame was refused without a limit");
}

#[test]
fn a_port_that_a_client_made_is_held_to_the_buckets_there_are() {
    let config = "[switch.lan0]\n[bucket.tenant]\nrate = \"8Mbit\"\n";
    let daemon = Daemon::start(config);
    let _client = daemon.attach("lan0:probe").unwrap();
    for (limit, wanted) in [
        ("{bucket=\"tennant\"}", "there is no bucket \"tennant\"; did you mean \"tenant\"?"),
        ("{bucket=\"tenant\",rate=\"9Mbit\"}", "the rates of the ports of bucket \"tenant\" add up to 9Mbit"),
    ] {
        let said = daemon.ringway(&["port", "set", "lan0:probe", &format!("ingress={limit}")]);
        assert!(said.code == Some(2) && said.err.contains(wanted), "{limit}: {}", said.err);
        assert_eq!(daemon.port("probe")["ingress"], Value::Null);
    }
    let changed = |said: String| assert!(said.starts_with("changed port probe until its client goes"), "{said}");
    changed(daemon.ok(&["port", "set", "lan0:probe", "egress={bucket=\"tenant\"}"]));
    daemon.reload("[switch.lan0]\n");
    daemon.complains("key \"port.lan0:probe.egress.bucket\": there is no bucket \"tenant\"");
    daemon.complains("not reloaded: nothing has changed");
    assert_eq!(daemon.status()["buckets"][0]["rate"], "8Mbit");
    changed(daemon.ok(&["port", "set", "lan0:probe", "egress={}"]));
    daemon.reload("[switch.lan0]\n");
    assert_eq!(daemon.line(), "reloaded: removed bucket tenant");
}
