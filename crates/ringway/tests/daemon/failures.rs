//! A daemon with an internal failure either ends or restarts the failed port. It never stays alive without working.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ringway_client::Port;
use ringway_scenes::{
    Daemon, PATIENCE, PATIENCE_VARIABLE, Said, frame, receive, ringway, send, until, until_some, why_ended,
};
use ringway_testing::child::{self, Ended, children};
use ringway_testing::file::directory;
use ringway_testing::skip;
use ringway_traffic::{E1000Endpoint, E1000Options, Endpoint, Split, VirtioEndpoint, VirtioOptions};
use rustix::process::Signal;
use serde_json::Value;

const ALL: [u8; 6] = [0xff; 6];
const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

/// A daemon that fails at the place that a file in its directory names, with further environment variables.
struct Failing {
    child: Ended,
    dir: tempfile::TempDir,
}

impl Failing {
    fn start(config: &str, variables: &[(&str, &str)]) -> Self {
        Self::start_with(config, variables, &[])
    }

    /// Starts one process without a keeper, which would start another one when it has ended.
    fn start_alone(config: &str) -> Self {
        Self::start_with(config, &[], &["--no-keeper"])
    }

    fn start_with(config: &str, variables: &[(&str, &str)], options: &[&str]) -> Self {
        let mut failing = Self::launch(config, variables, options, None);
        until("the daemon is ready", || failing.ended().is_none() && failing.run(&["status"]) == Some(0));
        failing
    }

    /// Starts a daemon that fails at this point at its start.
    fn launch(config: &str, variables: &[(&str, &str)], options: &[&str], failure: Option<(&str, &str)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("inject")).unwrap();
        if let Some((point, what)) = failure {
            std::fs::write(dir.path().join("inject").join(point), what).unwrap();
        }
        std::fs::write(dir.path().join("c.toml"), config).unwrap();
        let mut command = ringway();
        command.arg("run").arg("--config").arg(dir.path().join("c.toml"));
        command.arg("--runtime-dir").arg(dir.path().join("run")).args(options);
        // The daemon does not wait long for what the test makes stand still, unless the test asks for it.
        command.env_remove(PATIENCE_VARIABLE);
        command.env("RINGWAY_INJECT", dir.path().join("inject")).envs(variables.iter().copied());
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let child = Ended(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        Self { child, dir }
    }

    fn inject(&self, point: &str, what: &str) {
        // The rename makes the whole content visible at once.
        let inject = self.dir.path().join("inject");
        std::fs::write(self.dir.path().join("new"), what).unwrap();
        std::fs::rename(self.dir.path().join("new"), inject.join(point)).unwrap();
    }

    fn heal(&self, point: &str) {
        std::fs::remove_file(self.dir.path().join("inject").join(point)).unwrap();
    }

    fn run(&self, args: &[&str]) -> Option<i32> {
        self.say(args).code
    }

