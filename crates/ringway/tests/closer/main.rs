//! Last closes that do not end while a client likes it hold up neither ports nor the end of the daemon.

mod watcher;

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use ringway_scenes::{Daemon, until, until_some};
use ringway_testing::skip;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};

use watcher::Watcher;

const CONFIG: &str = "[switch.lan0]\n[port.vm]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n[port.nic]\nswitch = \"lan0\"\nkind = \"e1000\"\n";

/// Returns the processes of this name whose parent is `parent`.
fn children(parent: u32, name: &str) -> Vec<i32> {
    let is_child = |process: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.split_once(") ").is_some_and(|(before, rest)| {
            let mut rest = rest.split(' ');
            before.ends_with(name) && rest.next() != Some("Z") && rest.next() == Some(&parent.to_string())
        })
    };
    let processes = std::fs::read_dir("/proc")
        .expect("processes")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(is_child).collect()
}

fn closer(daemon: &Daemon) -> i32 {
    until_some("there is a closer", || children(daemon.pid(), "ringway-closer").first().copied())
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

fn is_running(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z') && !rest.is_empty())
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
    kill_process(Pid::from_raw(first).expect("a process"), Signal::KILL).expect("our own process's child");
    until("there is another one", || children(daemon.pid(), "ringway-closer").iter().any(|process| *process != first));
    // Whatever the old one had, the new one has: this close waits in the new one.
    daemon.complains("the closer has ended");
    served(&front);
    drop((call, front));
    daemon.until_state("vm", "waiting");
    others_go_on(&daemon, before);
    assert!(daemon.stop().success());
    drop(watcher);
}
