//! `ringway capture` and mirror ports, seen by tcpdump, tshark and capinfos.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::time::Duration;

use ringway_client::{Port, Shape};
use ringway_scenes::namespace::{Lan, Namespace, frames};
use ringway_scenes::{Daemon, PATIENCE, Said, flood, frame, receive, ringway, send, until};
use ringway_testing::child::Ended;
use ringway_traffic::pcap::Recorder;
use rustix::process::Signal;
use serde_json::Value;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const ALL: [u8; 6] = [0xff; 6];

/// A running `ringway capture`. Dropping it ends the command.
struct Capture {
    child: Ended,
    said: BufReader<ChildStderr>,
}

impl Capture {
    /// Starts the command, and waits until the daemon has accepted the capture.
    fn start(daemon: &Daemon, args: &[&str]) -> Capture {
        let mut command = ringway();
        command.arg("--runtime-dir").arg(daemon.runtime_dir()).arg("capture").args(args);
        let mut child = Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("capturing"), "{line}");
        Capture { child, said }
    }

    fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Waits for the end of the command, which must succeed. Returns its last output.
    fn end(mut self) -> String {
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

/// Runs a program that reads a file. The program must succeed.
fn reader(program: &str, args: &[&str]) -> String {
    let said: Said = Command::new(program).args(args).output().expect("make deps installs it").into();
    assert_eq!(said.code, Some(0), "{program} {args:?}: {}", said.err);
    said.out
}

/// Returns the fields that tshark finds in each frame, separated by `|`.
fn tshark(file: &Path, fields: &[&str]) -> Vec<String> {
    let fields: Vec<&str> = fields.iter().flat_map(|field| ["-e", field]).collect();
    let args = [&["-r", file.to_str().unwrap(), "-n", "-T", "fields", "-E", "separator=|"], &fields[..]].concat();
    reader("tshark", &args).lines().map(str::to_owned).collect()
}

/// Makes a capture file with frames of many lengths from A to B.
fn sample(dir: &Path) -> PathBuf {
    let path = dir.join("sample.pcap");
    let mut recorder = Recorder::create(&path, 65_536).unwrap();
    for number in 0..600usize {
        let len = [14, 60, 127, 128, 129, 131, 700, 1514][number % 8] + number / 8 % 3;
        let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8).collect();
        bytes[..12].copy_from_slice(&[B, A].concat());
        recorder.write(Duration::from_millis(number as u64), &bytes).unwrap();
    }
    recorder.flush().unwrap();
    path
}

fn introduce(a: &mut Port, b: &mut Port) {
    send(b, &frame(ALL, B, 0));
    assert!(receive(a, PATIENCE).is_some());
}

#[test]
fn what_is_replayed_is_captured_byte_for_byte_at_both_ports() {
    let (daemon, dir) = (Daemon::start(""), tempfile::tempdir().unwrap());
    let mut b =
        Port::attach(daemon.runtime_dir().join("attach.sock"), "lan0:b", Shape { rx_slots: 1024, ..Shape::default() })
            .unwrap();
    let _a = daemon.attach("lan0:probe").unwrap();
    send(&mut b, &frame(ALL, B, 0));
    daemon.ok(&["port", "add", "a", "switch=lan0", "kind=process"]);
    let sample = sample(dir.path());
    let files = ["a.pcapng", "b.pcapng"].map(|name| dir.path().join(name));
    let captures = [
        Capture::start(&daemon, &["lan0:a", "-w", files[0].to_str().unwrap(), "-c", "600"]),
        Capture::start(&daemon, &["b", "--direction", "out", "-w", files[1].to_str().unwrap(), "-c", "600"]),
    ];
    daemon.ok(&["gen", "tx", "lan0:a", "--pcap", sample.to_str().unwrap(), "--rate", "max"]);
    for capture in captures {
        assert_eq!(capture.end(), "ringway capture: 600 frames captured\n");
    }
    for (file, flags) in files.iter().zip(["0x00000001", "0x00000002"]) {
        assert!(frames(file) == frames(&sample), "the file's frames, unchanged and in order");
        let seen = tshark(file, &["frame.packet_flags", "frame.interface_name"]);
        let name = if flags == "0x00000001" { "lan0:a" } else { "lan0:b" };
        assert!(seen.iter().all(|line| *line == format!("{flags}|{name}")), "{:?}", seen[0]);
    }
    let facts = reader("capinfos", &[files[0].to_str().unwrap()]);
    for fact in
        ["nanoseconds (9)", "Number of packets:   600", "Number of stat entries = 1", "Strict time order:   True"]
    {
        assert!(facts.contains(fact), "{fact}: {facts}");
    }
    let listed = reader("tcpdump", &["-n", "-t", "-e", "-r", files[1].to_str().unwrap()]);
    // Indented lines with the frame's bytes follow some lines.
    assert_eq!(listed.lines().filter(|line| !line.starts_with('\t')).count(), 600);
    assert!(daemon.status()["captures"] == serde_json::json!([]), "an ended capture is still listed");
}

