//! Last closes that do not end while a client likes it hold up neither ports nor the end of the daemon.

mod watcher;

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use ringway_abi::attach::{MEMORY, REPLY_BYTES, Reply, Request};
use ringway_abi::{External, Shape};
use ringway_scenes::{Daemon, until, until_some};
use ringway_testing::child::{children, is_running, signal};
use ringway_testing::skip;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recv, send, sendmsg, socket_with,
};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use watcher::{Watcher, Writer};

const CONFIG: &str = "[switch.lan0]\n[port.vm]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n[port.nic]\nswitch = \"lan0\"\nkind = \"e1000\"\n";

fn closer(daemon: &Daemon) -> u32 {
    let first = || children(daemon.pid(), "ringway-closer").first().copied();
    until_some("there is a closer", || first().or_else(|| other_closer(daemon)))
}

/// Another closer than the first, which the opener has started.
fn other_closer(daemon: &Daemon) -> Option<u32> {
    let openers = children(daemon.keeper(), "ringway-opener");
    openers.into_iter().find_map(|opener| children(opener, "ringway-closer").first().copied())
}

/// Starts a daemon that has served a port of each kind already.
fn start() -> Daemon {
    let daemon = Daemon::start(CONFIG);
    drop(daemon.attach("lan0:first").expect("a port"));
    drop(front_end(&daemon));
    until("the first port has gone", || daemon.port("first").is_null());
    daemon.until_state("vm", "waiting");
    daemon
}

/// What a daemon has of its clients: descriptors, and mappings of memory files.
fn belongings(daemon: &Daemon) -> (usize, usize) {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).expect("its mappings");
    let files = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("its descriptors").count();
    (files, maps.lines().filter(|line| line.contains("memfd:")).count())
}

/// Sends a message of vhost-user with a number and a file.
fn say(front: &UnixStream, request: u32, number: u64, file: Option<&OwnedFd>) {
    let size = if request == 1 { 0 } else { 8 };
    let mut bytes = [request, 1, size].map(u32::to_ne_bytes).concat();
    bytes.extend(&number.to_ne_bytes()[..size as usize]);
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(files.is_empty() || beside.push(SendAncillaryMessage::ScmRights(&files)));
    assert_eq!(sendmsg(front, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL), Ok(bytes.len()));
}

/// Connects to the port `vm`, and waits until it is served.
fn front_end(daemon: &Daemon) -> UnixStream {
    let front = UnixStream::connect(daemon.socket("vm.sock")).expect("a listener");
    served(&front);
    front
}

/// Waits until all messages before are handled.
fn served(mut front: &UnixStream) {
    say(front, 1, 0, None);
    front.read_exact(&mut [0; 20]).expect("an answer");
}

fn new_eventfd() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

/// Has a process port and a hypervisor give the switch descriptors whose last close does not end, and leave.
fn leave_unclosable(daemon: &Daemon) -> Option<Watcher> {
    let port = daemon.attach("lan0:evil").expect("a port");
    let front = front_end(daemon);
    let (call, error) = (new_eventfd(), new_eventfd());
    say(&front, 13, 0, Some(&call));
    say(&front, 14, 1, Some(&error));
    served(&front);
    let watcher = Watcher::new(&[port.kick_fd(), port.call_fd(), call.as_fd(), error.as_fd()])?;
    // The descriptors first: the switch has the last ones when the connections end.
    let connection = port.connection_fd().try_clone_to_owned().expect("a descriptor");
    drop((port, call, error));
    drop((connection, front));
    until("the port has gone", || daemon.port("evil").is_null());
    daemon.until_state("vm", "waiting");
    Some(watcher)
}

/// Checks that ports come and go, with all that belongs to them.
fn others_go_on(daemon: &Daemon, before: (usize, usize)) {
    for round in 0..3 {
        let ports: Vec<_> = (0..4).map(|n| daemon.attach(&format!("lan0:good{n}")).expect("a port")).collect();
        drop(ports);
        drop(front_end(daemon));
        until(&format!("what belonged to the ports of round {round} is released"), || {
            let (files, maps) = belongings(daemon);
            files <= before.0 && maps <= before.1
        });
    }
}

#[test]
fn descriptors_that_a_client_keeps_from_being_closed_hold_up_neither_ports_nor_the_end() {
    let mut daemon = start();
    let (before, closer) = (belongings(&daemon), closer(&daemon));
    let Some(watcher) = leave_unclosable(&daemon) else { skip!("needs userfaultfd") };
    others_go_on(&daemon, before);
    assert!(daemon.stop().success());
    let daemon = start();
    others_go_on(&daemon, belongings(&daemon));
    assert!(is_running(closer), "the closer waits for the client");
    drop(watcher);
    until("the closer has ended", || !is_running(closer));
}

#[test]
fn a_daemon_that_is_killed_with_a_message_of_a_client_unread_ends() {
    let daemon = Daemon::start(CONFIG);
    let front = front_end(&daemon);
    let file = new_eventfd();
    let Some(_watcher) = Watcher::new(&[file.as_fd()]) else { skip!("needs userfaultfd") };
    daemon.pause();
    say(&front, 13, 0, Some(&file));
    drop((file, front));
    let mut daemon = daemon;
    daemon.replace();
    let _front = front_end(&daemon);
    assert!(daemon.stop().success());
}

