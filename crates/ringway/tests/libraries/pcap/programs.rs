//! tcpdump, dumpcap, tshark, scapy and tcpreplay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ringway_scenes::namespace::{Lan, frames};
use ringway_scenes::{Daemon, PATIENCE, frame, receive, send, until};
use ringway_testing::skip::{is_installed, is_root};
use ringway_traffic::pcap::Recorder;

use super::{A, ALL, B, exec, run, start, succeed, text};

/// Debian's Python, which has Debian's modules.
const PYTHON: &str = "/usr/bin/python3";

fn is_there(program: &str) {
    assert!(is_installed(program), "{program} is not there: make deps installs it");
}

fn file(dir: &tempfile::TempDir, name: &str) -> PathBuf {
    dir.path().join(name)
}

#[test]
fn tcpdump_shows_a_port_as_a_device_and_filters_its_frames() {
    is_there("tcpdump");
    let daemon = Daemon::start("");
    let mut a = daemon.attach("lan0:a").unwrap();
    let tcpdump = start(&daemon, "t", &["tcpdump", "-Z", "root", "-n", "-t", "-e", "-i", "lan0:t", "-c", "2", "arp"]);
    send(&mut a, &frame(ALL, A, 1));
    let mut arp = [&ALL[..], &A, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &A, &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]].concat();
    arp.resize(60, 0);
    for _ in 0..2 {
        send(&mut a, &arp);
        send(&mut a, &frame(ALL, A, 2));
    }
    let said = succeed(tcpdump);
    assert_eq!(said.out.lines().count(), 2, "{}", said.out);
    let wanted = "02:00:00:00:00:0a > ff:ff:ff:ff:ff:ff, ethertype ARP (0x0806), length 60: Request who-has 10.0.0.2 tell 10.0.0.1";
    assert!(said.out.lines().all(|line| line.starts_with(wanted)), "{}", said.out);
    assert!(said.err.contains("listening on lan0:t, link-type EN10MB (Ethernet)"), "{}", said.err);
    assert!(said.err.contains("2 packets captured") && said.err.contains("0 packets dropped"), "{}", said.err);
    let said = run(&daemon, &["tcpdump", "-i", "lan0:t", "no such word"]);
    assert!(said.code == Some(1) && said.err.contains("syntax error"), "{}", said.err);
}

#[test]
fn tcpdump_writes_frames_of_all_lengths_with_nanoseconds() {
    is_there("tcpdump");
    let (daemon, dir) = (Daemon::start(""), tempfile::tempdir().unwrap());
    let mut a = daemon.attach("lan0:a").unwrap();
    let written = file(&dir, "t.pcap");
    let args = ["tcpdump", "-Z", "root", "--nano", "-i", "lan0:t", "-w", text(&written), "-U", "-c", "40"];
    let tcpdump = start(&daemon, "t", &args);
    // Longer frames lie in several slots.
    let lengths = [14, 60, 1514, 2112, 2113, 5000, 9000, 65_535];
    let sent: Vec<Vec<u8>> = (0..40u8)
        .map(|number| {
            let mut frame = frame(ALL, A, number).to_vec();
            frame.resize(lengths[usize::from(number) % lengths.len()], number);
            frame
        })
        .collect();
    for frame in &sent {
        until("there is room", || a.tx().push(frame));
        a.flush();
    }
    succeed(tcpdump);
    assert!(frames(&written) == sent, "the frames differ");
    assert_eq!(std::fs::read(&written).unwrap()[..4], 0xa1b2_3c4d_u32.to_ne_bytes(), "a file with nanoseconds");
}

#[test]
fn tcpdump_taps_a_port_in_each_direction() {
    is_there("tcpdump");
    let daemon = Daemon::start("");
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    let tcpdump = |device: &str, way: &str, count: &str| {
        let args =
            ["tcpdump", "-Z", "root", "-n", "-t", "-e", "-i", device, "-Q", way, "-c", count, "ether proto 0x88b5"];
        ringway_testing::child::Ended(exec(&daemon, &args).spawn().unwrap())
    };
    let taps =
        [tcpdump("mirror:lan0:a", "in", "3"), tcpdump("mirror:a", "out", "2"), tcpdump("mirror:a", "inout", "5")];
    until("the captures run", || daemon.status()["captures"].as_array().unwrap().len() == 3);
    for number in 0..3 {
        send(&mut a, &frame(ALL, A, number));
        assert!(receive(&mut b, PATIENCE).is_some());
    }
    for number in 0..2 {
        send(&mut b, &frame(ALL, B, number));
        assert!(receive(&mut a, PATIENCE).is_some());
    }
    let [incoming, outgoing, both] = taps.map(|tap| succeed(tap).out);
    let from = |out: &str, mac: &str| out.lines().filter(|line| line.starts_with(mac)).count();
    let (mac_a, mac_b) = ("02:00:00:00:00:0a", "02:00:00:00:00:0b");
    assert_eq!([from(&incoming, mac_a), from(&incoming, mac_b)], [3, 0], "{incoming}");
    assert_eq!([from(&outgoing, mac_a), from(&outgoing, mac_b)], [0, 2], "{outgoing}");
    assert_eq!([from(&both, mac_a), from(&both, mac_b)], [3, 2], "{both}");
    until("the captures are over", || daemon.status()["captures"] == serde_json::json!([]));
    // A port that is not there.
    let said = run(&daemon, &["tcpdump", "-i", "mirror:nobody"]);
    assert!(said.code == Some(1) && said.err.contains("there is no port \"nobody\""), "{}", said.err);
}

