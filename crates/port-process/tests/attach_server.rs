//! The attach dialogue with clients of every kind. One test runs at a time: tests count the process's descriptors.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use ringway_abi::Shape;
use ringway_abi::attach::{REPLY_BYTES, Reply, Request};
use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_CLIENT, RX_SWITCH, WISH};
use ringway_client::{AttachError, Port};
use ringway_memory::Mapping;
use ringway_port::PortIo;
use ringway_port_process::{
    self, AttachServer, ClientId, ExternalMemory, Grant, Host, NetmapHost, Process, TimeLimits,
};
use ringway_testing::child::Ended;
use ringway_testing::{PATIENCE, until, until_some};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// A time in which every client that is not silent sends its request, also on a busy machine.
const PATIENT: Duration = PATIENCE;

#[derive(Debug, PartialEq)]
enum Event {
    Attach(ClientId, String),
    Detach(ClientId),
}

/// Grants every request except those for a port named "no".
struct Recorder {
    events: Sender<Event>,
    ports: HashMap<ClientId, PortIo>,
}

impl NetmapHost for Recorder {}

impl Host for Recorder {
    fn check(&mut self, _: &Request) -> Result<(), String> {
        Ok(())
    }

    fn attach(
        &mut self,
        client: ClientId,
        _: Process,
        request: Request,
        memory: Option<Arc<ExternalMemory>>,
    ) -> Result<Grant, String> {
        if request.port == "no" {
            return Err("not this one".to_owned());
        }
        let layout = request.layout(3).map_err(|e| e.to_string())?;
        let (sides, ends) =
            ringway_port_process::open_with(&request.port, layout, memory).map_err(|e| e.to_string())?;
        self.ports.insert(client, sides);
        self.events.send(Event::Attach(client, request.port)).map_err(|e| e.to_string())?;
        Ok(Grant { ends, colour: 3, mac: [2, 0, 0, 0, 0, 9] })
    }

    fn detach(&mut self, client: ClientId) {
        // The test may have ended.
        let _ = self.events.send(Event::Detach(client));
        self.ports.remove(&client);
    }
}

struct Attach {
    server: Option<AttachServer>,
    events: Receiver<Event>,
    folder: tempfile::TempDir,
    /// The number of descriptors before the server was started.
    before: usize,
    _one: MutexGuard<'static, ()>,
}

impl Attach {
    fn start(request_within: Duration) -> Attach {
        let one = ONE_AT_A_TIME.lock();
        // Threads of an earlier test's server close connections of clients after their end.
        until("no connection is left", || connections() == 0);
        until("no memory of a port is left", || memories() == 0);
        let before = descriptors();
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, events) = channel();
        let server = AttachServer::start_with(
            &folder.path().join("s"),
            &Default::default(),
            Box::new(Recorder { events: sender, ports: HashMap::new() }),
            TimeLimits { request_within, ..TimeLimits::default() },
            &Default::default(),
        );
        Attach { server: Some(server.expect("listens")), events, folder, before, _one: one }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("s")
    }

    fn connect(&self) -> OwnedFd {
        connect_to(&self.path())
    }

    fn event(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("an event")
    }

    /// Returns the number of descriptors after the server has closed those of all earlier clients. So many clients are still there.
    fn settled(&self, clients: usize) -> usize {
        // Its thread answers one after the other: after an answer to another client it has closed what it sent to these.
        let other = self.connect();
        send(&other, &request("no"), SendFlags::NOSIGNAL).expect("sent");
        assert_eq!(refusal(&other), "not this one");
        drop(other);
        until("the server has closed its ends", || connections() == 2 * clients);
        descriptors()
    }

    fn attached(&self) -> ClientId {
        match self.event() {
            Event::Attach(client, _) => client,
            other => panic!("{other:?} is not an attach"),
        }
    }
}

fn connect_to(path: &Path) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("a server");
    socket
}

/// Returns the next message, or `None` if the server has closed the connection.
fn next_reply(socket: &OwnedFd) -> Option<Reply> {
    let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)), Ok(1), "the server answers or closes");
    let mut message = [0; REPLY_BYTES];
    match recv(socket, &mut message[..], RecvFlags::empty()) {
        Ok((_, 0)) | Err(_) => None,
        Ok((_, len)) => Some(Reply::decode(&message[..len]).expect("a reply")),
    }
}

