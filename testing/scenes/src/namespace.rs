//! Network namespaces of one test, and programs inside them.
// Every function is for tests: whatever goes wrong is a panic.
#![allow(clippy::missing_panics_doc, clippy::new_without_default)]

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ringway_testing::child::{Ended, forward_lines};
use ringway_testing::skip::{is_installed, is_root};
use ringway_testing::{PATIENCE, snmp, until};
use ringway_traffic::pcap::CaptureReader;
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::daemon::{Daemon, Said};

/// Longest life of any program, in seconds: only a program that hangs is ended by it. A program may outlive several waits of a test.
const DEADLINE: &str = "3600";
/// Has the kernel ask for the Ethernet address of a neighbour for five minutes, once a second, on all devices. By default it asks three
/// times, and then the address counts as unreachable.
const ASK_LONGER: &str = "for file in /proc/sys/net/ipv[46]/neigh/*/[mu]cast_solicit; do echo 300 >$file; done";

/// A network namespace with a name of its own; goes when dropped.
pub struct Namespace {
    /// Its name in `/run/netns`.
    pub name: String,
}

impl Namespace {
    /// Creates it.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        assert!(is_root(), "this test makes network namespaces: run it as root");
        let name = format!("rw{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let namespace = Self { name };
        program("ip", &["netns", "add", &namespace.name]);
        // No neighbour or router discovery: every frame is the test's.
        namespace
            .ok("sysctl", &["-qw", "net.ipv6.conf.default.disable_ipv6=1", "net.ipv4.icmp_echo_ignore_broadcasts=0"]);
        namespace
    }

    fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=1", DEADLINE, "ip", "netns", "exec", &self.name, name]).args(args);
        command
    }

    /// Runs a function inside, on a thread of its own.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            let file = File::open(Path::new("/run/netns").join(&self.name)).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }

    /// Runs a program inside, to its end.
    pub fn run(&self, name: &str, args: &[&str]) -> Said {
        assert!(is_installed(name), "{name} is not there: make deps installs it");
        self.command(name, args).output().unwrap().into()
    }

    /// Runs a program inside, which must succeed; gives its output. A device that `ip addr add` gives an address waits for its neighbours as
    /// long as tests wait: the switch may stand still.
    pub fn ok(&self, name: &str, args: &[&str]) -> String {
        let said = self.run(name, args);
        assert_eq!(said.code, Some(0), "{name} {}: {}{}", args.join(" "), said.out, said.err);
        if name == "ip" && args.starts_with(&["addr", "add"]) {
            self.ok("sh", &["-c", ASK_LONGER]);
        }
        said.out
    }

    /// Starts a program inside. `says` is what it writes when it is ready, to stdout or stderr.
    pub fn start(&self, name: &str, args: &[&str], says: &str) -> Running {
        assert!(is_installed(name), "{name} is not there: make deps installs it");
        let mut child = Ended(self.command(name, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let (send, lines) = channel();
        forward_lines(child.stdout.take().unwrap(), send.clone());
        forward_lines(child.stderr.take().unwrap(), send);
        let running = Running { child, lines, name: name.to_owned() };
        let ready = running.lines.iter().any(|line| line.contains(says));
        assert!(ready, "{name} {} should say {says:?}", args.join(" "));
        running
    }

    /// A counter of its kernel, by its names in `/proc/net/snmp`: `snmp("Icmp", "InEchoReps")`.
    pub fn snmp(&self, protocol: &str, counter: &str) -> u64 {
        snmp::counter(&self.ok("cat", &["/proc/net/snmp"]), protocol, counter).expect("the kernel has this counter")
    }

    /// Sends `count` echo requests by `ping` with these arguments, and waits until each is answered.
    pub fn ping(&self, count: u64, args: &[&str]) {
        self.start_ping(count, args).finish();
    }

    /// Starts `ping` with `count` echo requests and these arguments, and waits for the first answer. No other ping of this namespace
    /// may be answered meanwhile.
    pub fn start_ping(&self, count: u64, args: &[&str]) -> Pings<'_> {
        let wanted = self.snmp("Icmp", "InEchoReps") + count;
        let number = count.to_string();
        // Without any answer, ping ends after this time. The answers may all be late.
        let patience = PATIENCE.as_secs().to_string();
        let args = [&["-c", &number, "-W", &patience], args].concat();
        Pings { space: self, ping: self.start("ping", &args, "icmp_seq="), wanted }
    }

    /// Returns true if it has a network device of this name.
    pub fn has_device(&self, name: &str) -> bool {
        self.run("ip", &["link", "show", "dev", name]).code == Some(0)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// A program that was started; ended when dropped.
pub struct Running {
    child: Ended,
    lines: Receiver<String>,
    name: String,
}

impl Running {
    /// Waits for its end, which must be a success; returns what it wrote since it was ready.
    pub fn finish(mut self) -> String {
        let said: Vec<String> = self.lines.iter().collect();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{}: {status}: {}", self.name, said.join("\n"));
        said.join("\n")
    }
}

/// A `ping` that was started.
///
/// The kernel's counter is judged, and not what `ping` says: while `ping` has no processor its socket overflows, and it stops waiting
/// for the last answer after two round-trip times.
pub struct Pings<'s> {
    space: &'s Namespace,
    ping: Running,
    wanted: u64,
}

impl Pings<'_> {
    /// Waits until `ping` has ended and each of its requests is answered, once.
    pub fn finish(self) {
        let said = self.ping.finish();
        let answered = || self.space.snmp("Icmp", "InEchoReps");
        until("each ping is answered", || answered() >= self.wanted);
        assert!(answered() == self.wanted && !said.contains("DUP!"), "answered more than once: {said}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // `timeout` passes SIGTERM on to the program, which SIGKILL would leave behind.
            self.child.signal(Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

fn program(name: &str, args: &[&str]) {
    assert!(is_installed(name), "{name} is not there: make deps installs it");
    let said: Said = Command::new(name).args(args).output().unwrap().into();
    assert_eq!(said.code, Some(0), "{name} {}: {}", args.join(" "), said.err);
}

/// A daemon with TAP ports `t1`, `t2`, … on the switch `lan0`, each in a namespace of its own with the address
/// 10.77.0.1, 10.77.0.2, …
pub struct Lan {
    // Dropped first, so that its devices go before their namespaces.
    /// The daemon.
    pub daemon: Daemon,
    /// The namespaces of ports `t1`, `t2`, …
    pub spaces: Vec<Namespace>,
}

impl Lan {
    /// With so many ports.
    pub fn new(ports: usize) -> Self {
        let spaces: Vec<Namespace> = (0..ports).map(|_| Namespace::new()).collect();
        let port = |(number, space): (usize, &Namespace)| {
            let (number, netns) = (number + 1, &space.name);
            format!("[port.t{number}]\nswitch = \"lan0\"\nkind = \"tap\"\nnetns = \"{netns}\"\n")
        };
        let ports: String = spaces.iter().enumerate().map(port).collect();
        let daemon = Daemon::start(&format!("[switch.lan0]\n{ports}"));
        for (number, space) in spaces.iter().enumerate() {
            let (address, device) = (format!("10.77.0.{}/24", number + 1), format!("t{}", number + 1));
            space.ok("ip", &["addr", "add", &address, "broadcast", "10.77.0.255", "dev", &device]);
        }
        Self { daemon, spaces }
    }

    /// Drops of one port for one reason.
    pub fn drops(&self, port: &str, reason: &str) -> u64 {
        self.daemon.port(port)["drops"][reason].as_u64().unwrap_or(0)
    }
}

/// Frames of a capture file.
pub fn frames(file: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(file).unwrap();
    let mut frames = Vec::new();
    while let Some(record) = reader.next_frame().unwrap() {
        frames.push(record.data.to_vec());
    }
    frames
}

/// CPU time a process's threads have used.
pub fn cpu_time(pid: u32) -> Duration {
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        let schedstat = std::fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
        schedstat.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    Duration::from_nanos(std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(of_thread).sum())
}
