//! `ringway lwep`: a server and its clients at ports of a daemon, and at interfaces of the host.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ringway_scenes::namespace::{Namespace, cpu_time};
use ringway_scenes::{Daemon, Said, binary, ringway, until, until_some};
use ringway_testing::child::Ended;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::Value;

/// Naps of a process that has nothing to do, in the test of its CPU time.
const NAPS: u32 = 10;

/// Starts `ringway lwep ARGS`.
fn start(daemon: &Daemon, args: &[&str]) -> Ended {
    let mut command = ringway();
    command.arg("--runtime-dir").arg(daemon.runtime_dir()).arg("lwep").args(args);
    Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// Starts a server at `lan0:b`, and waits until it serves.
fn serve(daemon: &Daemon, args: &[&str]) -> Ended {
    until("the port of an earlier server is gone", || daemon.port("b").is_null());
    let mut server = start(daemon, &[&["serve", "lan0:b", "--json"], args].concat());
    let mut line = String::new();
    BufReader::new(server.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("at lan0:b, address "), "{line}");
    server
}

/// Starts a ping without an end from `lan0:a`, and waits until it is under way. Starts another one if the server was not heard for longer
/// than the ping waits.
fn endless_ping(daemon: &Daemon, args: &[&str]) -> Ended {
    until_some("messages go", || {
        until("the port of an earlier ping is gone", || daemon.port("a").is_null());
        let mut ping = start(daemon, &[&["ping", "lan0:a", "--to", "lan0:b"], args].concat());
        // The handshake has two frames from each end.
        let is_under_way = || daemon.port("a")["in"]["frames"].as_u64().is_some_and(|frames| frames >= 3);
        until("messages go, or the ping ends", || is_under_way() || ping.try_wait().unwrap().is_some());
        ping.try_wait().unwrap().is_none().then_some(ping)
    })
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
}

/// Runs a client from `lan0:a` to `lan0:b`, which must succeed. Returns its report.
fn client(daemon: &Daemon, what: &str, args: &[&str]) -> Value {
    let head = ["lwep", what, "lan0:a", "--to", "lan0:b", "--json", "--timeout", "300s"];
    json(&daemon.ok(&[&head[..], args].concat()))
}

/// Ends a server with SIGTERM. Returns its report.
fn end(server: Ended) -> Value {
    server.signal(Signal::TERM);
    let said: Said = server.output().into();
    assert_eq!(said.code, Some(0), "{}", said.err);
    json(&said.out)
}

fn fails(said: &Said, wanted: &str) {
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.err);
    assert!(said.err.contains(wanted), "{}", said.err);
}

#[test]
fn messages_come_back_and_both_ends_say_how_many() {
    let daemon = Daemon::start("");
    let server = serve(&daemon, &[]);
    let report = client(&daemon, "ping", &["--count", "100"]);
    assert_eq!((&report["sent"], &report["received"], &report["corrupted"]), (&100.into(), &100.into(), &0.into()));
    let times = |names: [&str; 5]| names.map(|name| report["round_trip_ns"][name].as_u64().unwrap());
    // The names of `gen ping`, and older ones.
    let same = times(["min_ns", "median_ns", "p99_ns", "p99_9_ns", "max_ns"]);
    let times = times(["min", "p50", "p99", "p999", "max"]);
    assert_eq!(times, same);
    assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
    // The END is a message, too.
    assert_eq!(report["counters"]["messages_sent"], 101);
    assert_eq!(report["counters"]["bad_checksum"], 0);
    assert_eq!(report["ended"], "count");
    // A message longer than a frame, with checksums, without sleep.
    client(&daemon, "ping", &["--count", "3", "--size", "100000", "--checksums", "--wait", "spin"]);
    client(&daemon, "ping", &["--count", "1", "--size", "0"]);
    let text = daemon.ok(&["lwep", "ping", "lan0:a", "--to", "lan0:b", "--count", "7", "--timeout", "300s"]);
    assert!(text.contains("7 messages of 64 bytes sent, 7 received") && text.contains("p99.9"), "{text}");
    let served = end(server);
    assert_eq!((&served["connections"], &served["echoed"]), (&4.into(), &111.into()));
    assert_eq!(served["counters"]["malformed"], 0);
}

