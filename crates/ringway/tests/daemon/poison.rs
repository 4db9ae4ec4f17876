//! Input that has the switch die: the port is blamed that was served, and only that one is set aside.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use ringway_client::Port;
use ringway_scenes::{Daemon, PATIENCE, frame, send, until, until_some, whole, why_ended};
use ringway_testing::child;
use rustix::process::Signal;
use serde_json::Value;

const ALL: [u8; 6] = [0xff; 6];
const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const C: [u8; 6] = [2, 0, 0, 0, 0, 0xc];

/// The ports, of which `b` and `vm` are the ones that fail.
const PORTS: &str = "[switch.lan0]\n[port.b]\nswitch = \"lan0\"\nkind = \"process\"\n[port.vm]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n";

/// A daemon that fails at the points that files in a directory name.
struct Poisoned {
    daemon: Daemon,
    points: tempfile::TempDir,
}

impl Poisoned {
    fn start(config: &str) -> Self {
        let points = tempfile::tempdir().unwrap();
        let variable = format!("RINGWAY_INJECT={}", points.path().display());
        Self { daemon: Daemon::start_by(&["env", &variable], config), points }
    }

    /// Fails once at this point.
    fn inject(&self, point: &str, what: &str) {
        let new = self.points.path().join("new");
        std::fs::write(&new, what).unwrap();
        std::fs::rename(new, self.points.path().join(point)).unwrap();
    }

    /// The body of an answer. None: the switch died before it came.
    fn get(&self, path: &str) -> Option<String> {
        let mut control = UnixStream::connect(self.daemon.socket("control.sock")).expect("it is not refused");
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        control.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        control.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.1 200 ").then(|| body.to_owned())
    }

    /// Waits until a switch serves after so many deaths. Returns what the status says of them.
    fn until_deaths(&self, count: u64) -> Value {
        until_some(&format!("the switch has died {count} times"), || {
            let status: Value = serde_json::from_str(&self.get("/v1/status")?).expect("JSON");
            (status["deaths"]["count"].as_u64() >= Some(count)).then(|| status["deaths"].clone())
        })
    }

    /// Attaches a client whose port the keeper has, too: the next client's answer comes after that.
    fn attach(&self, name: &str) -> Port {
        let port = self.daemon.attach(name).expect("a port");
        drop(self.daemon.attach("lan9:last").expect("a port"));
        port
    }
}

/// Sends frames from one port until one has come to another: a switch that dies loses those that it has taken.
fn goes_on(from: &mut Port, address: [u8; 6], to: &mut Port, number: u8) {
    let wanted = frame(ALL, address, number);
    until("a frame comes", || {
        from.tx().push(&wanted);
        from.flush();
        let mut came = false;
        to.rx().drain(usize::MAX, |frame| came |= frame == wanted);
        came
    });
}

fn is(deaths: &Value, cause: &str, ports: &[&str]) {
    assert_eq!((&deaths["last"]["cause"], &deaths["last"]["ports"]), (&cause.into(), &ports.into()), "{deaths}");
}