fn refusal(socket: &OwnedFd) -> String {
    match next_reply(socket) {
        Some(Reply::Refused(reason)) => {
            assert_eq!(next_reply(socket), None, "the connection ends after the refusal");
            reason
        }
        other => panic!("{other:?} is not a refusal"),
    }
}

fn request(port: &str) -> Vec<u8> {
    Request { switch: "lan0".into(), port: port.into(), shape: Shape::default(), external: None }.encode().to_vec()
}

/// The number of this process's ends of connections between clients and servers: of connected sockets of the kind SEQPACKET
/// (`/proc/net/unix`; 0x10000 marks sockets that listen).
fn connections() -> usize {
    let table = std::fs::read_to_string("/proc/net/unix").expect("the table of sockets");
    let sockets: HashSet<String> = table
        .lines()
        .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, _, _, flags, "0005", _, inode, ..] if flags != "00010000" => Some(format!("socket:[{inode}]")),
            _ => None,
        })
        .collect();
    let own = std::fs::read_dir("/proc/self/fd")
        .expect("a list")
        .filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let count = own.filter(|file| file.to_str().is_some_and(|file| sockets.contains(file))).count();
    // Without a process for it, a thread is the closer, behind a pair of such sockets.
    let mut threads = std::fs::read_dir("/proc/self/task").expect("a list").filter_map(Result::ok);
    let is_closer = |name: String| name.trim() == "closer-inside";
    let has_closer = threads.any(|thread| std::fs::read_to_string(thread.path().join("comm")).is_ok_and(is_closer));
    if has_closer { count.saturating_sub(2) } else { count }
}

/// The number of descriptors of the memories of ports, which other threads unmap.
fn memories() -> usize {
    let own = std::fs::read_dir("/proc/self/fd")
        .expect("a list")
        .filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    own.filter(|file| file.to_str().is_some_and(|file| file.starts_with("/memfd:") && !file.contains(":ringway-")))
        .count()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list").count()
}

fn wait_for_descriptors(expected: usize) {
    // What was being closed before may have been counted.
    until(&format!("there are no more than {expected} descriptors, as before"), || descriptors() <= expected);
}

#[test]
fn a_message_that_is_no_request_is_answered_with_what_is_wrong() {
    let attach = Attach::start(PATIENT);
    let with = |at: usize, bytes: &[u8]| {
        let mut message = request("a");
        message[at..at + bytes.len()].copy_from_slice(bytes);
        message
    };
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![0], "message of 1 bytes"),
        (request("a")[..127].to_vec(), "message of 127 bytes"),
        ([request("a"), vec![0]].concat(), "message of 129 bytes"),
        (vec![0; 60_000], "a request has 128"),
        (with(0, b"abcd"), "not the attach protocol"),
        (with(4, &[2]), "version 2: this side speaks 1"),
        (with(6, &[4]), "reserved bytes"),
        (with(94, &[1]), "reserved bytes"),
        (with(127, &[1]), "reserved bytes"),
        (with(28, &[0; 66]), "port name \"\""),
        (with(28, b"lan0.a"), "give SWITCH:PORT"),
        (with(28, b"lan0:\xff"), "give SWITCH:PORT"),
        (with(28, b"la/0:a"), "give SWITCH:PORT"),
        (with(28, b"lan0:a\0b"), "give SWITCH:PORT"),
        (with(28, &[b'x'; 66]), "give SWITCH:PORT"),
        (with(8, &[0, 0]), "tx_rings 0 is not possible: 1 to 16"),
        (with(10, &[17, 0]), "rx_rings 17 is not possible"),
        (with(12, &[3, 0, 0, 0]), "tx_slots 3 is not possible: 4 to 32768"),
        (with(16, &[0xff; 4]), "rx_slots 4294967295 is not possible"),
        (with(20, &[129, 0, 0, 0]), "buffer_size 129 is not possible: 128 to 65472, a multiple of 64"),
        (with(24, &[1, 0, 1, 0]), "extra_buffers 65537 is not possible"),
        (request("no"), "not this one"),
    ];
    for (message, expected) in cases {
        let socket = attach.connect();
        send(&socket, &message, SendFlags::NOSIGNAL).expect("sent");
        let reason = refusal(&socket);
        assert!(reason.contains(expected), "{reason:?} should say {expected:?}");
    }
    assert!(attach.events.try_recv().is_err(), "no port was attached");
}

