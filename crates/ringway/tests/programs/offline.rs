//! Examples by `ringway program run`: what depends on time, many rules, hostile frames.

use std::path::Path;
use std::time::Duration;

use ringway_scenes::{Said, ringway};
use ringway_testing::frame::{between, bytes};
use ringway_testing::random::Random;
use ringway_traffic::pcap::Recorder;
use serde_json::Value;

use super::kit::{built, examples};
use super::packets::{End, TCP, UDP, arp, ipv4};

/// Runs a program with frames of a capture, each with its time in seconds.
fn said(module: &Path, frames: &[(f64, Vec<u8>)], args: &[&str]) -> Said {
    let dir = tempfile::tempdir().unwrap();
    let capture = dir.path().join("capture.pcapng");
    let mut recorder = Recorder::create(&capture, 65_535).unwrap();
    for (time, frame) in frames {
        recorder.write(Duration::from_secs_f64(1000.0 + time), frame).unwrap();
    }
    recorder.flush().unwrap();
    ringway().args(["program", "run"]).arg(module).arg(capture).args(args).output().unwrap().into()
}

/// The same with JSON.
fn run(module: &Path, frames: &[(f64, Vec<u8>)], args: &[&str]) -> Value {
    let said = said(module, frames, &[args, &["--json"]].concat());
    let report: Value = serde_json::from_str(&said.out).unwrap_or_default();
    assert_eq!(said.code, Some(0), "{}: {} faults: {}", module.display(), said.err, report["faults"]);
    report
}

/// Where each frame goes: a verdict, or the reason for which it is dropped.
fn verdicts(report: &Value) -> Vec<String> {
    let frames = report["frames"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    frames.map(|frame| text(&frame["reason"]).or_else(|| text(&frame["verdict"])).unwrap()).collect()
}

const CLIENT: End = End(1, 1, 40_000);
const SERVER: End = End(2, 2, 80);

#[test]
fn answers_pass_an_access_list_while_their_connection_is_in_use() {
    let (request, answer) = (ipv4(TCP, CLIENT, SERVER, &[]), ipv4(TCP, SERVER, CLIENT, &[]));
    let frames = [
        (0.0, answer.clone()),
        (1.0, request.clone()),
        (2.0, answer.clone()),
        (61.0, answer.clone()),
        // Used at 61 s.
        (120.0, answer.clone()),
        (181.0, answer.clone()),
        (182.0, request),
        (183.0, answer),
        (184.0, arp(2)),
        (185.0, ipv4(TCP, CLIENT, End(2, 2, 81), &[])),
    ];
    for module in built("access_list") {
        let report = run(&module, &frames, &["--config", "allow tcp from 10.0.0.1 to 10.0.0.0/30 port 80"]);
        let wanted = [
            "denied", "built_in", "built_in", "built_in", "built_in", "denied", "built_in", "built_in", "built_in",
            "denied",
        ];
        assert_eq!(verdicts(&report), wanted);
        assert_eq!(report["drops"]["denied"], 3);
    }
}

#[test]
fn the_first_rule_of_an_access_list_decides() {
    let udp = |from: u8, port: u16| (0.0, ipv4(UDP, End(1, from, 1000), End(2, 2, port), &[]));
    let frames = [udp(1, 53), udp(9, 53), udp(9, 54), udp(200, 53), udp(200, 9)];
    let rules = "deny from 10.0.0.9; allow udp from 10.0.0.0/25 port 53\nallow from 10.0.0.9\n\nallow 17 port 9;deny udp port 9";
    for module in built("access_list") {
        let report = run(&module, &frames, &["--config", rules]);
        assert_eq!(verdicts(&report), ["built_in", "denied", "denied", "denied", "built_in"]);
    }
}

#[test]
fn a_mistake_in_a_rule_is_told_with_its_number() {
    for module in built("access_list") {
        for (rules, wanted) in [
            ("allow tcp;allow from 10.0.0.0/33", "rule 2 has not the form"),
            ("permit tcp", "permit tcp"),
            ("allow tcp port", "rule 1"),
        ] {
            let said = said(&module, &[], &["--config", rules]);
            assert!(said.code == Some(2) && said.err.contains(wanted), "{rules}: {} {}", said.out, said.err);
        }
    }
}

/// Returns an access list. Its first 100,000 rules have several prefix lengths and fit no frame of these tests. The last rule allows their TCP to port 80.
pub fn many_rules() -> String {
    let rule = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        let length = [32, 31, 30, 29][n as usize % 4];
        format!("deny tcp from 172.{}.{b}.{c}/{length} to 10.0.0.0/8 port {}\n", 16 + a, n % 7000)
    };
    let rules: String = (0..100_000).map(rule).collect();
    rules + "allow tcp from 10.0.0.0/8 port 80\n"
}

#[test]
fn a_hundred_thousand_rules_are_as_fast_as_ten() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules");
    std::fs::write(&file, many_rules()).unwrap();
    let new = |n: u32| (0.0, ipv4(TCP, End(1, n as u8, n as u16), End(2, 2, 80), &[]));
    let frames: Vec<(f64, Vec<u8>)> = (1..5000).map(new).collect();
    for module in built("access_list") {
        // A scan of the list would take longer than a call may: a fault.
        let report = run(&module, &frames, &["--config-file", file.to_str().unwrap()]);
        assert_eq!((report["verdicts"].as_object().unwrap().len(), &report["faults"]), (1, &serde_json::json!([])));
        assert_eq!(report["frames"][4998]["verdict"], "built_in");
    }
}