#[test]
fn tcpdump_reads_a_capture_while_frames_flow() {
    let daemon = Daemon::start("");
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    introduce(&mut a, &mut b);
    let mut capture = Capture::start(&daemon, &["a", "-w", "-", "--direction", "in"]);
    let pipe = capture.child.stdout.take().unwrap();
    let mut command = Command::new("tcpdump");
    command.args(["-l", "-n", "-t", "-e", "-r", "-", "ether proto 0x88b5"]);
    let mut tcpdump = Ended(command.stdin(pipe).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    // The command object holds the pipe's other end, too.
    drop(command);
    let lines = BufReader::new(tcpdump.stdout.take().unwrap()).lines();
    // Indented lines with the frame's bytes follow each line.
    let mut lines = lines.map_while(Result::ok).filter(|line| !line.starts_with('\t'));
    // One frame at a time: tcpdump shows each frame before the next is sent.
    for number in 0..3 {
        send(&mut a, &frame(B, A, number));
        let line = lines.next().expect("a line of tcpdump");
        assert!(line.contains("02:00:00:00:00:0a > 02:00:00:00:00:0b"), "{line}");
        assert!(receive(&mut b, PATIENCE).is_some());
    }
    // A reader that closes the pipe is no failure, as for other commands.
    tcpdump.kill().unwrap();
    tcpdump.wait().unwrap();
    drop(lines);
    until("the command ends at its next write", || {
        let _ = a.tx().push(&frame(B, A, 9));
        a.flush();
        capture.child.try_wait().unwrap().is_some()
    });
    assert!(capture.child.wait().unwrap().success());
    until("the daemon ends the capture", || daemon.status()["captures"] == serde_json::json!([]));
}

#[test]
fn lost_frames_are_in_the_capture_with_their_reason_if_asked() {
    let (daemon, dir) = (Daemon::start(""), tempfile::tempdir().unwrap());
    let mut a = daemon.attach("lan0:a").unwrap();
    let small = Shape { rx_slots: 4, ..Shape::default() };
    let mut b = Port::attach(daemon.runtime_dir().join("attach.sock"), "lan0:b", small).unwrap();
    introduce(&mut a, &mut b);
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let names = ["a-all", "b-all", "b"].map(file);
    let captures = [
        Capture::start(&daemon, &["a", "--drops", "-w", &names[0]]),
        Capture::start(&daemon, &["b", "--drops", "-w", &names[1]]),
        Capture::start(&daemon, &["b", "-w", &names[2]]),
    ];
    // The ring holds three of five frames. Then a frame to the sender's own port, and a frame with an invalid source.
    for number in 0..5 {
        send(&mut a, &frame(B, A, number));
    }
    send(&mut a, &frame(A, A, 5));
    send(&mut a, &frame(B, [0; 6], 6));
    until("all frames are counted", || daemon.port("a")["in"]["frames"] == 7);
    let captured = || [0, 1, 2].map(|n| daemon.status()["captures"][n]["captured"].as_u64().unwrap());
    until("all frames are captured", || captured() == [7, 5, 3]);
    for capture in captures {
        capture.signal(Signal::INT);
        capture.end();
    }
    let comments = |name: &str| tshark(Path::new(name), &["frame.comment"]);
    let full = "dropped: receiver_full";
    assert_eq!(comments(&names[0]), ["", "", "", "", "", "dropped: same_port", "dropped: bad_source"]);
    assert_eq!(comments(&names[1]), ["", "", "", full, full]);
    assert_eq!(comments(&names[2]), ["", "", ""]);
    assert_eq!(daemon.port("b")["drops"]["receiver_full"], 2);
    assert_eq!(frames(Path::new(&names[1]))[4], frame(B, A, 4));
}

#[test]
fn frames_that_policy_takes_out_are_in_the_capture_with_the_reason_by_name() {
    let station = |number: u8| [2, 0, 0, 0, 0, number];
    let ports = [
        "mac = \"02:00:00:00:00:01\"\nip = \"10.0.0.1\"\nallow = [\"p2\"]\ningress = { frames = \"1pps\", frames_burst = 7 }",
        "mac = \"02:00:00:00:00:02\"\negress = { frames = \"1pps\", frames_burst = 5 }",
        "mac = \"02:00:00:00:00:03\"\nstorm = { broadcast = \"1pps\" }\nisolated = true",
        "mac = \"02:00:00:00:00:04\"\nisolated = true",
    ];
    let config = flood::config(&ports).replace("[switch.lan0]", "[switch.lan0]\nforwarding = \"map\"");
    let (daemon, dir) = (Daemon::start(&config), tempfile::tempdir().unwrap());
    let mut clients = [1, 2, 3, 4].map(|n| daemon.attach(&format!("lan0:p{n}")).unwrap());
    // The frames of each port, and the outcome of those that no limit decides.
    let claim = |rest: &[u8]| {
        let mut frame = [&station(2)[..], &station(1), rest].concat();
        frame.resize(60, 0);
        frame
    };
    let arp = [&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1][..], &station(1), &[10, 0, 0, 9]].concat();
    let ip = [8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 2];
    let lost = [
        (1, frame(station(2), station(3), 0).to_vec(), "spoofed_mac"),
        (1, claim(&arp), "spoofed_arp"),
        (1, claim(&ip), "spoofed_ip"),
        (1, frame(station(9), station(1), 0).to_vec(), "no_destination"),
        (1, frame(station(4), station(1), 0).to_vec(), "pair_denied"),
        (3, frame(station(4), station(3), 0).to_vec(), "isolated"),
    ];
    let many = [
        (1, frame(station(2), station(1), 0), 20, "rate_limited"),
        (3, frame(ALL, station(3), 0), 50, "storm_limited"),
        (4, frame(station(2), station(4), 0), 20, ""),
    ];
    let files = [1, 2, 3].map(|n| dir.path().join(format!("p{n}")));
    let captures = [1, 2, 3].map(|n: usize| {
        let way = if n == 2 { "out" } else { "in" };
        let file = files[n - 1].to_str().unwrap();
        Capture::start(&daemon, &[&format!("p{n}"), "--drops", "--direction", way, "-w", file])
    });
    let mut sent = [0u64; 4];
    let each = lost.iter().map(|(from, frame, _)| (*from, &frame[..], 1));
    for (from, frame, times) in each.chain(many.iter().map(|(from, frame, times, _)| (*from, &frame[..], *times))) {
        // All at once: frames that come one by one may all be within the limits.
        (0..times).for_each(|_| assert!(clients[from - 1].tx().push(frame)));
        clients[from - 1].flush();
        sent[from - 1] += times;
        until("the frames are taken", || daemon.port(&format!("p{from}"))["in"]["frames"] == sent[from - 1]);
    }
    let seen = |n: usize| daemon.status()["captures"][n]["captured"].as_u64().unwrap();
    until("all frames are captured", || (seen(0), seen(2)) == (sent[0], sent[2]));
    // p2 receives the permitted frames of p1, the part of p3's storm within its limit, and all frames of p4.
    let gone = |port: &str| {
        let drops = daemon.port(port)["drops"].clone();
        drops.as_object().unwrap().values().map(|frames| frames.as_u64().unwrap()).sum::<u64>()
    };
    until("all frames are captured", || seen(1) == sent.iter().sum::<u64>() - gone("p1") - gone("p3"));
    for capture in captures {
        capture.signal(Signal::INT);
        capture.end();
    }

    let commented = files.each_ref().map(|file| {
        let mut counted = BTreeMap::new();
        for comment in tshark(file, &["frame.comment"]).iter().filter_map(|comment| comment.strip_prefix("dropped: ")) {
            *counted.entry(comment.to_owned()).or_insert(0u64) += 1;
        }
        serde_json::json!(counted)
    });
    let counted = ["p1", "p2", "p3"].map(|port| daemon.port(port)["drops"].clone());
    assert_eq!(commented, counted, "the numbers of reasons and of counted drops differ");
    for (from, bytes, reason) in &lost {
        let file = &files[from - 1];
        let at = tshark(file, &["frame.comment"]).iter().position(|said| *said == format!("dropped: {reason}"));
        assert_eq!(&frames(file)[at.expect(reason)], bytes, "{reason}");
    }
    for (from, _, _, reason) in many.iter().filter(|many| !many.3.is_empty()) {
        assert!(daemon.port(&format!("p{from}"))["drops"][reason].as_u64() > Some(0), "{reason}");
    }
    assert!(daemon.port("p2")["drops"]["egress_limited"].as_u64() > Some(0));
}

