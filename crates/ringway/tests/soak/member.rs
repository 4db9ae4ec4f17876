//! A member's process: it attaches, sends, receives, and checks what comes.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringway_client::{Port, Shape};
use ringway_link::{PacketLink, PacketOptions};
use ringway_testing::random::Random;
use ringway_traffic::{
    E1000Endpoint, E1000Options, Endpoint, LinkEndpoint, Packed, ProcessEndpoint, SocketRole, Split, VirtioEndpoint,
    VirtioOptions,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::frame::{self, ALL, Label, Read};
use crate::members::{Kind, MEMBERS};
use crate::notes::{self, Notes};
use crate::stream::StreamEndpoint;

/// The variable that makes the test program a member: its number, its incarnation, the folder of the notes, the runtime directory and the
/// namespace, separated by commas.
pub const VARIABLE: &str = "RINGWAY_SOAK_MEMBER";

/// Pause between two bursts.
const TICK: Duration = Duration::from_millis(2);
/// Most frames of a burst.
const BURST: u64 = 16;
/// One frame in so many is a broadcast, or for a member that must not hear it.
const BROADCAST_EVERY: u64 = 32;
/// Longest time to attach.
const ATTACH_WITHIN: Duration = Duration::from_secs(60);

/// The exit status of a member whose port ended, and of one that could not attach.
pub const ENDED: i32 = 3;
pub const NOT_ATTACHED: i32 = 4;

/// One process.
struct Process {
    number: usize,
    incarnation: u32,
    notes: Notes,
    wrong: File,
    random: Random,
    next: [u64; notes::MEMBERS_MOST + 1],
}

/// Is a member until it is told to end, or until its port ends. Returns the exit status.
pub fn run(told: &str) -> i32 {
    let told: Vec<&str> = told.split(',').collect();
    let [number, incarnation, folder, run, namespace] = told[..] else { panic!("{told:?}") };
    let (number, incarnation): (usize, u32) =
        (number.parse().expect("a number"), incarnation.parse().expect("a number"));
    let (folder, run) = (PathBuf::from(folder), Path::new(run));
    let member = MEMBERS[number];
    let notes = Notes::open(&folder.join(format!("{}.notes", member.name)));
    let wrong = File::options().create(true).append(true).open(folder.join(format!("{}.wrong", member.name)));
    let random = Random::new((number as u64) << 32 | u64::from(incarnation) | 1 << 60);
    let wrong = wrong.expect("a file");
    let mut process = Process { number, incarnation, notes, wrong, random, next: [1; _] };
    let virtio = VirtioOptions { within: ATTACH_WITHIN, ..VirtioOptions::default() };
    let socket = run.join(format!("{}.sock", member.name));
    match member.kind {
        Kind::Process | Kind::OnDemand => {
            let name = format!("{}:{}", member.switch, member.name);
            process.attach(|| Port::attach(run.join("attach.sock"), &name, Shape::default()).map(ProcessEndpoint::new))
        }
        Kind::Split { listens } => {
            let socket_role = if listens { SocketRole::Listen } else { SocketRole::Connect };
            let options = VirtioOptions { socket_role, ..virtio };
            if listens {
                let _ = std::fs::remove_file(&socket);
            }
            process.attach(|| VirtioEndpoint::<Split>::attach(&socket, &options))
        }
        Kind::Packed { inflight } => {
            let options = VirtioOptions { inflight, ..virtio };
            process.attach(|| VirtioEndpoint::<Packed>::attach(&socket, &options))
        }
        Kind::E1000(mode) => {
            let options = E1000Options { mode, within: ATTACH_WITHIN, ..E1000Options::default() };
            process.attach(|| E1000Endpoint::attach(&socket, &options))
        }
        Kind::Stream => process.attach(|| StreamEndpoint::connect(&socket)),
        Kind::Tap | Kind::Xdp | Kind::Packet => {
            let space = File::open(Path::new("/run/netns").join(namespace)).expect("the namespace");
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).expect("root");
            let options = PacketOptions::default();
            process.attach(|| PacketLink::open(member.name, &options).map(LinkEndpoint::new))
        }
    }
}

impl Process {
    fn attach<E: Endpoint, F: std::fmt::Display>(&mut self, mut attach: impl FnMut() -> Result<E, F>) -> i32 {
        let begun = Instant::now();
        let endpoint = loop {
            match attach() {
                Ok(endpoint) => break endpoint,
                // The port of the process before may still be there, or the device not yet.
                Err(_) if begun.elapsed() < ATTACH_WITHIN && self.notes.get(notes::CONTROL) != notes::END => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(why) => {
                    eprintln!("incarnation {} is not attached: {why}", self.incarnation);
                    return NOT_ATTACHED;
                }
            }
        };
        self.notes.set(notes::ATTACHED, self.incarnation.into());
        let why = self.exchange(endpoint);
        self.notes.set(notes::ATTACHED, 0);
        match why {
            None => 0,
            Some(why) => {
                eprintln!("incarnation {} ended: {why}", self.incarnation);
                ENDED
            }
        }
    }

