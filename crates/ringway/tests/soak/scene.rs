//! The daemon, its log, the namespaces of devices, and the processes at the ports.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringway_scenes::namespace::Namespace;
use ringway_scenes::{Daemon, PATIENCE_VARIABLE, Said};
use ringway_testing::child::Ended;
use serde_json::Value;

use crate::frame::address;
use crate::member;
use crate::members::{Kind, MEMBERS};
use crate::notes::{self, Notes};

/// Lines of the log that are kept.
const LINES: usize = 200;
/// Bytes of the pipe of the log.
const PIPE: usize = 4096;
/// Seconds for the answer to a request.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// A member's process and what is known of it.
pub struct Running {
    pub child: Ended,
    pub notes: Notes,
    pub incarnation: u32,
    /// When it was seen to be attached.
    pub attached: Option<Instant>,
    /// A fault has hit it since the last look: its port may end.
    pub is_hit: bool,
    /// Processes whose memory was punched: what they sent and received proves nothing.
    pub punched: BTreeSet<u32>,
    /// Lines of complaints that were judged.
    pub judged: u64,
}

/// The namespaces of a device: its own, and that of the other end of the veth pair.
pub struct Spaces {
    pub device: Namespace,
    pub wire: Option<Namespace>,
}

/// The end of the log's pipe that is read, or for a while is not.
pub struct Log {
    pub lines: Arc<Mutex<VecDeque<String>>>,
    is_full: Arc<AtomicBool>,
    pipe: File,
    pub full_until: Option<Instant>,
}

/// Everything.
pub struct Scene {
    // Dropped first: the daemon's devices go before their namespaces.
    pub daemon: Daemon,
    pub members: Vec<Running>,
    pub spaces: Vec<Option<Spaces>>,
    pub log: Log,
    pub folder: PathBuf,
    pub seed: u64,
    /// When the switch last ended, by a fault.
    pub switch_died: Option<Instant>,
    /// What the file says of the weight of p0.
    pub weight: u64,
}

impl Log {
    fn open(path: &Path) -> Self {
        assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo is installed").success());
        // A reader and writer: opening it waits for nobody, and it has no end.
        let pipe = File::options().read(true).write(true).open(path).expect("the pipe");
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE);
        rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK).expect("a pipe");
        let (lines, is_full) = (Arc::<Mutex<VecDeque<String>>>::default(), Arc::new(AtomicBool::new(false)));
        // With flags of its own.
        let mut read = File::open(path).expect("the pipe");
        let (kept, stops) = (Arc::clone(&lines), Arc::clone(&is_full));
        let mut whole = File::create(path.with_extension("whole")).expect("a file");
        std::thread::spawn(move || {
            let mut rest = String::new();
            let mut bytes = [0; 4096];
            loop {
                while stops.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let Ok(length @ 1..) = read.read(&mut bytes) else { return };
                rest.push_str(&String::from_utf8_lossy(&bytes[..length]));
                while let Some((line, after)) = rest.split_once('\n') {
                    let mut kept = kept.lock().expect("no panic");
                    if !line.starts_with('#') {
                        kept.push_back(line.to_owned());
                        let _ = writeln!(whole, "{line}");
                    }
                    while kept.len() > LINES {
                        kept.pop_front();
                    }
                    drop(kept);
                    rest = after.to_owned();
                }
            }
        });
        Self { lines, is_full, pipe, full_until: None }
    }

    /// Nobody reads it, and it has no room.
    pub fn fill(&mut self, span: Duration) {
        self.is_full.store(true, Ordering::Relaxed);
        self.full_until = Some(Instant::now() + span);
        // The reader may be in a call, which takes one more.
        while self.pipe.write(b"#\n").is_ok() {}
        std::thread::sleep(Duration::from_millis(30));
        while self.pipe.write(b"#\n").is_ok() {}
    }

    /// It is read again.
    pub fn read(&mut self) {
        self.full_until = None;
        self.is_full.store(false, Ordering::Relaxed);
    }
}

/// Runs a program, which must succeed.
pub fn program(name: &str, args: &[&str]) {
    let said = Command::new(name).args(args).output().expect("it is installed");
    assert!(said.status.success(), "{name} {}: {}", args.join(" "), String::from_utf8_lossy(&said.stderr));
}

impl Spaces {
    fn new(number: usize) -> Option<Self> {
        let kind = MEMBERS[number].kind;
        kind.is_device().then(|| {
            let spaces = Self { device: Namespace::new(), wire: kind.is_veth().then(Namespace::new) };
            spaces.join(number);
            spaces
        })
    }

    /// Makes the veth pair, if it has one.
    pub fn join(&self, number: usize) {
        let Some(wire) = &self.wire else { return };
        let (name, mac) = (MEMBERS[number].name, address(number as u16).map(|byte| format!("{byte:02x}")).join(":"));
        let wire_end = ["peer", "name", name, "netns", &wire.name, "address", &mac];
        self.device.ok("ip", &[&["link", "add", name, "type", "veth"], &wire_end[..]].concat());
        wire.ok("ip", &["link", "set", name, "up"]);
        self.device.ok("ip", &["link", "set", name, "up"]);
    }