#[test]
fn a_granted_client_gets_its_memory_and_its_port_lives_as_long_as_the_connection() {
    let attach = Attach::start(PATIENT);
    let port = Port::attach(attach.path(), "lan0:a", Shape::default()).expect("attached");
    let client = attach.attached();
    assert_eq!(port.mac(), [2, 0, 0, 0, 0, 9]);
    assert_eq!(port.layout().bytes, port.memory().mapping().bytes());
    assert_eq!(port.ended(), None);
    assert!(attach.events.try_recv().is_err());
    drop(port);
    assert_eq!(attach.event(), Event::Detach(client));
}

/// A client's port. The test plays the switch.
struct Played {
    port: Port,
    mapping: Arc<Mapping>,
}

impl Played {
    fn attach(attach: &Attach) -> Played {
        let port = Port::attach(attach.path(), "lan0:a", Shape::default()).expect("attached");
        let mapping = Arc::clone(port.memory().mapping());
        Played { port, mapping }
    }

    fn bell(&self, word: usize) -> &AtomicU32 {
        let bell = self.mapping.view(self.port.layout().doorbell(0), PAIR_BYTES).and_then(|view| view.words32());
        &bell.expect("a doorbell")[word]
    }

    fn given_back(&self) -> u32 {
        self.bell(RX_CLIENT + INDEX).load(Ordering::Acquire)
    }

    /// Publishes frames up to slot `tail`. The client drains them.
    fn drain(&mut self, tail: u32) -> usize {
        self.bell(RX_SWITCH + INDEX).store(tail, Ordering::Release);
        self.port.rx().drain(512, |_| ())
    }
}

#[test]
fn buffers_go_back_by_the_eighth_of_a_ring_with_the_next_look_and_before_the_client_sleeps() {
    let attach = Attach::start(PATIENT);
    let mut played = Played::attach(&attach);
    assert_eq!((played.drain(3), played.given_back()), (3, 0), "the client may send a reply before it drains");
    assert_eq!((played.drain(3), played.given_back()), (0, 3));
    assert_eq!((played.drain(66), played.given_back()), (63, 3));
    assert_eq!((played.drain(67), played.given_back()), (1, 67), "64 of 512");
    assert_eq!((played.drain(70), played.given_back()), (3, 67));
    assert!(!played.port.wait_rx(Duration::ZERO).expect("attached"));
    assert_eq!(played.given_back(), 70);
    assert_eq!((played.drain(71), played.given_back()), (1, 70));
    assert!(played.port.want_tx(), "the client sent nothing and still wants room");
    assert_eq!(played.given_back(), 71);
}

#[test]
fn every_call_wakes_a_client_that_sleeps() {
    let attach = Attach::start(PATIENT);
    let mut played = Played::attach(&attach);
    for round in 1..=3 {
        let call = played.port.call_fd().try_clone_to_owned().expect("a descriptor");
        let (mapping, bell) = (Arc::clone(&played.mapping), played.port.layout().doorbell(0));
        let switch = std::thread::spawn(move || {
            let words = mapping.view(bell, PAIR_BYTES).and_then(|view| view.words32()).expect("a doorbell");
            let deadline = Instant::now() + PATIENCE;
            while words[RX_CLIENT + WISH].load(Ordering::Acquire) == 0 && Instant::now() < deadline {
                std::thread::yield_now();
            }
            // The first call has no frames.
            for tail in [round - 1, round] {
                words[RX_SWITCH + INDEX].store(tail, Ordering::Release);
                rustix::io::write(&call, &1u64.to_ne_bytes()).expect("called");
            }
        });
        assert!(played.port.wait_rx(PATIENCE).expect("attached"), "round {round}");
        switch.join().expect("the switch thread made its calls");
        assert_eq!(played.drain(round), 1);
    }
}