#[test]
fn a_port_whose_visits_end_the_switch_twice_is_set_aside_and_the_others_go_on() {
    for (what, causes) in [("abort", &["signal 6"][..]), ("overflow", &["signal 6", "signal 11"])] {
        let poisoned = Poisoned::start(PORTS);
        let daemon = &poisoned.daemon;
        let [mut a, mut b, mut c] = ["lan0:a", "lan0:b", "lan0:c"].map(|name| poisoned.attach(name));
        for time in 1..=2 {
            goes_on(&mut b, B, &mut a, time);
            poisoned.inject("lan0:b.collect", what);
            send(&mut b, &frame(ALL, B, 77));
            let deaths = poisoned.until_deaths(time.into());
            let cause = deaths["last"]["cause"].as_str().expect("a cause").to_owned();
            assert!(causes.contains(&&*cause), "{deaths}");
            is(&deaths, &cause, &["lan0:b"]);
            assert_eq!(deaths["last"]["certain"], true);
            goes_on(&mut a, A, &mut c, time);
            goes_on(&mut c, C, &mut a, time);
        }
        let why = why_ended(&mut b);
        assert!(why.contains("lan0:b is set aside; to enable it: ringway port enable lan0:b"), "{why}");
        let refused = daemon.attach("lan0:b").expect_err("it is set aside").to_string();
        assert!(refused.contains("is set aside"), "{refused}");
        let is_aside = || {
            let port = daemon.port("b");
            let detail = port["detail"].as_str().unwrap_or_default();
            assert_eq!(port["state"], "set aside");
            assert!(detail.contains("the switch died twice within 60s while it served the port"), "{detail}");
        };
        is_aside();
        let said = daemon.ok(&["status"]);
        assert!(
            said.contains("set aside") && said.contains("the switch has died 2 times and gone on, last "),
            "{said}"
        );
        let metrics = poisoned.get("/metrics").expect("an answer");
        for line in [
            "ringway_port_set_aside{switch=\"lan0\",port=\"b\"} 1",
            "ringway_port_set_aside{switch=\"lan0\",port=\"a\"} 0",
            "ringway_port_disabled{switch=\"lan0\",port=\"b\"} 0",
            "ringway_port_faults_total{switch=\"lan0\",port=\"b\",reason=\"switch_died\"} 1",
            "ringway_switch_deaths_total{cause=\"signal ",
        ] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
        // Further deaths, upgrades and reloads change nothing.
        daemon.kill_switch();
        is_aside();
        daemon.ok(&["upgrade"]);
        is_aside();
        daemon.ok(&["reload"]);
        is_aside();
        if what == "abort" {
            daemon.ok(&["port", "enable", "lan0:b"]);
        } else {
            daemon.ok(&["port", "set", "lan0:b", "weight=2"]);
        }
        daemon.until_state("b", "waiting");
        let mut b = poisoned.attach("lan0:b");
        goes_on(&mut b, B, &mut c, 9);
        daemon.kill_switch();
        goes_on(&mut b, B, &mut c, 10);
        // What it did before is forgotten.
        let died = daemon.status()["deaths"]["count"].as_u64().expect("a number");
        poisoned.inject("lan0:b.collect", "abort");
        send(&mut b, &frame(ALL, B, 77));
        is(&poisoned.until_deaths(died + 1), "signal 6", &["lan0:b"]);
        goes_on(&mut b, B, &mut c, 11);
        assert_eq!([a.ended(), b.ended()], [None, None]);
    }
}

#[test]
fn a_poller_that_hangs_in_a_ports_visit_is_ended_with_its_switch_and_the_port_is_blamed() {
    let poisoned = Poisoned::start(PORTS);
    let [mut a, mut b, mut c] = ["lan0:a", "lan0:b", "lan0:c"].map(|name| poisoned.attach(name));
    for time in 1..=2 {
        goes_on(&mut b, B, &mut a, time);
        poisoned.inject("lan0:b.collect", "hang");
        send(&mut b, &frame(ALL, B, 77));
        is(&poisoned.until_deaths(time.into()), "hang", &["lan0:b"]);
        goes_on(&mut a, A, &mut c, time);
    }
    assert!(why_ended(&mut b).contains("set aside"));
    poisoned.daemon.complains("the switch hangs: its thread");
    // The control thread serves no port.
    poisoned.inject("status", "hang");
    let mut asks = UnixStream::connect(poisoned.daemon.socket("control.sock")).unwrap();
    asks.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    until("the answer will not come", || !poisoned.points.path().join("status").exists());
    is(&poisoned.until_deaths(3), "hang", &[]);
    goes_on(&mut a, A, &mut c, 9);
}

#[test]
fn where_either_of_two_clients_can_have_ended_the_switch_neither_is_set_aside_and_both_pause() {
    let poisoned = Poisoned::start(PORTS);
    let [mut a, mut b, mut c, mut d] = ["lan0:a", "lan0:b", "lan0:c", "lan0:d"].map(|name| poisoned.attach(name));
    for time in 1..=2 {
        // The switch learns where b is, so that frames to it go nowhere else.
        goes_on(&mut b, B, &mut a, time);
        poisoned.inject("lan0:b.deliver", "abort");
        send(&mut a, &frame(B, A, 77));
        let deaths = poisoned.until_deaths(time.into());
        is(&deaths, "signal 6", &["lan0:a", "lan0:b"]);
        assert_eq!(deaths["last"]["certain"], false);
        goes_on(&mut c, C, &mut d, time);
    }
    for port in [&mut a, &mut b] {
        let why = why_ended(port);
        assert!(why.contains("pauses: attach again in "), "{why}");
    }
    for name in ["lan0:a", "lan0:b"] {
        drop(until_some("the pause is over", || poisoned.daemon.attach(name).ok()));
    }
    assert!(!poisoned.daemon.ok(&["status"]).contains("set aside"));
}