#[test]
fn a_reader_that_stalls_loses_frames_and_never_the_switch() {
    let daemon = Daemon::start("");
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    introduce(&mut a, &mut b);
    let capture = Capture::start(&daemon, &["b", "-w", "-", "--buffer", "256KiB"]);
    let captures = || daemon.status()["captures"][0].clone();
    // The test does not read the command's stdout.
    let mut sent = 0u64;
    while captures()["lost"].as_u64() < Some(1000) {
        for _ in 0..100 {
            send(&mut a, &frame(B, A, sent as u8));
            assert_eq!(
                receive(&mut b, PATIENCE).as_deref(),
                Some(&frame(B, A, sent as u8)[..]),
                "the client loses no frame"
            );
            sent += 1;
        }
    }
    // A client may see a frame before the capture has it.
    until("each frame is captured or counted as lost", || {
        let now = captures();
        now["captured"].as_u64().unwrap() + now["lost"].as_u64().unwrap() == sent
    });
    // The test reads again: the file records the number of lost frames.
    let mut capture = capture;
    let mut pipe = capture.child.stdout.take().unwrap();
    capture.signal(Signal::TERM);
    let mut file = Vec::new();
    pipe.read_to_end(&mut file).unwrap();
    let said = capture.end();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file.pcapng");
    std::fs::write(&path, &file).unwrap();
    let kept = frames(&path).len() as u64;
    assert_eq!(
        said,
        format!("ringway capture: {kept} frames captured, {} lost: they were not written fast enough\n", sent - kept)
    );
    // Interface Statistics Block, isb_ifdrop (5), the last option but the end and the length.
    let end = file.len();
    assert_eq!(file[end - 20..end - 16], [5, 0, 8, 0]);
    assert_eq!(u64::from_le_bytes(file[end - 16..end - 8].try_into().unwrap()), sent - kept);
    assert_eq!(daemon.port("b")["drops"], serde_json::json!({}));
}