#[test]
fn a_message_after_the_dialogue_ends_the_port_once() {
    let attach = Attach::start(PATIENT);
    for message in [request("a"), vec![1], vec![0; 5000]] {
        let socket = attach.connect();
        send(&socket, &request("a"), SendFlags::NOSIGNAL).expect("sent");
        assert!(matches!(next_reply(&socket), Some(Reply::Granted { colour: 3, .. })));
        let client = attach.attached();
        send(&socket, &message, SendFlags::NOSIGNAL).expect("sent");
        assert!(refusal(&socket).contains("an attached client has nothing more to say"));
        assert_eq!(attach.event(), Event::Detach(client));
    }
    assert!(attach.events.try_recv().is_err());
}

#[test]
fn a_process_that_reads_none_of_its_ends_cannot_attach_until_it_closes_some() {
    let attach = Attach::start(PATIENT);
    let mut unread: Vec<OwnedFd> = (0..256)
        .map(|_| {
            let socket = attach.connect();
            send(&socket, &request("a"), SendFlags::NOSIGNAL).expect("sent");
            let client = attach.attached();
            send(&socket, b"more", SendFlags::NOSIGNAL).expect("sent");
            assert_eq!(attach.event(), Event::Detach(client));
            socket
        })
        .collect();
    let late = attach.connect();
    send(&late, &request("a"), SendFlags::NOSIGNAL).expect("sent");
    assert!(refusal(&late).starts_with("256 connections of this process have ended"));
    // What is closed, and what is read, counts no more.
    unread.pop();
    Port::attach(attach.path(), "lan0:b", Shape::default()).expect("one is closed");
    let read = unread.pop().expect("one");
    assert!(matches!(next_reply(&read), Some(Reply::Granted { .. })));
    assert!(refusal(&read).contains("nothing more to say"));
    Port::attach(attach.path(), "lan0:c", Shape::default()).expect("one is read");
}

#[test]
fn a_client_that_closes_in_any_state_leaves_nothing_behind() {
    let attach = Attach::start(PATIENT);
    drop(Port::attach(attach.path(), "lan0:first", Shape::default()));
    let first = attach.attached();
    assert_eq!(attach.event(), Event::Detach(first));
    let before = attach.settled(0);
    for _ in 0..100 {
        drop(attach.connect());
        let asked = attach.connect();
        send(&asked, &request("a"), SendFlags::NOSIGNAL).expect("sent");
        drop(asked);
        let half_closed = attach.connect();
        rustix::net::shutdown(&half_closed, rustix::net::Shutdown::Write).expect("half closed");
        let port = Port::attach(attach.path(), "lan0:b", Shape::default()).expect("attached");
        drop(port);
        let mut seen = Vec::new();
        while seen.iter().filter(|e| matches!(e, Event::Detach(_))).count() < 2 {
            seen.push(attach.event());
        }
        assert_eq!(seen.len(), 4, "two attaches and two detaches: {seen:?}");
    }
    // A hundred rounds would leave more than what threads open once.
    wait_for_descriptors(before + 8);
    assert!(attach.events.try_recv().is_err());
}

#[test]
fn a_silent_client_is_told_and_dropped_when_its_time_is_over() {
    let attach = Attach::start(Duration::from_millis(20));
    let silent = attach.connect();
    assert!(refusal(&silent).contains("no request came within 20ms"));
    assert!(attach.events.try_recv().is_err());
}

#[test]
fn the_client_that_waited_longest_gives_way_when_too_many_do_not_speak() {
    let attach = Attach::start(PATIENT);
    let silent: Vec<OwnedFd> = (0..64).map(|_| attach.connect()).collect();
    let port = Port::attach(attach.path(), "lan0:a", Shape::default()).expect("a place for one more client");
    attach.attached();
    assert!(refusal(&silent[0]).contains("too many clients"));
    // The other clients can still send their requests.
    for socket in &silent[1..] {
        send(socket, &request("b"), SendFlags::NOSIGNAL).expect("sent");
        assert!(matches!(next_reply(socket), Some(Reply::Granted { .. })));
        attach.attached();
    }
    assert_eq!(port.ended(), None, "the server keeps clients that have attached");
}