#[test]
fn a_port_that_is_given_what_others_left_for_it_when_the_switch_dies_is_not_set_aside_and_pauses() {
    let poisoned = Poisoned::start(PORTS);
    let [mut a, mut b, mut c] = ["lan0:a", "lan0:b", "lan0:c"].map(|name| poisoned.attach(name));
    for time in 1..=2 {
        goes_on(&mut b, B, &mut a, time);
        poisoned.inject("lan0:b.give", "abort");
        send(&mut b, &frame(ALL, B, 77));
        let deaths = poisoned.until_deaths(time.into());
        is(&deaths, "signal 6", &["lan0:b"]);
        assert_eq!(deaths["last"]["certain"], false);
        goes_on(&mut a, A, &mut c, time);
    }
    let why = why_ended(&mut b);
    assert!(why.contains("pauses: attach again in "), "{why}");
    drop(until_some("the pause is over", || poisoned.daemon.attach("lan0:b").ok()));
    assert!(!poisoned.daemon.ok(&["status"]).contains("set aside"));
}

#[test]
fn a_client_that_ends_the_switch_under_ever_new_names_may_make_no_further_ports_and_those_of_others_go_on() {
    let poisoned = Poisoned::start(PORTS);
    let [mut a, mut c] = ["lan0:a", "lan0:c"].map(|name| poisoned.attach(name));
    let mut last = None;
    for time in 1..=4 {
        let name = format!("lan0:n{time}");
        let n = last.insert(poisoned.attach(&name));
        goes_on(n, B, &mut a, time);
        poisoned.inject(&format!("{name}.give"), "abort");
        send(n, &frame(ALL, B, 77));
        is(&poisoned.until_deaths(time.into()), "signal 6", &[&name]);
        goes_on(&mut a, A, &mut c, time);
    }
    let why = why_ended(&mut last.expect("the fourth"));
    assert!(why.contains("lan0:n4 is not configured: attach again in "), "{why}");
    poisoned.daemon.complains("clients make no further ports on switch lan0 for 1s");
    assert_eq!([a.ended(), c.ended()], [None, None]);
    drop(poisoned.attach("lan0:b"));
    drop(until_some("the pause is over", || poisoned.daemon.attach("lan0:n5").ok()));
}

#[test]
fn a_port_of_the_administrator_is_not_set_aside_for_what_a_client_did_under_its_name() {
    let poisoned = Poisoned::start(PORTS);
    let daemon = &poisoned.daemon;
    let mut x = poisoned.attach("lan0:x");
    for time in 1..=2 {
        poisoned.inject("lan0:x.collect", "abort");
        send(&mut x, &frame(ALL, A, time));
        is(&poisoned.until_deaths(time.into()), "signal 6", &["lan0:x"]);
    }
    assert!(why_ended(&mut x).contains("set aside"));
    daemon.ok(&["port", "add", "lan0:x", "kind=vhost-user"]);
    daemon.until_state("x", "waiting");
    daemon.kill_switch();
    assert_eq!(daemon.port("x")["state"], "waiting");
}