#[test]
fn time_signals_and_the_end_of_the_port_end_a_capture_with_a_complete_file() {
    let (daemon, dir) = (Daemon::start("[switch.lan0]\n"), tempfile::tempdir().unwrap());
    let file = dir.path().join("file.pcapng");
    let name = file.to_str().unwrap();
    let complete = || {
        let facts = reader("capinfos", &[name]);
        assert!(facts.contains("Number of stat entries = 1") && facts.contains("Number of packets:   0"), "{facts}");
        std::fs::remove_file(&file).unwrap();
    };
    daemon.ok(&["port", "add", "p", "switch=lan0", "kind=process"]);
    assert_eq!(
        Capture::start(&daemon, &["p", "-w", name, "--duration", "20ms"]).end(),
        "ringway capture: 0 frames captured\n"
    );
    complete();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let capture = Capture::start(&daemon, &["p", "-w", name]);
        capture.signal(signal);
        capture.end();
        complete();
    }
    let capture = Capture::start(&daemon, &["p", "-w", name]);
    // The capture stays when a client attaches and detaches. It ends with the port.
    drop(daemon.attach("lan0:p").unwrap());
    daemon.until_state("p", "waiting");
    daemon.ok(&["port", "del", "p"]);
    capture.end();
    complete();
}

#[test]
fn what_cannot_be_captured_is_refused_with_what_would_be_right() {
    let daemon = Daemon::start("[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n");
    for (args, code, wanted) in [
        (&["q", "-w", "/dev/null"][..], 2, "there is no port \"q\": see \"ringway port list\""),
        (&["p", "-w", "/no/such/file"], 1, "/no/such/file: No such file"),
        (&["p", "-w", "/dev/full", "-c", "0"], 1, "cannot write: No space left"),
        (&["p", "--snaplen", "13"], 2, "--snaplen: 13 is out of range; write 14 to 262144"),
        (&["p", "--duration", "10"], 2, "--duration: \"10\" is not a duration"),
        (&["p", "--buffer", "1KiB"], 2, "--buffer: 1024 bytes are out of range; write 256KiB to 1GiB"),
    ] {
        let said = daemon.ringway(&[&["capture"], args].concat());
        assert_eq!(said.code, Some(code), "{args:?}: {}", said.err);
        assert!(said.err.contains(wanted), "{args:?}: {}", said.err);
    }
    let many: Vec<Capture> = (0..16).map(|_| Capture::start(&daemon, &["p", "-w", "-"])).collect();
    let said = daemon.ringway(&["capture", "p", "-w", "-"]);
    assert!(said.code == Some(2) && said.err.contains("16 captures are running"), "{}", said.err);
    drop(many);
    until("the ended captures make room", || daemon.status()["captures"] == serde_json::json!([]));
    // Runs the command on a terminal that `script` makes.
    let line = format!("{} capture p", env!("CARGO_BIN_EXE_ringway"));
    let said: Said = Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap().into();
    assert!(said.code == Some(2) && said.out.contains("stdout is a terminal"), "{said:?}");
}