#[test]
fn filters_know_the_direction_of_a_frame_and_no_interface() {
    is_there("tcpdump");
    let daemon = Daemon::start("");
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    let tcpdump = |device: &str, filter: &str, count: &str| {
        let filter = format!("ether proto 0x88b5 and {filter}");
        let args = ["tcpdump", "-Z", "root", "-n", "-t", "-e", "-i", device, "-c", count, &filter];
        ringway_testing::child::Ended(exec(&daemon, &args).spawn().unwrap())
    };
    let taps = [
        tcpdump("mirror:a", "inbound", "3"),
        tcpdump("mirror:a", "not outbound", "3"),
        tcpdump("mirror:a", "outbound", "2"),
        tcpdump("lan0:t", "inbound", "5"),
    ];
    until("the captures run", || daemon.status()["captures"].as_array().unwrap().len() == 3);
    until("the port is up", || daemon.port("t")["state"] == "up");
    for number in 0..3 {
        send(&mut a, &frame(ALL, A, number));
        assert!(receive(&mut b, PATIENCE).is_some());
    }
    for number in 0..2 {
        send(&mut b, &frame(ALL, B, number));
        assert!(receive(&mut a, PATIENCE).is_some());
    }
    let from = |out: &str, mac: &str| out.lines().filter(|line| line.starts_with(mac)).count();
    let counts = taps.map(|tap| {
        let out = succeed(tap).out;
        [from(&out, "02:00:00:00:00:0a"), from(&out, "02:00:00:00:00:0b")]
    });
    assert_eq!(counts, [[3, 0], [3, 0], [0, 2], [3, 2]]);
    let said = run(&daemon, &["tcpdump", "-i", "mirror:a", "ifindex 1"]);
    assert!(said.code == Some(1) && said.err.contains("only the kernel knows"), "{}", said.err);
}

#[test]
fn a_filter_sees_the_whole_of_a_frame_that_is_cut() {
    is_there("tcpdump");
    let daemon = Daemon::start("");
    let mut a = daemon.attach("lan0:a").unwrap();
    let mut b = daemon.attach("lan0:b").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let written = file(&dir, "cut.pcap");
    let args =
        ["tcpdump", "-Z", "root", "-s", "20", "-i", "mirror:a", "-w", text(&written), "-c", "1", "ether[50] = 7"];
    let tcpdump = ringway_testing::child::Ended(exec(&daemon, &args).spawn().unwrap());
    until("the capture runs", || daemon.status()["captures"].as_array().unwrap().len() == 1);
    for number in [6, 7] {
        let mut sent = frame(ALL, A, number);
        sent[50] = number;
        send(&mut a, &sent);
        assert!(receive(&mut b, PATIENCE).is_some());
    }
    succeed(tcpdump);
    assert_eq!(frames(&written), [frame(ALL, A, 7)[..20].to_vec()]);
}

#[test]
fn dumpcap_and_tshark_list_and_capture_ports() {
    is_there("tshark");
    let (daemon, dir) = (Daemon::start(""), tempfile::tempdir().unwrap());
    let mut a = daemon.attach("lan0:a").unwrap();
    let listed = run(&daemon, &["dumpcap", "-D"]);
    for device in [" lan0:a\n", " mirror:lan0:a\n"] {
        assert!(listed.out.contains(device), "{}{}", listed.out, listed.err);
    }
    let listed = run(&daemon, &["tcpdump", "-D"]);
    for device in [
        ".lan0:a (Ringway port) [Up, Running, Connected]",
        ".mirror:lan0:a (Ringway tap on process port lan0:a) [Up, Running]",
    ] {
        assert!(listed.out.contains(device), "{}{}", listed.out, listed.err);
    }
    let written = file(&dir, "d.pcapng");
    let dumpcap = start(&daemon, "d", &["dumpcap", "-q", "-i", "lan0:d", "-c", "5", "-w", text(&written)]);
    let sent: Vec<[u8; 60]> = (0..5).map(|number| frame(ALL, A, number)).collect();
    sent.iter().for_each(|frame| send(&mut a, frame));
    succeed(dumpcap);
    assert!(frames(&written) == sent, "the frames differ");
    // tshark starts dumpcap: its children meet the library, too.
    let args = [
        "tshark",
        "-n",
        "-i",
        "lan0:s",
        "-c",
        "2",
        "-f",
        "ether src 02:00:00:00:00:0a",
        "-T",
        "fields",
        "-e",
        "eth.src",
    ];
    let tshark = start(&daemon, "s", &args);
    let mut b = daemon.attach("lan0:b").unwrap();
    send(&mut b, &frame(ALL, B, 0));
    sent[..2].iter().for_each(|frame| send(&mut a, frame));
    assert_eq!(succeed(tshark).out, "02:00:00:00:00:0a\n02:00:00:00:00:0a\n");
}