/// The number of the thread of this name.
fn thread(process: u32, name: &str) -> u32 {
    until_some(&format!("there is a thread {name}"), || {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
        let is_it = |thread: &std::fs::DirEntry| {
            std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        threads.flatten().find(is_it)?.file_name().to_str()?.parse().ok()
    })
}

#[test]
fn a_switch_that_is_killed_from_outside_blames_nobody_and_the_first_signal_ends_it() {
    let poisoned = Poisoned::start(PORTS);
    let [mut a, mut b] = ["lan0:a", "lan0:b"].map(|name| poisoned.attach(name));
    let kills = whole(6, 30);
    for kill in 1..=kills {
        goes_on(&mut b, B, &mut a, kill as u8);
        poisoned.daemon.kill_switch();
        is(&poisoned.until_deaths(kill as u64), "signal 9", &[]);
    }
    goes_on(&mut a, A, &mut b, 99);
    for (signal, died) in [Signal::SEGV, Signal::BUS, Signal::ILL].into_iter().zip(kills + 1..) {
        // The thread that takes the signal serves a port.
        child::signal(thread(poisoned.daemon.pid(), "lan0:vm"), signal);
        is(&poisoned.until_deaths(died as u64), &format!("signal {}", signal.as_raw()), &[]);
    }
    goes_on(&mut a, A, &mut b, 100);
    assert_eq!([a.ended(), b.ended()], [None, None]);
}

#[test]
fn a_panic_in_a_visit_costs_the_port_its_client_and_is_no_death() {
    let poisoned = Poisoned::start(PORTS);
    let [mut a, mut b, mut c] = ["lan0:a", "lan0:b", "lan0:c"].map(|name| poisoned.attach(name));
    let switch = poisoned.daemon.pid();
    poisoned.inject("lan0:b.collect", "panic");
    send(&mut b, &frame(ALL, B, 1));
    assert!(why_ended(&mut b).contains("a defect of Ringway"));
    goes_on(&mut a, A, &mut c, 1);
    assert_eq!((poisoned.daemon.pid(), &poisoned.daemon.status()["deaths"]["count"]), (switch, &0.into()));
}

#[test]
fn a_successor_that_dies_of_a_port_that_it_opens_is_followed_by_one_that_leaves_out_that_port() {
    let poisoned = Poisoned::start(PORTS);
    let daemon = &poisoned.daemon;
    let [mut a, mut b, mut c] = ["lan0:a", "lan0:b", "lan0:c"].map(|name| poisoned.attach(name));
    // A client's port that ends it by a signal, and a configured one whose start ends with a panic.
    poisoned.inject("lan0:b.take-over", "abort");
    poisoned.inject("lan0:vm.open", "panic");
    daemon.kill_switch();
    let deaths = poisoned.until_deaths(3);
    assert_eq!(deaths["causes"], serde_json::json!({"signal 6": 1, "signal 9": 1, "status 70": 1}), "{deaths}");
    assert!(why_ended(&mut b).contains("set aside"));
    for name in ["b", "vm"] {
        let port = daemon.port(name);
        assert_eq!(port["state"], "set aside", "{port}");
        assert!(port["detail"].as_str().is_some_and(|text| text.contains("while it opened the port again")), "{port}");
    }
    goes_on(&mut a, A, &mut c, 1);
    goes_on(&mut c, C, &mut a, 2);
    daemon.ok(&["port", "set", "vm", "weight=2"]);
    daemon.until_state("vm", "waiting");
    drop(UnixStream::connect(daemon.socket("vm.sock")).expect("it listens"));
}

/// A frame of a stream, behind its length.
fn framed(frame: &[u8]) -> Vec<u8> {
    [&u32::try_from(frame.len()).unwrap().to_be_bytes()[..], frame].concat()
}

/// Sends a frame from one peer of a stream port until it comes to another one, over the same connections.
fn crosses(from: &mut UnixStream, to: &mut UnixStream, wanted: &[u8], what: &str) {
    let (wanted, mut came, mut space) = (framed(wanted), Vec::new(), [0; 4096]);
    [&*from, &*to].iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    until(what, || {
        match from.write(&wanted) {
            Ok(count) => assert_eq!(count, wanted.len()),
            Err(why) => assert_eq!(why.kind(), ErrorKind::WouldBlock, "{what}: {why}"),
        }
        match to.read(&mut space) {
            Ok(0) => panic!("{what}: the connection has ended"),
            Ok(count) => came.extend_from_slice(&space[..count]),
            Err(why) => assert_eq!(why.kind(), ErrorKind::WouldBlock, "{what}: {why}"),
        }
        came.windows(wanted.len()).any(|bytes| bytes == wanted)
    });
}

#[test]
fn a_pause_costs_neither_of_two_suspects_its_connection() {
    let port = |name: &str| format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"stream\"\nsocket = \"{name}.sock\"\n");
    let poisoned = Poisoned::start(&format!("[switch.lan0]\n{}{}", port("a"), port("b")));
    let daemon = &poisoned.daemon;
    let connect = |name: &str| UnixStream::connect(daemon.socket(&format!("{name}.sock"))).unwrap();
    let [mut a, mut b] = ["a", "b"].map(connect);
    ["a", "b"].iter().for_each(|port| daemon.until_state(port, "up"));
    for time in 1..=2 {
        crosses(&mut b, &mut a, &frame(ALL, B, time), "the switch learns where b is");
        poisoned.inject("lan0:b.deliver", "abort");
        a.write_all(&framed(&frame(B, A, 77))).unwrap();
        is(&poisoned.until_deaths(time.into()), "signal 6", &["lan0:a", "lan0:b"]);
    }
    // One that dies meanwhile leaves them to the next one.
    daemon.kill_switch();
    crosses(&mut a, &mut b, &frame(ALL, A, 9), "both go on after their pause");
    crosses(&mut b, &mut a, &frame(ALL, B, 10), "in both directions");
    assert!(!daemon.ok(&["status"]).contains("set aside"));
}