#[test]
fn another_closer_takes_the_place_of_one_that_is_killed() {
    let mut daemon = start();
    let (before, first) = (belongings(&daemon), closer(&daemon));
    let front = front_end(&daemon);
    let call = new_eventfd();
    say(&front, 13, 0, Some(&call));
    served(&front);
    let Some(watcher) = Watcher::new(&[call.as_fd()]) else { skip!("needs userfaultfd") };
    signal(first, Signal::KILL);
    until("there is another one", || other_closer(&daemon).is_some());
    // Whatever the old one had, the new one has: this close waits in the new one.
    daemon.complains("the closer has ended");
    served(&front);
    drop((call, front));
    daemon.until_state("vm", "waiting");
    // The new one is known by a descriptor.
    others_go_on(&daemon, (before.0 + 1, before.1));
    assert!(daemon.stop().success());
    drop(watcher);
}

#[test]
fn the_end_of_a_closer_is_reported_also_if_the_switch_notices_it_when_it_closes_a_file() {
    let mut daemon = start();
    for _ in 0..5 {
        let front = front_end(&daemon);
        let first = closer(&daemon);
        // The thread that serves this front end, and the one that listens to the closer, go on at the same time.
        daemon.pause();
        signal(first, Signal::KILL);
        drop(front);
        daemon.signal(Signal::CONT);
        daemon.complains("the closer has ended");
        daemon.until_state("vm", "waiting");
    }
    assert!(daemon.stop().success());
}

/// Lets the closer have no further descriptors.
fn starve(closer: u32) {
    let limit = Rlimit { current: Some(0), maximum: Some(0) };
    prlimit(Pid::from_raw(closer as i32), Resource::Nofile, limit).expect("our own process's child");
}

#[test]
fn no_client_gets_a_descriptor_that_the_closer_does_not_have() {
    let mut daemon = start();
    let closer = closer(&daemon);
    starve(closer);
    for _ in 0..3 {
        let error = daemon.attach("lan0:one").expect_err("the closer has no copies").to_string();
        assert!(error.contains("the switch has no closer for the descriptors of another port"), "{error}");
    }
    signal(closer, Signal::KILL);
    daemon.complains("the closer has ended");
    let _port = daemon.attach("lan0:one").expect("another closer has copies");
    assert!(daemon.stop().success());
}

/// A client whose memory the switch cannot map until the writer lets go.
fn bring_unmappable(daemon: &Daemon, name: &str) -> Option<(Writer, OwnedFd)> {
    const BYTES: u64 = 4 << 20;
    let memory = memfd_create("memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
    ftruncate(&memory, BYTES).expect("a size");
    fcntl_add_seals(&memory, SealFlags::SHRINK).expect("sealed");
    let external = Some(External { bytes: BYTES, unit: 64, first: 2 });
    let request = Request { switch: "lan0".into(), port: name.into(), shape: Shape::default(), external }.encode();
    let client = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
    connect(&client, &SocketAddrUnix::new(daemon.socket("attach.sock")).expect("short")).expect("the switch listens");
    send(&client, &request, SendFlags::NOSIGNAL).expect("sent");
    let mut answer = [0; REPLY_BYTES];
    let (_, len) = recv(&client, &mut answer[..], RecvFlags::empty()).expect("an answer");
    let answer = Reply::decode(&answer[..len]);
    assert!(matches!(answer, Ok(Reply::SendMemory)), "{answer:?}");
    let writer = Writer::new(memory.try_clone().expect("a descriptor"))?;
    let (mut space, files) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [memory.as_fd()]);
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(beside.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(&client, &[IoSlice::new(&MEMORY)], &mut beside, SendFlags::NOSIGNAL).expect("sent");
    Some((writer, client))
}

/// The number of threads of this name of a process that are kept in the kernel.
fn kept_threads(process: u32, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let read = |path: &Path, what| std::fs::read_to_string(path.join(what)).unwrap_or_default();
    let is_kept = |path: &Path| read(path, "comm").trim() == name && read(path, "stat").contains(") D ");
    tasks.filter(|task| task.as_ref().is_ok_and(|task| is_kept(&task.path()))).count()
}

/// Prints how long others take to attach meanwhile (`docs/decisions/waits.md`).
#[test]
fn others_attach_while_a_clients_memory_cannot_be_mapped() {
    let mut daemon = start();
    let mut stuck = Vec::new();
    for number in 0..4 {
        let Some(client) = bring_unmappable(&daemon, &format!("evil{number}")) else { skip!("needs userfaultfd") };
        stuck.push(client);
    }
    until("two threads wait for one process's memory", || kept_threads(daemon.pid(), "closing") == 2);
    let attach = |number| {
        let begun = Instant::now();
        let port = daemon.attach(&format!("lan0:good{number}")).expect("another port");
        (begun.elapsed(), port).0
    };
    let mut took: Vec<_> = (0..20).map(attach).collect();
    took.sort_unstable();
    eprintln!("20 attaches: median {:?}, longest {:?}", took[10], took[19]);
    assert_eq!(kept_threads(daemon.pid(), "closing"), 2, "they wait still");
    drop(stuck);
    assert!(daemon.stop().success());
}

#[test]
fn no_change_waits_for_a_closer_that_does_not_answer() {
    let daemon = start();
    let stopped = closer(&daemon);
    signal(stopped, Signal::STOP);
    for kind in ["vhost-user", "e1000"] {
        daemon.ok(&["port", "add", &format!("new-{kind}"), "switch=lan0", &format!("kind={kind}")]);
    }
    // One that was waited for in vain would have been replaced.
    assert_eq!(children(daemon.pid(), "ringway-closer"), [stopped]);
    signal(stopped, Signal::CONT);
    drop(front_end(&daemon));
}