#[test]
fn the_receiver_tells_how_many_messages_it_had_in_both_layouts() {
    let daemon = Daemon::start("");
    let server = serve(&daemon, &["--address", "10.99.0.2"]);
    for args in [&["--count", "5k", "--size", "64"][..], &["--count", "5000", "--segmented", "--address", "10.99.0.1"]]
    {
        let report = client(&daemon, "bandwidth", args);
        let [sent, received] = ["sent", "received"].map(|end| &report[end]);
        assert_eq!((&sent["messages"], &received["messages"]), (&5000.into(), &5000.into()));
        assert_eq!(sent["bytes"], received["bytes"]);
        for rate in ["seconds", "messages_per_second", "bytes_per_second"] {
            assert!(sent[rate].as_f64().unwrap() > 0.0 && received[rate].as_f64().unwrap() > 0.0, "{rate}: {report}");
        }
        let frames = report["counters"]["frames_sent"].as_u64().unwrap();
        let is_segmented = report["segmented"] == true;
        assert_eq!(frames < 5000, is_segmented, "{frames} frames carried 5,000 messages");
    }
    let limited = client(&daemon, "bandwidth", &["--duration", "50ms"]);
    assert_eq!(limited["ended"], "duration");
    let served = end(server);
    assert!(served["sunk"]["messages"].as_u64().unwrap() >= 10_000, "{served}");
}

#[test]
fn a_server_without_an_address_takes_no_segmented_messages_and_says_so() {
    let daemon = Daemon::start("");
    let _server = serve(&daemon, &[]);
    let args = ["lwep", "bandwidth", "lan0:a", "--to", "lan0:b", "--segmented", "--address", "10.99.0.1"];
    let said = daemon.ringway(&args);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("start \"lwep serve\" with --address"), "{}", said.err);
    let said = daemon.ringway(&["lwep", "bandwidth", "lan0:a", "--to", "lan0:b", "--size", "9000"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("--size 9000: a frame to the server holds"), "{}", said.err);
}

#[test]
fn a_file_arrives_whole_under_its_name_and_nowhere_else() {
    let daemon = Daemon::start("");
    let directory = tempfile::tempdir().unwrap();
    let (own, incoming) = (directory.path().join("own"), directory.path().join("incoming"));
    std::fs::create_dir(&own).unwrap();
    std::fs::create_dir(&incoming).unwrap();
    let contents: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let (file, empty) = (own.join("a file"), own.join("empty"));
    std::fs::write(&file, &contents).unwrap();
    std::fs::write(&empty, "").unwrap();
    let send = |file: &Path, args: &[&str]| {
        let head = ["lwep", "send", "lan0:a", "--to", "lan0:b", "--timeout", "300s", file.to_str().unwrap()];
        daemon.ringway(&[&head[..], args].concat())
    };
    let names = || {
        let entries = std::fs::read_dir(&incoming).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };

    let server = serve(&daemon, &[]);
    fails(&send(&file, &[]), "takes no files: \"lwep serve --save DIR\" does");
    assert_eq!(end(server)["files"], 0);

    let server = serve(&daemon, &["--save", incoming.to_str().unwrap()]);
    let said = send(&file, &["--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(json(&said.out)["sent"]["bytes"], contents.len());
    assert!(std::fs::read(incoming.join("a file")).unwrap() == contents, "the file has other contents");
    assert_eq!(send(&empty, &[]).code, Some(0));
    fails(&send(&empty, &["--as", "a file"]), "a file exists there");
    for name in ["../b", "/tmp/b", "..", "", ".b"] {
        let said = send(&empty, &["--as", name]);
        assert_eq!(said.code, Some(2), "{name}: {}", said.err);
    }
    assert_eq!(names(), ["a file", "empty"]);
    assert_eq!(end(server)["files"], 2);

    let _server = serve(&daemon, &["--save", incoming.to_str().unwrap(), "--overwrite"]);
    assert_eq!(send(&empty, &["--as", "a file"]).code, Some(0));
    assert_eq!(std::fs::read(incoming.join("a file")).unwrap(), b"");
    assert_eq!(names(), ["a file", "empty"]);
}

#[test]
fn a_client_of_a_server_that_was_killed_says_why_it_ends() {
    let daemon = Daemon::start("");
    let server = serve(&daemon, &[]);
    let ping = endless_ping(&daemon, &["--timeout", "300s"]);
    drop(server);
    let server = serve(&daemon, &[]);
    fails(&ping.output().into(), "the peer does not know the connection any more: was it started again?");

    let ping = endless_ping(&daemon, &["--timeout", "300ms"]);
    drop(server);
    fails(&ping.output().into(), "has not answered for 300ms");
    let ping = start(&daemon, &["ping", "lan0:a", "--to", "lan0:b", "--timeout", "300ms"]);
    fails(&ping.output().into(), "the peer does not answer: is \"ringway lwep serve\" running there?");
}

#[test]
fn a_server_that_ends_tells_its_clients() {
    let daemon = Daemon::start("");
    let server = serve(&daemon, &[]);
    let ping = endless_ping(&daemon, &["--interval", "1h", "--timeout", "300s"]);
    end(server);
    fails(&ping.output().into(), "the peer has ended the connection");
}

#[test]
fn both_ends_say_that_the_switch_was_restarted() {
    for wait in ["sleep", "spin"] {
        let mut daemon = Daemon::start("");
        let server = serve(&daemon, &["--wait", wait]);
        let ping = endless_ping(&daemon, &["--wait", wait, "--timeout", "300s"]);
        daemon.replace();
        fails(&ping.output().into(), "lan0:a: the switch is gone");
        fails(&server.output().into(), "lan0:b: the switch is gone");
    }
}

#[test]
fn a_client_that_stands_still_holds_up_no_other() {
    let daemon = Daemon::start("");
    let server = serve(&daemon, &[]);
    let still = start(&daemon, &["bandwidth", "lan0:c", "--to", "lan0:b", "--duration", "1h"]);
    until("messages go", || daemon.port("c")["in"]["frames"].as_u64().is_some_and(|frames| frames > 1000));
    still.signal(Signal::STOP);
    assert_eq!(client(&daemon, "ping", &["--count", "50"])["received"], 50);
    still.signal(Signal::CONT);
    still.signal(Signal::TERM);
    let said: Said = still.output().into();
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("stopped"), "{}", said.out);
    assert_eq!(end(server)["connections"], 2);
}

/// Returns a process's CPU time, and how often it has slept.
fn cpu(process: &Ended) -> (Duration, u32) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let naps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    (cpu_time(process.id()), naps.trim().parse().unwrap())
}