#[test]
fn a_client_that_is_killed_is_detached_once() {
    const PATH: &str = "RINGWAY_TEST_ATTACH";
    if let Some(path) = std::env::var_os(PATH) {
        let _port = Port::attach(path, "lan0:child", Shape::default()).expect("attached");
        println!("\nattached");
        // Sleeps until the test kills this process.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let attach = Attach::start(PATIENT);
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["a_client_that_is_killed_is_detached_once", "--exact", "--nocapture"]).env(PATH, attach.path());
    let mut child = Ended(child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child"));
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    assert!(output.lines().any(|line| line.expect("text") == "attached"));
    let client = attach.attached();
    drop(child);
    assert_eq!(attach.event(), Event::Detach(client));
    assert!(attach.events.try_recv().is_err(), "once");
}

#[test]
fn a_client_that_is_ended_hears_why_and_its_host_is_not_asked_again() {
    let attach = Attach::start(PATIENT);
    let port = Port::attach(attach.path(), "lan0:a", Shape::default()).expect("attached");
    let client = attach.attached();
    let server = attach.server.as_ref().expect("runs");
    server.disconnector().end(client, "the client broke the rules".to_owned());
    let reason = until_some("the client learns the reason", || port.ended());
    assert_eq!(reason, "the client broke the rules");
    drop(port);
    let next = Port::attach(attach.path(), "lan0:b", Shape::default()).expect("attached");
    assert!(matches!(attach.event(), Event::Attach(_, name) if name == "b"), "no detach came before the attach");
    drop(next);
}

#[test]
fn a_port_that_has_ended_and_whose_client_knows_why_keeps_no_connection_of_the_switch() {
    let attach = Attach::start(PATIENT);
    let mut port = Port::attach(attach.path(), "lan0:a", Shape::default()).expect("attached");
    let client = attach.attached();
    // The server has closed what it sent to the client.
    let before = attach.settled(1);
    let server = attach.server.as_ref().expect("runs");
    server.disconnector().end(client, "the client broke the rules".to_owned());
    let reason = until_some("the client learns the reason", || port.ended());
    // The program keeps its port.
    wait_for_descriptors(before - 1);
    // A second question has the same answer.
    assert_eq!([Some(reason), port.ended()], [(); 2].map(|()| Some("the client broke the rules".to_owned())));
    assert!(matches!(port.wait_rx(PATIENCE), Err(AttachError::Refused(why)) if why == "the client broke the rules"));
}

#[test]
fn a_server_that_ends_tells_its_clients_and_leaves_no_descriptor_and_no_file() {
    let mut attach = Attach::start(PATIENT);
    let port = Port::attach(attach.path(), "lan0:a", Shape::default()).expect("attached");
    let client = attach.attached();
    attach.server = None;
    assert_eq!(port.ended().as_deref(), Some("the switch is shutting down"));
    assert_eq!(attach.event(), Event::Detach(client));
    assert!(!attach.path().exists());
    drop(port);
    drop(attach.events);
    wait_for_descriptors(attach.before);
}

#[test]
fn descriptors_that_a_client_sends_are_not_kept() {
    let attach = Attach::start(PATIENT);
    let file = std::fs::File::open("/dev/null").expect("a file");
    let before = attach.settled(0);
    let socket = attach.connect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
    let many = [&file; 8].map(std::os::fd::AsFd::as_fd);
    assert!(ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&many)));
    let message = request("no");
    let pieces = [std::io::IoSlice::new(&message)];
    match rustix::net::sendmsg(&socket, &pieces, &mut ancillary, SendFlags::NOSIGNAL) {
        Ok(_) => {
            assert_eq!(refusal(&socket), "not this one");
            // The test's own end.
            wait_for_descriptors(before + 1);
        }
        // The kernel refuses the descriptors itself (SO_PASSRIGHTS, Linux 6.16), and the connection stays: two ends.
        Err(error) => {
            assert_eq!(error, rustix::io::Errno::PERM);
            wait_for_descriptors(before + 2);
        }
    }
}
