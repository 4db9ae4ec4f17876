//! Network namespaces of one test, and programs inside them.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ringway_traffic::pcap::CaptureReader;

use crate::support::{Daemon, Said};

/// Longest life of any program, in seconds.
const DEADLINE: &str = "60";

/// A network namespace with a name of its own; goes when dropped.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        assert!(rustix::process::geteuid().is_root(), "this test makes network namespaces: run it as root");
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

    /// Runs a program inside, to its end.
    pub fn run(&self, name: &str, args: &[&str]) -> Said {
        assert!(installed(name), "{name} is not there: make deps installs it");
        self.command(name, args).output().unwrap().into()
    }

    /// Runs a program inside, which must succeed; gives its output.
    pub fn ok(&self, name: &str, args: &[&str]) -> String {
        let said = self.run(name, args);
        assert_eq!(said.code, Some(0), "{name} {}: {}{}", args.join(" "), said.out, said.err);
        said.out
    }

    /// Starts a program inside. `says` is what it says when it is ready, on stdout or stderr.
    pub fn start(&self, name: &str, args: &[&str], says: &str) -> Running {
        assert!(installed(name), "{name} is not there: make deps installs it");
        let mut child = self.command(name, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let send = send.clone();
            std::thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
            });
        }
        let running = Running { child, lines, name: name.to_owned() };
        let ready = running.lines.iter().any(|line| line.contains(says));
        assert!(ready, "{name} {} should say {says:?}", args.join(" "));
        running
    }

    /// Whether it has a network device of this name.
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
    child: Child,
    lines: Receiver<String>,
    name: String,
}

impl Running {
    /// Waits for its end, which must be a success; gives what it said since it was ready.
    pub fn finish(mut self) -> String {
        let said: Vec<String> = self.lines.iter().collect();
        let status: ExitStatus = self.child.wait().unwrap();
        assert!(status.success(), "{}: {status}: {}", self.name, said.join("\n"));
        said.join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // `timeout` passes it on.
            if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let _ = self.child.wait();
        }
    }
}

fn installed(name: &str) -> bool {
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(name).exists())
}

fn program(name: &str, args: &[&str]) {
    assert!(installed(name), "{name} is not there: make deps installs it");
    let said: Said = Command::new(name).args(args).output().unwrap().into();
    assert_eq!(said.code, Some(0), "{name} {}: {}", args.join(" "), said.err);
}

/// A daemon with TAP ports `t1`, `t2`, … on the switch `lan0`, each in a namespace of its own with the address
/// 10.77.0.1, 10.77.0.2, …
pub struct Lan {
    // Dropped first, so that its devices go before their namespaces.
    pub daemon: Daemon,
    pub spaces: Vec<Namespace>,
}

impl Lan {
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

/// Waits for as long as is to be measured.
pub fn measure_for(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::sleep(left);
    }
}