#[test]
fn ends_that_have_nothing_to_do_sleep() {
    let daemon = Daemon::start("");
    let server = serve(&daemon, &[]);
    let ping = endless_ping(&daemon, &["--interval", "1h", "--timeout", "300s"]);
    let ends = [&server, &ping];
    let before = ends.map(cpu);
    until("both have slept some times", || ends.iter().zip(&before).all(|(end, before)| cpu(end).1 > before.1 + NAPS));
    for (end, before) in ends.iter().zip(&before) {
        let (time, naps) = cpu(end);
        // A nap is a tenth of a second: 1 % of it.
        let (used, naps) = (time - before.0, naps - before.1);
        assert!(used < Duration::from_millis(1) * naps, "{used:?} of CPU in {naps} naps");
    }
}

#[test]
fn interfaces_of_the_host_are_ports_too() {
    let namespace = Namespace::new();
    namespace.ok("ip", &["link", "add", "left", "type", "veth", "peer", "name", "right"]);
    namespace.ok("ip", &["link", "set", "right", "address", "02:00:00:00:00:0b"]);
    for interface in ["left", "right"] {
        namespace.ok("ip", &["link", "set", interface, "up"]);
    }
    let ringway = binary();
    let ringway = ringway.to_str().unwrap();
    let address = "address 02:00:00:00:00:0b";
    let server = namespace.start(ringway, &["lwep", "serve", "dev:right", "--address", "10.99.0.2"], address);
    let to = ["--to", "02:00:00:00:00:0b", "--json", "--timeout", "300s"];
    let report = namespace.ok(ringway, &[&["lwep", "ping", "dev:left", "--count", "100"], &to[..]].concat());
    assert_eq!(json(&report)["received"], 100);
    let segmented = ["lwep", "bandwidth", "dev:left", "--count", "5000", "--segmented", "--address", "10.99.0.1"];
    let report = json(&namespace.ok(ringway, &[&segmented[..], &to].concat()));
    assert_eq!(report["received"]["messages"], 5000);
    let said = namespace.run(ringway, &[&["lwep", "ping", "dev:left", "--src", "02:00:00:00:00:0c"], &to[..]].concat());
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("dev:left has an address of its own"), "{}", said.err);
    drop(server);
}

/// Returns what tshark says of each frame of a file with the dissector.
fn tshark(file: &Path, args: &[&str]) -> Vec<String> {
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../packaging/wireshark/lwep.lua");
    let mut command = Command::new("tshark");
    command.args(["-X", script, "-n", "-r"]).arg(file).args(args);
    let said: Said = command.output().expect("tshark is not there: make deps installs it").into();
    assert_eq!(said.code, Some(0), "{}", said.err);
    said.out.lines().map(str::to_owned).collect()
}

#[test]
fn a_file_beyond_the_limit_of_the_server_is_refused_and_the_server_goes_on() {
    let daemon = Daemon::start("");
    let (own, incoming) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = serve(&daemon, &["--save", incoming.path().to_str().unwrap()]);
    let limit = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
    prlimit(Pid::from_raw(server.0.id() as i32), Resource::Fsize, limit).unwrap();
    let send = |name: &str, bytes: usize| {
        let file = own.path().join(name);
        std::fs::write(&file, vec![0; bytes]).unwrap();
        daemon.ringway(&["lwep", "send", "lan0:a", "--to", "lan0:b", "--timeout", "300s", file.to_str().unwrap()])
    };
    fails(&send("large", 3 << 20), "large: File too large");
    assert_eq!(send("small", 1).code, Some(0));
    assert_eq!(end(server)["files"], 1);
}