    fn say(&self, args: &[&str]) -> Said {
        ringway().arg("--runtime-dir").arg(self.path("run")).args(args).output().unwrap().into()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn status(&self) -> Value {
        let said = self.say(&["status", "--json"]);
        assert_eq!(said.code, Some(0), "{}{}", said.err, self.log());
        serde_json::from_str(&said.out).unwrap()
    }

    fn port(&self, name: &str) -> Value {
        let status = self.status();
        status["ports"].as_array().unwrap().iter().find(|port| port["name"] == name).cloned().unwrap_or_default()
    }

    fn until_state(&self, name: &str, state: &str) {
        until(&format!("{name} is {state}: {}", self.log()), || self.port(name)["state"] == state);
    }

    fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(self.path("run/control.sock")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    fn attach(&self, name: &str) -> Result<Port, ringway_client::AttachError> {
        Port::attach(self.dir.path().join("run/attach.sock"), name, ringway_client::Shape::default())
    }

    fn ended(&mut self) -> Option<Option<i32>> {
        self.child.try_wait().unwrap().map(|status| status.code())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Checks that the daemon ends by itself, with status 70 and these words on stderr.
    fn must_end(mut self, words: &str) {
        let ended = until_some("the daemon ends", || self.ended());
        let log = self.log();
        assert_eq!(ended, Some(70), "{log}");
        let last = log.lines().last().unwrap_or_default();
        assert!(last.contains("a defect of Ringway, please report it") && last.contains(words), "{log}");
    }
}

#[test]
fn a_panic_while_the_daemon_is_locked_ends_it_with_status_70() {
    let daemon = Failing::start_alone("");
    daemon.inject("status", "panic");
    daemon.run(&["status"]);
    daemon.must_end("the thread \"main\" failed at");
}

#[test]
fn another_switch_serves_after_a_panic_that_ended_one() {
    let mut daemon = Failing::start(PORTS, &[]);
    daemon.inject("status", "panic");
    daemon.run(&["status"]);
    until("the switch has ended", || daemon.log().contains("the switch died (status 70)"));
    daemon.until_state("p", "waiting");
    drop(daemon.attach("lan0:p").expect("it serves"));
    assert_eq!(daemon.ended(), None);
    assert!(daemon.log().contains("the thread \"main\" failed at"), "{}", daemon.log());
}

#[test]
fn a_panic_of_the_thread_that_clients_attach_to_ends_the_daemon_with_status_70() {
    let daemon = Failing::start_alone("");
    daemon.inject("attach", "panic");
    assert!(daemon.attach("lan0:p").is_err());
    daemon.must_end("the thread \"attach\" failed at");
}

#[test]
fn an_api_that_ends_by_itself_ends_the_daemon_with_status_70() {
    let daemon = Failing::start_alone("");
    daemon.inject("api", "return");
    daemon.run(&["status"]);
    daemon.must_end("the API has ended");
}

/// The service manager's socket.
struct Manager {
    socket: UnixDatagram,
    _dir: tempfile::TempDir,
}

impl Manager {
    fn bind() -> (Self, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        (Self { socket, _dir: dir }, path.to_str().unwrap().to_owned())
    }

    /// Returns the next message that comes within this time.
    fn next_message(&self, within: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(within)).unwrap();
        let mut message = [0; 256];
        let len = self.socket.recv(&mut message).ok()?;
        Some(String::from_utf8_lossy(&message[..len]).trim().to_owned())
    }

    fn is_fed(&self) {
        until("the watchdog is notified", || self.next_message(PATIENCE).as_deref() == Some("WATCHDOG=1"));
    }

    /// Waits until no message comes for twice the watchdog's time.
    fn starves(&self) {
        until("the watchdog is not notified any more", || self.next_message(Duration::from_millis(400)).is_none());
    }
}

#[test]
fn the_watchdog_is_fed_while_all_pollers_and_the_control_thread_go_on_and_the_log_names_the_poller_that_does_not() {
    let (manager, path) = Manager::bind();
    let (usec, config) = ("200000", "[engine]\nidle = \"spin\"\n[switch.lan0]\n");
    // A keeper would end a switch that stands still for as long as this test may.
    let daemon = Failing::start_with(config, &[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", usec)], &["--no-keeper"]);
    manager.is_fed();
    let mut port = daemon.attach("lan0:a").unwrap();
    daemon.inject("lan0:a.collect", "stall");
    send(&mut port, &frame(ALL, A, 0));
    manager.starves();
    until("the log names the poller", || daemon.log().contains("poller 0 is stuck"));
    daemon.heal("lan0:a.collect");
    manager.is_fed();
    until("the log reports that the poller continues", || daemon.log().contains("poller 0 goes on"));
    // The control thread is stuck.
    daemon.inject("status", "stall");
    let mut asks = UnixStream::connect(daemon.dir.path().join("run/control.sock")).unwrap();
    asks.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    manager.starves();
    daemon.heal("status");
    manager.is_fed();
    let mut answer = [0; 15];
    asks.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}

#[test]
fn a_poller_that_sleeps_is_no_reason_not_to_feed_the_watchdog() {
    let (manager, path) = Manager::bind();
    let config = "[engine]\nidle = \"sleep\"\n[switch.lan0]\n";
    let daemon = Failing::start(config, &[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "200000")]);
    (0..5).for_each(|_| manager.is_fed());
    // A poller that does not get the processor in time is stuck for this time, and then continues.
    let lines = |words: &str| daemon.log().matches(words).count();
    until("no poller stays stuck", || lines("is stuck") == lines("goes on"));
}

#[test]
fn without_a_watchdog_nothing_is_fed() {
    let (manager, path) = Manager::bind();
    for usec in ["0", "", "x"] {
        let _daemon = Failing::start("", &[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", usec)]);
        assert_eq!(manager.next_message(PATIENCE).as_deref(), Some("READY=1"), "{usec:?}");
    }
    let daemon = Daemon::start("");
    until("the poller is not stuck", || daemon.status()["pollers"][0]["stuck"] == false);
}

#[test]
fn a_service_manager_that_does_not_read_keeps_the_daemon_from_nothing() {
    let (_manager, path) = Manager::bind();
    let mut daemon = Failing::start("", &[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "20000")]);
    let others = UnixDatagram::unbound().unwrap();
    others.set_nonblocking(true).unwrap();
    // From now on, no more messages can be sent to the socket.
    until("the manager's socket is full", || others.send_to(b"X=1", &path).is_err());
    until("the daemon logs the failed notification", || daemon.log().contains("cannot notify the service manager"));
    assert_eq!(daemon.run(&["status"]), Some(0));
    daemon.signal(Signal::TERM);
    until("the daemon ends", || daemon.ended() == Some(Some(0)));
}

/// The failures of a test belong together, also on a machine that stands still for longer than the minute within which they usually do.
const SLOWLY: [(&str, &str); 1] = [(PATIENCE_VARIABLE, "300")];

/// Sends a frame from one port to another, and back. Other frames are skipped.
fn both_ways(a: &mut Port, b: &mut Port, number: u8) {
    let until_it_comes = |port: &mut Port, wanted: [u8; 60]| {
        until("the frame comes", || receive(port, PATIENCE).as_deref() == Some(&wanted[..]));
    };
    send(a, &frame(ALL, A, number));
    until_it_comes(b, frame(ALL, A, number));
    send(b, &frame(ALL, B, number));
    until_it_comes(a, frame(ALL, B, number));
}

const PORTS: &str = "[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n";

#[test]
fn a_port_that_has_the_switch_fail_comes_back_with_its_counters_and_the_second_time_waits_for_the_administrator() {
    let daemon = Failing::start(PORTS, &SLOWLY);
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    // A configured port, and a port that its client made.
    for (name, gone) in [("p", "waiting"), ("q", "")] {
        let (label, point) = (format!("lan0:{name}"), format!("lan0:{name}.collect"));
        for time in [1, 2] {
            let mut port = daemon.attach(&label).expect("the first failure does not disable the port");
            send(&mut port, &frame(A, [2, 0, 0, 0, 0, 1], 0));
            until("the frame is counted", || daemon.port(name)["in"]["frames"].as_u64() >= Some(1));
            let _ = receive(&mut a, PATIENCE);
            daemon.inject(&point, "panic");
            send(&mut port, &frame(A, [2, 0, 0, 0, 0, 1], 1));
            let why = why_ended(&mut port);
            assert!(why.contains("a defect of Ringway") && why.contains("inject.rs:"), "{why}");
            let state = if time == 1 { gone } else { "disabled" };
            until("the port has the expected state", || daemon.port(name)["state"].as_str().unwrap_or("") == state);
            if name == "p" {
                assert!(
                    daemon.port(name)["in"]["frames"].as_u64() >= Some(time),
                    "counters stay: {}",
                    daemon.port(name)
                );
            }
            both_ways(&mut a, &mut b, time as u8);
        }
        let status = daemon.status();
        assert_eq!(
            (&status["faults"][0]["port"], &status["faults"][0]["reason"]),
            (&name.into(), &"internal_error".into())
        );
        let refused = daemon.attach(&label).expect_err("the port is disabled").to_string();
        assert!(
            refused.contains("is disabled") && refused.contains(&format!("ringway port enable {label}")),
            "{refused}"
        );
        assert!(daemon.say(&["status"]).out.contains(&format!("ringway port enable {label}")));
        assert!(daemon.log().contains(&format!("port {label} is disabled")), "{}", daemon.log());
    }
    let metrics = daemon.metrics();
    for line in [
        "ringway_port_disabled{switch=\"lan0\",port=\"p\"} 1",
        "ringway_port_disabled{switch=\"lan0\",port=\"a\"} 0",
        "ringway_port_faults_total{switch=\"lan0\",port=\"p\",reason=\"internal_error\"} 2",
        "ringway_faults_total{reason=\"internal_error\",place=\"crates/daemon/src/inject.rs:",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // A reload alone does not enable the port, whether it changes the port or not.
    for config in [PORTS.to_owned(), PORTS.replace("lan0", "lan1"), format!("{PORTS}weight = 2\n")] {
        std::fs::write(daemon.path("new.toml"), &config).unwrap();
        std::fs::rename(daemon.path("new.toml"), daemon.path("c.toml")).unwrap();
        let before = daemon.log();
        daemon.signal(Signal::HUP);
        let reloaded = if config == PORTS { "waits" } else { "changes" };
        until(reloaded, || {
            config == PORTS || daemon.port("p")["switch"] == if config.contains("lan1") { "lan1" } else { "lan0" }
        });
        assert_eq!(daemon.port("p")["state"], "disabled", "{config}: {before}");
    }
    assert_eq!(daemon.say(&["port", "enable", "p"]).out, "enabled port p\n");
    assert_eq!(daemon.port("p")["state"], "waiting");
    drop(daemon.attach("lan0:p").expect("the port is enabled"));
    assert_eq!(daemon.run(&["port", "enable", "p"]), Some(0), "the port is already enabled");
    assert_eq!(daemon.run(&["port", "enable", "nobody"]), Some(2));
    // Deleting a port also deletes its fault history.
    assert_eq!(daemon.run(&["port", "del", "lan0:q"]), Some(0));
    assert_eq!(daemon.port("q"), Value::Null);
    drop(daemon.attach("lan0:q").expect("a new port"));
    both_ways(&mut a, &mut b, 9);
}

fn drive(daemon: &Failing, socket: &str) -> Option<VirtioEndpoint<Split>> {
    VirtioEndpoint::attach(&daemon.path("run").join(socket), &VirtioOptions::default()).ok()
}

fn say(guest: &mut impl Endpoint, number: u8) {
    let sent = frame(ALL, A, number);
    assert!(guest.tx_push(sent.len(), |bytes| bytes.copy_from_slice(&sent)));
    guest.tx_flush();
}

#[test]
fn a_virtual_machines_port_is_made_anew_at_once_and_the_second_time_its_socket_is_gone_until_it_is_enabled() {
    let config = "[switch.lan0]\n[port.vm]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n";
    let daemon = Failing::start(config, &SLOWLY);
    let mut client = daemon.attach("lan0:client").unwrap();
    for state in ["waiting", "disabled", "waiting"] {
        let mut guest = until_some("the port accepts a front end", || drive(&daemon, "vm.sock"));
        say(&mut guest, 1);
        assert_eq!(receive(&mut client, PATIENCE).as_deref(), Some(&frame(ALL, A, 1)[..]));
        daemon.inject("lan0:vm.collect", "panic");
        say(&mut guest, 2);
        daemon.until_state("vm", state);
        if state == "disabled" {
            // Its own thread removes it.
            until("the socket is gone", || !daemon.path("run/vm.sock").exists());
            assert_eq!(daemon.say(&["port", "enable", "vm"]).out, "enabled port vm\n");
            assert_eq!(daemon.port("vm")["state"], "waiting");
        }
    }
    assert!(daemon.port("vm")["in"]["frames"].as_u64() >= Some(3), "counters stay");
}

/// Returns the time that a refusal tells the client to wait.
fn wait_of(refusal: &str) -> Duration {
    let ms = refusal.split("attach again in ").nth(1).and_then(|rest| rest.split(" ms").next());
    Duration::from_millis(ms.and_then(|ms| ms.parse().ok()).unwrap_or_else(|| panic!("{refusal}")))
}

/// A pause after a panic of the switch. The pause starts at the panic, which comes after `began`.
struct Paused {
    began: Instant,
    pause: Duration,
}

impl Paused {
    /// Returns a pause of this many seconds. The caller then causes the panic.
    fn of(seconds: u64) -> Self {
        Self { began: Instant::now(), pause: Duration::from_secs(seconds) }
    }

    /// Returns true if the pause may be over. A test that was delayed for so long does not see the pause.
    fn may_be_over(&self) -> bool {
        self.began.elapsed() >= self.pause
    }

    /// Attaches a client as soon as the switch accepts it, and checks that the pause is then over. Earlier attempts
    /// must be refused with these words and the time to wait.
    fn attach(&self, daemon: &Failing, name: &str, words: &str) -> Port {
        let port = until_some("the port accepts a client", || match daemon.attach(name) {
            Ok(port) => Some(port),
            Err(refusal) => {
                let refusal = refusal.to_string();
                assert!(refusal.contains(name) && refusal.contains(words), "{refusal}");
                assert!(wait_of(&refusal) <= self.pause, "{refusal}: {:?} at most", self.pause);
                None
            }
        });
        assert!(self.may_be_over(), "{name} was accepted after {:?} of {:?}", self.began.elapsed(), self.pause);
        port
    }

    /// Waits until a port pauses. Returns its status, or `None` if the pause was over before this test could see it.
    fn see(&self, daemon: &Failing, name: &str) -> Option<Value> {
        let port = until_some(&format!("{name} pauses"), || {
            let port = daemon.port(name);
            (port["state"] == "paused" || self.may_be_over()).then_some(port)
        });
        (port["state"] == "paused").then_some(port)
    }
}

/// Tries to attach a client until the port accepts it.
fn attach_at_last(daemon: &Failing, name: &str) -> Port {
    until_some("the port accepts the client", || daemon.attach(name).ok())
}

#[test]
fn a_receiver_that_comes_back_at_once_cannot_have_its_senders_disabled_and_pauses_as_they_do() {
    let config = format!("{PORTS}[port.vm]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n");
    let daemon = Failing::start(&config, &[]);
    // The sender's port is configured, a client made the receiver's. The bystanders must not be affected.
    let mut bystanders = (daemon.attach("lan0:x").unwrap(), daemon.attach("lan0:y").unwrap());
    let (mut sender, mut receiver) = (daemon.attach("lan0:p").unwrap(), daemon.attach("lan0:r").unwrap());
    for pause in [1, 2, 4] {
        let paused = Paused::of(pause);
        daemon.inject("lan0:r.deliver", "panic");
        send(&mut sender, &frame(ALL, A, 1));
        let [why, whose] = [&mut receiver, &mut sender].map(why_ended);
        assert!(why.contains("gave frames to the port"), "{why}");
        assert!(whose.contains("gave frames of the port to another"), "{whose}");
        if let Some(port) = paused.see(&daemon, "p") {
            let detail = port["detail"].to_string();
            assert!(detail.contains("gave frames of the port") && detail.contains("it works again in "), "{detail}");
            let said = daemon.say(&["status"]).out;
            assert!(said.contains("it works again in ") || paused.may_be_over(), "{said}");
        }
        [receiver, sender] = ["lan0:r", "lan0:p"].map(|name| paused.attach(&daemon, name, " pauses: attach again in "));
        for name in ["p", "r"] {
            assert!(daemon.log().contains(&format!("port lan0:{name} pauses for {pause}s")), "{}", daemon.log());
        }
        both_ways(&mut bystanders.0, &mut bystanders.1, pause as u8);
    }
    assert_eq!(daemon.port("p")["faults"]["internal_error"], 3);
    assert_eq!(daemon.port("p")["state"], "up");
    // The socket of a virtual machine's port returns by itself.
    for pause in [1, 2] {
        let mut guest = until_some("the port accepts a front end", || drive(&daemon, "vm.sock"));
        say(&mut guest, 1);
        until("the guest's frames arrive", || daemon.port("vm")["in"]["frames"].as_u64() >= Some(pause));
        let paused = Paused::of(pause);
        daemon.inject("lan0:vm.deliver", "panic");
        send(&mut bystanders.0, &frame(ALL, A, 2));
        why_ended(&mut bystanders.0);
        if paused.see(&daemon, "vm").is_some() {
            // The port's thread removes the socket when it has closed the connection.
            until("its socket is gone while it pauses", || {
                !daemon.path("run/vm.sock").exists() || paused.may_be_over()
            });
        }
        daemon.until_state("vm", "waiting");
        assert!(paused.may_be_over(), "{:?} of {:?}", paused.began.elapsed(), paused.pause);
        bystanders.0 = attach_at_last(&daemon, "lan0:x");
    }
    // An administrator can end the pause.
    assert!(daemon.metrics().contains("ringway_port_paused{switch=\"lan0\",port=\"p\"} 0"));
    let paused = Paused::of(8);
    daemon.inject("lan0:p.deliver", "panic");
    send(&mut bystanders.0, &frame(ALL, A, 3));
    why_ended(&mut sender);
    if paused.see(&daemon, "p").is_some() {
        let metrics = daemon.metrics();
        let is_told = metrics.contains("ringway_port_paused{switch=\"lan0\",port=\"p\"} 1");
        assert!(is_told || paused.may_be_over(), "{metrics}");
        assert_eq!(daemon.say(&["port", "enable", "p"]).out, "enabled port p\n");
    }
    drop(daemon.attach("lan0:p").expect("the pause has ended"));
}

#[test]
fn a_client_that_has_the_switch_fail_under_ever_new_names_is_let_in_less_and_less() {
    let daemon = Failing::start(&format!("{PORTS}[switch.lan1]\n"), &SLOWLY);
    let refused = "is not configured: attach again in";
    let mut sender = daemon.attach("lan0:p").expect("a configured port");
    let mut paused = Paused::of(0);
    for number in 0..6 {
        let name = format!("lan0:n{number}");
        let mut port = match number {
            0..4 => daemon.attach(&name).expect("each name is another port"),
            _ => paused.attach(&daemon, &name, refused),
        };
        // The fourth panic is the first one followed by a pause.
        paused = Paused::of([0, 0, 0, 1, 2, 4][number]);
        // What its client alone can have caused, and what another one can have caused, too.
        if number % 2 == 0 {
            daemon.inject(&format!("{name}.collect"), "panic");
            send(&mut port, &frame(ALL, A, 0));
        } else {
            daemon.inject(&format!("{name}.ring"), "panic");
            send(&mut sender, &frame(ALL, B, 0));
        }
        why_ended(&mut port);
        until("the fault is recorded", || {
            daemon.status()["faults"].as_array().is_some_and(|faults| faults.len() == number + 1)
        });
    }
    match daemon.attach("lan0:n9").map_err(|refusal| refusal.to_string()) {
        Err(refusal) => {
            let says_why = refusal.contains("when it served ports that clients made");
            assert!(refusal.contains(refused) && says_why, "{refusal}");
        }
        Ok(_) => assert!(paused.may_be_over(), "the client was accepted during the pause"),
    }
    assert!(daemon.log().contains("no further ports are made on switch lan0 for 4s"), "{}", daemon.log());
    drop(sender);
    drop(until_some("a configured port is not refused", || daemon.attach("lan0:p").ok()));
    drop(daemon.attach("lan1:n9").expect("another switch"));
    // Clients cannot avoid the pause by making new switches.
    for number in 0..4 {
        let name = format!("new{number}:p");
        let mut port = daemon.attach(&name).expect("a port on a new switch");
        paused = Paused::of(if number < 3 { 0 } else { 1 });
        daemon.inject(&format!("{name}.collect"), "panic");
        send(&mut port, &frame(ALL, A, 0));
        why_ended(&mut port);
        until("the fault is recorded", || {
            daemon.status()["faults"].as_array().is_some_and(|all| all.len() == number + 7)
        });
    }
    drop(paused.attach(&daemon, "new9:p", refused));
}

#[test]
fn a_panic_while_a_nic_is_set_or_a_front_end_closed_costs_its_port_alone() {
    let config = "[switch.lan0]\n[port.vm]\nswitch = \"lan0\"\nkind = \"e1000\"\n";
    let mut daemon = Failing::start_alone(config);
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    daemon.inject("set-nic", "panic");
    assert_eq!(daemon.run(&["port", "set", "vm", "link=down"]), Some(0));
    until("the port has a fault", || daemon.port("vm")["faults"]["internal_error"] == 1);
    daemon.until_state("vm", "waiting");
    assert_eq!(daemon.port("vm")["e1000"]["link"], "down", "the new NIC has the new setting");
    both_ways(&mut a, &mut b, 1);
    daemon.inject("close", "panic");
    assert_eq!(daemon.run(&["port", "del", "vm"]), Some(0));
    until("the panic is logged", || daemon.log().contains("when it closed the front end of port lan0:vm"));
    assert_eq!(daemon.ended(), None);
    both_ways(&mut a, &mut b, 2);
    // Pollers that do not end still hold ports' inputs, so these ports would not work. The daemon must end.
    daemon.inject("end-pollers", "panic");
    std::fs::write(daemon.path("c.toml"), "[engine]\nidle = \"sleep\"\n[switch.lan0]\n").unwrap();
    daemon.signal(Signal::HUP);
    daemon.must_end("pollers could not be ended");
}

#[test]
fn whatever_keeps_the_ports_threads_waiting_the_daemon_answers_and_ends() {
    for kind in ["vhost-user", "e1000"] {
        let (manager, path) = Manager::bind();
        let config = format!("[switch.lan0]\n[port.vm]\nswitch = \"lan0\"\nkind = \"{kind}\"\n");
        let variables = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", "200000")];
        // A keeper would end a switch that stands still for as long as this test may.
        let mut daemon = Failing::start_with(&config, &variables, &["--no-keeper"]);
        let socket = daemon.path("run/vm.sock");
        let mut client = daemon.attach("lan0:client").unwrap();
        let mut virtio = (kind == "vhost-user").then(|| drive(&daemon, "vm.sock").unwrap());
        let mut nic = (kind == "e1000").then(|| E1000Endpoint::attach(&socket, &E1000Options::default()).unwrap());
        let mut talk = |number| {
            virtio.iter_mut().for_each(|guest| say(guest, number));
            nic.iter_mut().for_each(|guest| say(guest, number));
        };
        talk(1);
        assert!(receive(&mut client, PATIENCE).is_some());
        daemon.until_state("vm", "up");
        // The poller stalls in the port's ring, as if it touched guest memory whose page fault does not end.
        daemon.inject("lan0:vm.collect", "stall");
        talk(2);
        until("the poller is stuck", || daemon.log().contains("poller 0 is stuck"));
        assert_eq!(daemon.port("vm")["state"], "up", "the state is the last known one");
        if kind == "e1000" {
            for link in ["link=down", "link=up"] {
                assert_eq!(daemon.run(&["port", "set", "vm", link]), Some(0), "{}", daemon.log());
            }
        }
        assert_eq!(daemon.status()["pollers"][0]["stuck"], true);
        let other = daemon.attach("lan0:other").expect("the daemon accepts clients");
        assert_eq!(daemon.run(&["port", "add", "vm2", "switch=lan0", &format!("kind={kind}")]), Some(0));
        assert_eq!(daemon.run(&["port", "del", "vm"]), Some(0));
        assert_eq!(daemon.port("vm"), Value::Null);
        drop(other);
        until("the daemon removes a client's port", || daemon.port("other").is_null());
        daemon.signal(Signal::TERM);
        until("the daemon ends", || daemon.ended().is_some());
        drop(manager);
    }
}

#[test]
fn a_port_that_was_disabled_does_not_come_back_in_the_namespace_of_a_stranger_with_its_processs_number() {
    let alone = || Ended(std::process::Command::new("unshare").args(["--net", "sleep", "infinity"]).spawn().unwrap());
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let process = alone();
    let (pid, path) = (process.id(), format!("/proc/{}/ns/net", process.id()));
    until("it has its own", || std::fs::read_link(&path).is_ok_and(|namespace| namespace != own));
    let daemon = Failing::start("[switch.lan0]\n", &[]);
    daemon.inject("lan0:t0.collect", "panics");
    let added = daemon.say(&["port", "add", "t0", "switch=lan0", "kind=tap", &format!("netns={path}")]);
    assert_eq!(added.code, Some(0), "{}", added.err);
    until("it is disabled", || {
        let up = ["-t", &pid.to_string(), "-n", "ip", "link", "set", "t0", "up"];
        let _ = std::process::Command::new("nsenter").args(up).stderr(Stdio::null()).status();
        daemon.port("t0")["state"] == "disabled"
    });
    daemon.heal("lan0:t0.collect");
    // Other changes come between.
    assert_eq!(daemon.run(&["port", "add", "other", "switch=lan0", "kind=vhost-user"]), Some(0));
    drop(process);
    let mut strangers = Vec::new();
    until("a stranger has the number", || {
        if !std::path::Path::new(&path).exists() {
            std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
            strangers.push(alone());
        }
        std::fs::read_link(&path).is_ok_and(|namespace| namespace != own)
    });
    let said = daemon.say(&["port", "enable", "t0"]);
    assert!(said.out.contains("the process that had this number has ended"), "{said:?}");
    assert_eq!(daemon.port("t0")["state"], "failed");
}

#[test]
fn a_disk_that_does_not_answer_keeps_nobody_from_changing_ports() {
    let mut daemon = Failing::start("[switch.lan0]\n", &[]);
    let state = daemon.path("run/state.toml");
    daemon.inject("state-file", "stall");
    for name in ["x", "y"] {
        let said = daemon.say(&["port", "add", name, "switch=lan0", "kind=process"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let warning =
            format!("warning: this is lost if the switch ends now: {} is still being written", state.display());
        assert!(said.out.contains(&warning), "{said:?}");
        assert_eq!(daemon.port(name)["state"], "waiting");
    }
    assert!(!state.exists());
    daemon.heal("state-file");
    until("the newest state is written", || std::fs::read_to_string(&state).is_ok_and(|text| text.contains("port.y")));
    assert_eq!(daemon.run(&["port", "del", "y"]), Some(0));
    assert!(!std::fs::read_to_string(&state).unwrap().contains("port.y"));
    // After a defect it is tried again.
    daemon.inject("state-file", "panic");
    assert_eq!(daemon.run(&["port", "set", "x", "weight=2"]), Some(0));
    // The command does not wait for the log.
    until("it is told", || daemon.log().contains("when it wrote the state file"));
    until("it is written", || std::fs::read_to_string(&state).unwrap().contains("weight = 2"));
    daemon.signal(Signal::TERM);
    until("the daemon ends", || daemon.ended() == Some(Some(0)));
}

/// The line of the only child with this name, in its status.
fn child_says(daemon: &Failing, name: &str, line: &str) -> bool {
    children(daemon.child.id(), name)
        .iter()
        .any(|child| std::fs::read_to_string(format!("/proc/{child}/status")).is_ok_and(|status| status.contains(line)))
}

const NO_CAPABILITY: &str = "CapEff:\t0000000000000000\n";

#[test]
fn a_system_call_that_the_switch_may_not_make_fails_and_is_counted() {
    let mut daemon = Failing::launch("[switch.lan0]\n", &[], &[], Some(("refuses", "")));
    until("the daemon is ready", || daemon.ended().is_none() && daemon.run(&["status"]) == Some(0));
    let refused = |daemon: &Failing| {
        let counts = daemon.status()["fault_counts"].clone();
        let refused = counts.as_array().unwrap().iter().find(|of| of["reason"] == "refused_call");
        refused.map_or(0, |of| of["count"].as_u64().unwrap())
    };
    assert_eq!(refused(&daemon), 0, "{}", daemon.log());
    for times in 1..=2 {
        daemon.inject("status", "call");
        until("it is counted", || refused(&daemon) == times);
        let said = std::fs::read_to_string(daemon.path("inject/status.said")).unwrap();
        assert_eq!(said, "Err(Os { code: 1, kind: PermissionDenied, message: \"Operation not permitted\" })");
    }
    until("it is in the log", || daemon.log().contains("system calls were refused to the switch"));
    assert!(!daemon.log().contains("the switch died"), "{}", daemon.log());
}

#[test]
fn a_switch_in_a_clients_hands_is_granted_nothing_by_a_link_in_the_place_of_a_peers_socket() {
    let elsewhere = directory();
    let (socket, monitor) = (elsewhere.path().join("p.sock"), elsewhere.path().join("monitor.sock"));
    let monitor_listens = UnixListener::bind(&monitor).unwrap();
    monitor_listens.set_nonblocking(true).unwrap();
    symlink(&monitor, &socket).unwrap();
    let config = format!(
        "[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"stream\"\nrole = \"client\"\nsocket = {socket:?}\n"
    );
    let daemon = Failing::start(&config, &[]);
    let keeper = daemon.path("run/keeper.sock");
    until("the keeper listens", || keeper.exists());
    let line = r#"{"port":"q","keys":{"switch":"lan0","kind":"tap","device":"q"}}"#;
    let grant = |path: &Path| {
        daemon.inject("status", &format!("grant {} {line}", path.display()));
        daemon.status();
        let said = std::fs::read_to_string(daemon.path("inject/status.said")).unwrap();
        assert!(said.starts_with("refused: "), "{}: {said}", path.display());
    };
    grant(&keeper);
    std::fs::remove_file(&socket).unwrap();
    symlink(&keeper, &socket).unwrap();
    grant(&socket);
    std::fs::remove_file(&socket).unwrap();
    std::fs::hard_link(&keeper, &socket).unwrap_or_else(|why| println!("not on one file system: {why}"));
    grant(&socket);
    // The switch itself tried the link to the monitor all the time.
    let _ = std::fs::remove_file(&socket);
    let peer = UnixListener::bind(&socket).unwrap();
    drop(peer.accept().unwrap());
    assert_eq!(monitor_listens.accept().map_err(|why| why.kind()).map(drop), Err(ErrorKind::WouldBlock));
}

#[test]
fn what_commands_changed_is_read_without_privileges_also_at_the_first_start() {
    let mut daemon = Failing::launch("[switch.lan0]\n", &[], &[], Some(("read-state", "stall")));
    until("the switch has given up", || child_says(&daemon, "ringway-switch", NO_CAPABILITY));
    assert!(!daemon.path("run/control.sock").exists());
    daemon.heal("read-state");
    until("the daemon is ready", || daemon.ended().is_none() && daemon.run(&["status"]) == Some(0));
}

#[test]
fn a_successor_has_the_processors_before_others_until_it_serves() {
    if !rustix::process::geteuid().is_root() {
        skip!("needs root: nobody else may set a higher priority");
    }
    let daemon = Failing::start("[switch.lan0]\n[port.vm]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n", &[]);
    let own = child::thread_priorities(daemon.child.id())[0];
    let of = |name: &str| {
        let all = children(daemon.child.id(), name).into_iter().flat_map(child::thread_priorities);
        all.collect::<std::collections::BTreeSet<_>>()
    };
    let switch = || children(daemon.child.id(), "ringway-switch").first().copied();
    // Again, if the keeper had not heard yet that the next one waits, or this test had no processor while it hurried.
    until("a successor hurries", || {
        until("another switch waits", || {
            let waiting = children(daemon.child.id(), "ringway-next");
            waiting.into_iter().any(|waiting| !children(waiting, "ringway-closer").is_empty())
        });
        daemon.inject("read-state", "stall");
        let first = until_some("there is a switch", switch);
        child::signal(first, Signal::KILL);
        until("its successor is there", || switch().is_some_and(|next| next != first));
        let hurries = of("ringway-switch").first() == Some(&-20);
        daemon.heal("read-state");
        daemon.until_state("vm", "waiting");
        hurries
    });
    until("it goes on as before", || of("ringway-switch").iter().eq([&own]));
}

#[test]
fn a_new_version_looks_at_what_is_kept_without_privileges() {
    let daemon = Failing::start("[switch.lan0]\n", &[]);
    daemon.inject("check", "stall");
    std::thread::scope(|scope| {
        let upgraded = scope.spawn(|| daemon.say(&["upgrade"]));
        until("it has given up", || {
            child_says(&daemon, "ringway-check", NO_CAPABILITY) && child_says(&daemon, "ringway-check", "Seccomp:\t2")
        });
        daemon.heal("check");
        let said = upgraded.join().unwrap();
        assert_eq!(said.code, Some(0), "{}", said.err);
    });
}

#[test]
fn a_switch_that_died_before_it_had_its_directory_has_a_successor() {
    let mut daemon = Failing::launch("[switch.lan0]\n", &[], &[], Some(("claim", "abort")));
    until("another one serves", || {
        assert_eq!(daemon.ended(), None, "{}", daemon.log());
        daemon.run(&["status"]) == Some(0)
    });
    assert!(daemon.log().contains("the switch died (signal 6)"), "{}", daemon.log());
    assert!(child_says(&daemon, "ringway-switch", NO_CAPABILITY));
}