#[test]
fn scapy_sends_and_sniffs_by_libpcap() {
    let script = "
from scapy.all import *
conf.use_pcap = True
socket = conf.L2socket(iface='lan0:py')
first = sniff(opened_socket=socket, count=3, timeout=300)
for packet in first:
    socket.send(Ether(src='02:00:00:00:00:0c', dst=packet.src)/Raw(bytes(packet)[14:]))
print(len(first))
";
    if !std::process::Command::new(PYTHON).args(["-c", "import scapy"]).output().unwrap().status.success() {
        panic!("python3-scapy is not there: make deps installs it");
    }
    let daemon = Daemon::start("[switch.lan0]\n[port.py]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let mut a = daemon.attach("lan0:a").unwrap();
    let scapy = start(&daemon, "py", &[PYTHON, "-c", script]);
    for number in 0..3 {
        send(&mut a, &frame(ALL, A, number));
    }
    for number in 0..3 {
        let got = receive(&mut a, PATIENCE).expect("scapy's answer");
        assert_eq!(got[..12], [&A[..], &[2, 0, 0, 0, 0, 0xc]].concat());
        assert_eq!(got[14..], frame(ALL, A, number)[14..]);
    }
    assert!(succeed(scapy).out.ends_with("3\n"));
}

#[test]
fn arping_hping3_and_nmap_are_answered_on_tap_ports_and_a_mirror_shows_it() {
    if !is_root() {
        ringway_testing::skip!("needs root: TAP ports in namespaces");
    }
    ["arping", "hping3", "nmap", "tcpdump"].into_iter().for_each(is_there);
    let lan = Lan::new(2);
    let args = ["tcpdump", "-Z", "root", "-n", "-t", "-l", "-i", "mirror:t2", "-Q", "out", "-c", "1"];
    let captures = [9, 7].map(|port| {
        let filter = format!("tcp[tcpflags] = tcp-syn and dst port {port}");
        (port, ringway_testing::child::Ended(exec(&lan.daemon, &[&args[..], &[&filter]].concat()).spawn().unwrap()))
    });
    until("the captures run", || lan.daemon.status()["captures"].as_array().unwrap().len() == 2);
    let there = "10.77.0.2";
    // Each of these programs waits for its answer for a time of its own, and may have to ask again.
    let says = |program: &str, args: &[&str], wanted: &str| {
        until(&format!("{program} says {wanted}"), || lan.spaces[0].run(program, args).out.contains(wanted));
    };
    says("arping", &["-c", "1", "-W", "10", "-i", "t1", there], "1 packets received");
    // Nobody listens: a reset answers.
    says("hping3", &["-n", "-c", "1", "-S", "-p", "9", "-I", "t1", there], "flags=RA");
    says("nmap", &["-n", "-Pn", "-sS", "--send-eth", "-e", "t1", "-p", "7", there], "7/tcp closed");
    for (port, tcpdump) in captures {
        let (lines, wanted) = (succeed(tcpdump).out, format!("10.77.0.2.{port}: Flags [S]"));
        assert!(lines.contains(&wanted), "{wanted}: {lines}");
    }
}

#[test]
fn tcpdump_hears_what_tcpreplay_sends_on_a_tap_port() {
    if !is_root() {
        ringway_testing::skip!("needs root: a TAP port in a namespace");
    }
    is_there("tcpreplay");
    let (lan, dir) = (Lan::new(1), tempfile::tempdir().unwrap());
    let (sample, written) = (file(&dir, "sample.pcap"), file(&dir, "t.pcap"));
    let mut recorder = Recorder::create(&sample, 65_536).unwrap();
    let sent: Vec<Vec<u8>> = (0..200u8).map(|number| frame(ALL, A, number).to_vec()).collect();
    for (number, frame) in sent.iter().enumerate() {
        recorder.write(Duration::from_micros(number as u64), frame).unwrap();
    }
    recorder.flush().unwrap();
    let args =
        ["tcpdump", "-Z", "root", "-i", "lan0:t", "-w", text(&written), "-c", "200", "ether src 02:00:00:00:00:0a"];
    let tcpdump = start(&lan.daemon, "t", &args);
    lan.spaces[0].ok("tcpreplay", &["--pps=2000", "-i", "t1", text(&sample)]);
    succeed(tcpdump);
    assert!(frames(Path::new(&written)) == sent, "the frames differ");
}