#[test]
fn knocks_count_in_their_order_and_time() {
    let to = |port: u16| ipv4(TCP, CLIENT, End(2, 2, port), &[]);
    let other = ipv4(TCP, End(3, 3, 5), End(2, 2, 22), &[]);
    let steps: [(f64, Vec<u8>, &str); 19] = [
        (0.0, to(22), "closed"),
        (1.0, to(7), "built_in"),
        (2.0, to(22), "closed"),
        // Sent again.
        (3.0, to(7), "built_in"),
        (4.0, to(8), "built_in"),
        // Out of sequence.
        (5.0, to(7), "built_in"),
        (6.0, to(8), "built_in"),
        (7.0, to(9), "built_in"),
        (8.0, to(22), "closed"),
        (10.0, to(7), "built_in"),
        (11.0, to(8), "built_in"),
        (12.0, to(9), "built_in"),
        (13.0, to(22), "built_in"),
        (13.0, other, "closed"),
        (73.0, to(22), "built_in"),
        (134.0, to(22), "closed"),
        // Too late.
        (140.0, to(7), "built_in"),
        (151.0, to(8), "built_in"),
        (152.0, to(22), "closed"),
    ];
    let frames: Vec<(f64, Vec<u8>)> = steps.iter().map(|(time, frame, _)| (*time, frame.clone())).collect();
    for module in built("port_knocker") {
        let report = run(&module, &frames, &["--config", "10.0.0.2 22 7 8 9"]);
        assert_eq!(verdicts(&report), steps.clone().map(|(.., wanted)| wanted));
        assert_eq!(report["counters"]["opened"], 1);
    }
}

/// Texts that the examples accept.
pub fn config(example: &str) -> &'static str {
    match example {
        "access_list" => "allow tcp port 80;deny from 10.0.0.0/8;allow",
        "load_balancer" => "02:00:00:00:00:02 b c",
        "packet_broker" => "a b c",
        "port_knocker" => "10.0.0.2 22 7000 8000",
        "vxlan_demultiplexer" => "a 1=b 2=c",
        _ => "",
    }
}

/// Frames whose headers claim what is not there: cut at every length, with random bytes where lengths and kinds are.
fn hostile() -> Vec<(f64, Vec<u8>)> {
    let mut random = Random::new(24);
    let whole = [
        super::packets::vxlan(1, 2, 1),
        ipv4(TCP, CLIENT, SERVER, &[1; 90]),
        [
            &between(2, 1, 12, 0)[..],
            &[0x81, 0, 0, 5, 0x88, 0xa8, 0, 5, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 0, 1],
            &bytes(120, 3),
        ]
        .concat(),
    ];
    let mut frames = Vec::new();
    for frame in &whole {
        frames.extend((14..frame.len()).map(|length| frame[..length].to_vec()));
        for _ in 0..3000 {
            let mut frame = frame.clone();
            for _ in 0..1 + random.below(6) {
                // Headers are at the begin.
                let at = 12 + random.below(frame.len().min(90) as u64 - 12) as usize;
                let edges = [0, 1, 4, 8, 0x0f, 0x3f, 44, 51, 60, 0x7f, 0x80, 0xff];
                frame[at] = if random.below(2) == 0 { edges[random.below(12) as usize] } else { random.bits() as u8 };
            }
            frame.truncate(14 + random.below(frame.len() as u64 - 13) as usize);
            frames.push(frame);
        }
    }
    frames.extend((0..3000).map(|n| bytes(14 + n % 140, random.bits() as usize % 1000)));
    frames.into_iter().enumerate().map(|(n, frame)| (n as f64 / 100.0, frame)).collect()
}

#[test]
fn no_frame_makes_an_example_fail() {
    let frames = hostile();
    for example in examples() {
        for module in built(&example) {
            let report = run(&module, &frames, &["--config", config(&example), "--ports", "a,b,c"]);
            assert_eq!(report["faults"], serde_json::json!([]), "{}", module.display());
            assert_eq!(report["frames"].as_array().unwrap().len(), frames.len());
        }
    }
}

/// Two languages, one behaviour.
#[test]
fn the_bridges_in_rust_and_in_c_decide_alike() {
    let mut random = Random::new(7);
    let mut station = || random.below(12) as u16;
    let frame = |n: usize, from: u16, to: u16| {
        let mut frame = between(to, from, 60, n as u32);
        frame[0] |= u8::from(to == 0);
        frame[6] |= u8::from(from == 0);
        (n as f64, frame)
    };
    let frames: Vec<(f64, Vec<u8>)> = (0..500).map(|n| frame(n, station(), station())).collect();
    let ports = "a,b,c,d,e,f,g,h,i,j,k,l";
    let reports: Vec<Value> =
        built("learning_bridge").iter().map(|module| run(module, &frames, &["--ports", ports])).collect();
    assert!(reports.windows(2).all(|pair| pair[0]["frames"] == pair[1]["frames"]));
    for report in reports {
        let all = report["verdicts"].as_object().unwrap();
        assert!(all.len() > 8 && report["drops"]["group_source"].as_u64() > Some(10), "{all:?}");
    }
}