#[test]
fn tcpdump_on_a_mirror_tap_sees_both_directions_of_the_mirrored_port() {
    let (lan, space) = (Lan::new(2), Namespace::new());
    let netns = format!("netns={}", space.name);
    lan.daemon.ok(&["port", "add", "m", "switch=lan0", "kind=tap", &netns, "mirror=t1"]);
    let port = lan.daemon.port("m");
    assert_eq!((&port["mirror"], &port["mirror_direction"]), (&serde_json::json!(["t1"]), &"both".into()));
    let tcpdump = |count: &str| {
        let args = ["-l", "-n", "-t", "-i", "m", "-c", count, "icmp"];
        space.start("tcpdump", &args, "listening on")
    };
    let seen = tcpdump("20");
    lan.spaces[0].ping(10, &["-i", "0.002", "10.77.0.2"]);
    let seen = seen.finish();
    let count = |what: &str| seen.matches(what).count();
    assert_eq!(
        (count("10.77.0.1 > 10.77.0.2: ICMP echo request"), count("10.77.0.2 > 10.77.0.1: ICMP echo reply")),
        (10, 10)
    );

    // Frames of one direction, while frames flow. Frames that the mirror's own stack sends are dropped.
    lan.daemon.ok(&["port", "set", "m", "mirror_direction=out"]);
    let seen = tcpdump("10");
    lan.spaces[0].ping(10, &["-i", "0.002", "10.77.0.2"]);
    let seen = seen.finish();
    assert_eq!(seen.matches("ICMP echo reply").count(), 10, "{seen}");
    space.ok("ip", &["addr", "add", "10.77.0.9/24", "dev", "m"]);
    let said = space.run("ping", &["-q", "-c", "1", "-W", "0.2", "10.77.0.1"]);
    assert_eq!(said.code, Some(1), "{}", said.out);
    until("the mirror's own frames are counted", || lan.drops("m", "mirror_port") > 0);

    lan.daemon.ok(&["port", "set", "m", "mirror=[]"]);
    lan.spaces[0].ping(1, &["10.77.0.9"]);
}

#[test]
fn a_mirror_of_a_client_that_comes_later_begins_with_it() {
    let daemon = Daemon::start("[switch.lan0]\n[port.m]\nswitch = \"lan0\"\nkind = \"process\"\nmirror = [\"a\"]\n");
    let mut mirror = daemon.attach("lan0:m").unwrap();
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    introduce(&mut a, &mut b);
    assert_eq!(receive(&mut mirror, PATIENCE).as_deref(), Some(&frame(ALL, B, 0)[..]), "the frame as it was sent to a");
    send(&mut a, &frame(B, A, 1));
    assert_eq!(receive(&mut mirror, PATIENCE).as_deref(), Some(&frame(B, A, 1)[..]));
    let listed: Value = serde_json::from_str(&daemon.ok(&["port", "list", "--json"])).unwrap();
    assert_eq!(listed[2]["mirror"], serde_json::json!(["a"]), "{listed}");
}