    /// Sends and receives. Returns why the port ended, or none if this was told to end.
    fn exchange(&mut self, mut endpoint: impl Endpoint) -> Option<String> {
        let mut next = Instant::now();
        loop {
            let told = self.notes.get(notes::CONTROL);
            if told == notes::END {
                return None;
            }
            let mut received = 0;
            endpoint.rx_batch(256, |frame| {
                received += 1;
                self.see(frame);
            });
            if received > 0 {
                self.heard();
            }
            let now = Instant::now();
            if told != notes::PAUSE && now >= next {
                next = now + TICK;
                let burst = 1 + self.random.below(BURST);
                let _ = (0..burst).all(|_| self.send(&mut endpoint, told == notes::SEND_TO_ALL));
                endpoint.tx_flush();
            }
            let wait = if told == notes::PAUSE { TICK } else { next.saturating_duration_since(now) };
            if let Err(why) = endpoint.wait(true, wait.max(Duration::from_micros(100))) {
                return Some(why.to_string());
            }
        }
    }

    /// Sends one frame. Returns false if there is no room.
    fn send(&mut self, endpoint: &mut impl Endpoint, to_all: bool) -> bool {
        let own = &MEMBERS[self.number];
        let way = self.random.below(BROADCAST_EVERY);
        let to = loop {
            let to = self.random.below(MEMBERS.len() as u64) as usize;
            if (way == 1 && to_all && to != self.number) || own.reaches(&MEMBERS[to]) {
                break to;
            }
        };
        let (to, flow) = if way == 0 { (ALL, notes::MEMBERS_MOST) } else { (to as u16, to) };
        let label = Label { sender: self.number as u16, to, incarnation: self.incarnation, number: self.next[flow] };
        let is_sent = endpoint.tx_push(label.length(), |frame| label.write(frame));
        if is_sent {
            self.next[flow] += 1;
            self.notes.add(if to == ALL { notes::SENT_TO_ALL } else { notes::SENT + flow }, 1);
        }
        is_sent
    }

    fn see(&mut self, bytes: &[u8]) {
        let label = match frame::read(bytes) {
            Read::Foreign => return self.notes.add(notes::FOREIGN, 1),
            Read::Altered(label) => {
                let head: String = bytes.iter().take(80).map(|byte| format!("{byte:02x}")).collect();
                return self.complain("altered", &label, &format!("{} bytes: {head}", bytes.len()));
            }
            Read::Whole(label) => label,
        };
        let sender = usize::from(label.sender);
        let own = &MEMBERS[self.number];
        if !MEMBERS.get(sender).is_some_and(|sender| sender.reaches(own)) {
            return self.complain("not allowed here", &label, "");
        }
        self.notes.add(notes::RECEIVED, 1);
        let is_broadcast = label.to == ALL;
        if !is_broadcast && usize::from(label.to) != self.number {
            return self.notes.add(notes::FLOODED_FROM + sender, 1);
        }
        let flow = 2 * sender + usize::from(is_broadcast);
        let newest = [notes::NEWEST_INCARNATION, notes::NEWEST_NUMBER].map(|at| self.notes.get(at + flow));
        if [label.incarnation.into(), label.number] <= newest {
            let what = format!("after number {} of incarnation {}", newest[1], newest[0]);
            return self.complain("twice or late", &label, &what);
        }
        self.notes.set(notes::NEWEST_INCARNATION + flow, label.incarnation.into());
        self.notes.set(notes::NEWEST_NUMBER + flow, label.number);
        self.notes.add(if is_broadcast { notes::BROADCASTS_FROM } else { notes::RECEIVED_FROM } + sender, 1);
    }

    fn complain(&mut self, what: &str, label: &Label, more: &str) {
        let Label { sender, to, incarnation, number } = label;
        let line = format!("{what},{sender},{incarnation},{},to {to} number {number} {more}\n", self.incarnation);
        self.wrong.write_all(line.as_bytes()).expect("the file takes it");
        self.notes.add(notes::WRONG, 1);
    }

    fn heard(&mut self) {
        let now = notes::now();
        let last = self.notes.get(notes::HEARD);
        if last != 0 && self.notes.get(notes::CONTROL) != notes::PAUSE {
            let silence = now.saturating_sub(last);
            if silence > self.notes.get(notes::SILENCE) {
                self.notes.set(notes::SILENCE, silence);
            }
        }
        self.notes.set(notes::HEARD, now);
    }
}

#[test]
fn what_comes_twice_late_altered_or_to_the_wrong_member_is_complained_about() {
    let folder = ringway_testing::file::directory();
    let notes = Notes::open(&folder.path().join("notes"));
    let wrong = File::create(folder.path().join("wrong")).expect("a file");
    let number = MEMBERS.iter().position(|member| member.name == "v0").expect("a member");
    let mut process = Process { number, incarnation: 1, notes, wrong, random: Random::new(1), next: [1; _] };
    let mut see = |sender: &str, incarnation, number, change: usize| {
        let sender = MEMBERS.iter().position(|member| member.name == sender).expect("a member") as u16;
        let label = Label { sender, to: process.number as u16, incarnation, number };
        let mut bytes = vec![0; label.length()];
        label.write(&mut bytes);
        bytes[50] ^= change as u8;
        let before = process.notes.get(notes::WRONG);
        process.see(&bytes);
        process.notes.get(notes::WRONG) - before
    };
    assert_eq!([see("p0", 1, 1, 0), see("p0", 1, 3, 0), see("e0", 1, 2, 0), see("p0", 2, 1, 0)], [0; 4]);
    assert_eq!([see("p0", 2, 1, 0), see("e0", 1, 1, 0), see("p0", 1, 9, 0), see("e0", 1, 3, 1)], [1; 4]);
    // In another VLAN.
    assert_eq!(see("p2", 1, 1, 0), 1);
}