    /// The namespace of the member's process.
    fn of_process(&self) -> &str {
        &self.wire.as_ref().unwrap_or(&self.device).name
    }
}

impl Scene {
    pub fn start(seed: u64) -> Self {
        let folder = ringway_testing::file::directory().keep();
        let spaces: Vec<_> = (0..MEMBERS.len()).map(Spaces::new).collect();
        let log = Log::open(&folder.join("log"));
        let to_log = format!("exec env -u {PATIENCE_VARIABLE} \"$@\" 2>{}", folder.join("log").display());
        let daemon = Daemon::start_by(&["sh", "-c", &to_log, "sh"], &config(&spaces, 1, false));
        let run = daemon.runtime_dir();
        let members = (0..MEMBERS.len()).map(|number| {
            let notes = Notes::open(&folder.join(format!("{}.notes", MEMBERS[number].name)));
            notes.set(notes::CONTROL, notes::SEND_TO_ALL);
            let child = member_process(number, 1, &folder, &run, spaces[number].as_ref());
            let punched = BTreeSet::new();
            Running { child, notes, incarnation: 1, attached: None, is_hit: false, punched, judged: 0 }
        });
        let members = members.collect();
        Self { daemon, members, spaces, log, folder, seed, switch_died: None, weight: 1 }
    }

    /// Starts another process for a member whose last one has ended.
    pub fn start_again(&mut self, number: usize) {
        let member = &mut self.members[number];
        member.incarnation += 1;
        member.attached = None;
        member.notes.set(notes::ATTACHED, 0);
        let (space, run) = (self.spaces[number].as_ref(), self.daemon.runtime_dir());
        member.child = member_process(number, member.incarnation, &self.folder, &run, space);
    }

    pub fn tell(&self, what: u64) {
        self.members.iter().for_each(|member| member.notes.set(notes::CONTROL, what));
    }

    /// The switch's status, if it answers.
    pub fn status(&self) -> Option<Value> {
        let mut control = UnixStream::connect(self.daemon.socket("control.sock")).ok()?;
        control.set_read_timeout(Some(ANSWERS_WITHIN)).ok()?;
        control.write_all(b"GET /v1/status HTTP/1.1\r\nhost: ringway\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        control.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Runs the command, which a switch that dies may not answer.
    pub fn ringway(&self, args: &[&str]) -> Said {
        self.daemon.ringway(args)
    }

    /// The configuration file, with this weight of p0 and another port or not.
    pub fn configure(&self, weight: u64, has_more: bool) {
        self.daemon.write(&config(&self.spaces, weight, has_more));
    }

    pub fn keys(&self, number: usize) -> Option<Vec<String>> {
        let space = self.spaces[number].as_ref().map_or("", |spaces| &spaces.device.name);
        MEMBERS[number].keys(number, space)
    }

    /// Ends everything in order.
    pub fn end(mut self) {
        self.log.read();
        self.tell(notes::END);
        for member in &mut self.members {
            member.child.end();
        }
        assert!(self.daemon.stop().success(), "the daemon ends in order");
        let is_socket = |name: &String| name.ends_with(".sock") && !name.starts_with('.');
        let left: Vec<_> = self.daemon.left().into_iter().filter(is_socket).collect();
        // The driver that listens leaves its socket.
        assert!(left.iter().all(|name| name == "v1.sock"), "{left:?}");
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn config(spaces: &[Option<Spaces>], weight: u64, has_more: bool) -> String {
    let mut text = "[switch.lan0]\n[switch.lan1]\n".to_owned();
    for (number, member) in MEMBERS.iter().enumerate() {
        text += &member.section(number, spaces[number].as_ref().map_or("", |spaces| &spaces.device.name));
        if number == 0 {
            text += &format!("weight = {weight}\n");
        }
    }
    if has_more {
        text += "[port.more]\nswitch = \"lan0\"\nkind = \"stream\"\nvlan = 10\n";
    }
    text
}

fn member_process(number: usize, incarnation: u32, folder: &Path, run: &Path, spaces: Option<&Spaces>) -> Ended {
    let name = MEMBERS[number].name;
    let log = File::options().create(true).append(true).open(folder.join(format!("{name}.log"))).expect("a file");
    let space = spaces.map_or("", Spaces::of_process);
    let told = format!("{number},{incarnation},{},{},{space}", folder.display(), run.display());
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--exact", "member_of_the_soak", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(member::VARIABLE, told).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Ended(command.spawn().expect("a process"))
}

/// Members of these kinds.
pub fn all_of(wanted: impl Fn(Kind) -> bool) -> Vec<usize> {
    (0..MEMBERS.len()).filter(|number| wanted(MEMBERS[*number].kind)).collect()
}