#[test]
fn wireshark_shows_both_layouts() {
    let daemon = Daemon::start("[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let _server = serve(&daemon, &["--address", "10.99.0.2"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lwep.pcapng");
    let mut command = ringway();
    command.arg("--runtime-dir").arg(daemon.runtime_dir()).args(["capture", "lan0:a", "-w"]).arg(&file);
    let mut capture = Ended(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(capture.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("capturing"), "{line}");
    client(&daemon, "ping", &["--count", "2", "--size", "77", "--checksums"]);
    client(&daemon, "bandwidth", &["--count", "90", "--size", "1000", "--segmented", "--address", "10.99.0.1"]);
    capture.signal(Signal::INT);
    assert!(capture.end().success());

    let mut args = vec!["-T", "fields", "-E", "separator=|"];
    let fields = ["layout", "type", "length", "number", "description.address", "checksum", "malformed"];
    let fields = fields.map(|field| format!("lwep.{field}"));
    fields.iter().for_each(|field| args.extend(["-e", field]));
    let frames: Vec<Vec<String>> =
        tshark(&file, &args).iter().map(|line| line.split('|').map(str::to_owned).collect()).collect();
    assert!(frames.iter().all(|frame| !frame[0].is_empty()), "not LWEP: {frames:?}");
    // The ping: its handshake, two messages in each direction with their checksums, and the end.
    let kinds = |kind: &'static str| frames.iter().filter(move |frame| frame[0] == "plain" && frame[1] == kind);
    assert!(kinds("1").any(|open| open[4] == "0.0.0.0") && kinds("1").any(|open| open[4] == "10.99.0.1"), "{frames:?}");
    assert!(kinds("2").all(|accept| accept[2] == "26" && accept[4] == "10.99.0.2"), "{frames:?}");
    // By their numbers: a message whose acknowledgement comes late is sent again.
    let pings = kinds("3").filter(|data| data[2] == "77" && data[5].starts_with("0x"));
    assert_eq!(pings.map(|data| &data[3]).collect::<HashSet<_>>().len(), 4, "{frames:?}");
    assert!(kinds("6").count() >= 4, "{frames:?}");
    // The buffers of the bandwidth follow one another in their numbers.
    let mut seen = HashSet::new();
    let buffers: Vec<[u32; 2]> = frames
        .iter()
        .filter(|frame| frame[0] == "segmentation" && seen.insert(&frame[3]))
        .map(|frame| [2, 3].map(|column| frame[column].parse().unwrap()))
        .collect();
    assert_eq!(buffers.iter().map(|[length, _]| length).sum::<u32>(), 90_000, "{frames:?}");
    for pair in buffers.windows(2) {
        assert_eq!(pair[0][1].wrapping_add(pair[0][0] / 1000), pair[1][1], "{frames:?}");
    }
    assert!(frames.iter().all(|frame| frame[6].is_empty()), "malformed: {frames:?}");
    let lines = tshark(&file, &[]);
    assert!(lines.iter().all(|line| line.contains(" LWEP ")), "{lines:?}");
    let is_segmented = |line: &String| line.contains(" DATA number=") && line.ends_with("segmentation layout");
    assert!(lines.iter().any(is_segmented), "{lines:?}");
}

#[path = "../../../../lwep/examples"]
mod examples {
    #![allow(dead_code, reason = "their main functions")]

    pub mod copy;
    pub mod echo;
    pub mod publish;
    pub mod rpc;
}

/// Runs an example on a thread of its own, as it may wait for ever.
fn example<E: Display>(name: &str, run: impl FnOnce(PathBuf) -> Result<(), E> + Send + 'static) {
    let daemon = Daemon::start("");
    let socket = daemon.runtime_dir().join("attach.sock");
    let running = std::thread::spawn(move || run(socket).map_err(|error| error.to_string()));
    until(&format!("{name} ends"), || running.is_finished());
    assert_eq!(running.join().unwrap(), Ok(()), "{name}");
}

#[test]
fn the_examples_of_the_library_do_what_they_say() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let contents: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&from, &contents).unwrap();
    let copied = to.clone();
    example("copy", move |socket| examples::copy::run(&socket, &from, &to));
    assert!(std::fs::read(copied).unwrap() == contents, "the copy has other contents");
    example("echo", |socket| examples::echo::run(&socket));
    example("publish", |socket| examples::publish::run(&socket));
    example("rpc", |socket| examples::rpc::run(&socket));
}
