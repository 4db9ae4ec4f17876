//! Buckets that ports share, and what limits say of the frames that passed them and those that did not.

mod support;

use serde_json::Value;
use support::flood::{address, config, count, drops, frame};
use support::{Daemon, send, until};

/// How many frames of `len` bytes each sender has.
const FRAMES: u64 = 100;

/// Frames that a limit or bucket refused, by what was used up.
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
        "ingress = { rate = \"8kbit\", burst = \"3000B\" }",
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
    // The fifth floods a port with a limit of its own, the others one without.
    let mut wanted = 1;
    until("the last has heard of the one before", || count(&daemon.port("p7"), "out", "frames") == wanted);
    for (number, to) in [(1, 7), (2, 7), (3, 7), (4, 7), (5, 6)] {
        let client = &mut clients[number - 1];
        let frame = frame(address(to), number as u8, 150 * number);
        (0..FRAMES).for_each(|_| assert!(client.tx().push(&frame)));
        client.flush();
        let port = format!("p{number}");
        until("all are taken", || {
            clients[6].rx().drain(512, |_| {});
            count(&daemon.port(&port), "in", "frames") == FRAMES
        });
        if to == 6 {
            continue;
        }
        until("all are counted", || {
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
        until("what passed has arrived", || count(&daemon.port("p7"), "out", "frames") == wanted);
    }
    let (tenant, member) = (daemon.status()["buckets"][0].clone(), daemon.port("p3")["ingress"].clone());
    assert_eq!(passed(&tenant), passed(&member));
    assert_eq!(refused(&tenant), [refused(&member)[2], 0, 0]);
    until("all are counted", || {
        let limit = &daemon.port("p6")["egress"];
        // One more told all who it is.
        passed(limit)[0] + refused(limit)[1] == FRAMES + 1
    });
    let port = daemon.port("p6");
    assert_eq!(passed(&port["egress"]), [count(&port, "out", "frames"), count(&port, "out", "bytes")]);
    assert_eq!(refused(&port["egress"]), [0, drops(&daemon, "p6", "egress_limited"), 0]);
    // The client goes, and what was counted stays.
    let [sender, ..] = clients;
    drop(sender);
    until("it is gone", || daemon.port("p1")["state"] == "waiting");
    assert!(refused(&daemon.port("p1")["ingress"])[0] > 0);
}
