//! Threads, processes and signal handlers that use one descriptor or one ring, and daemons that do not answer: the cases of `sharing.c`.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use ringway_abi::attach::{REPLY_BYTES, REQUEST_BYTES};
use ringway_abi::netmap::{Reply, Request, tag_of, tagged};
use ringway_scenes::{Daemon, Said};
use ringway_testing::skip;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, sendmsg, socket_with,
};

use super::{CONFIG, compiled, library};

fn command(socket: &Path, name: &str) -> Command {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let mut command = Command::new(compiled(&PROGRAM, "sharing"));
    command.arg(name).env("LD_PRELOAD", library()).env("RINGWAY_ATTACH_SOCKET", socket).env_remove("RINGWAY_FAMILY");
    command
}

fn case(socket: &Path, name: &str) {
    let said = Said::from(command(socket, name).output().unwrap());
    assert_eq!(said.code, Some(0), "case {name}: {}", said.err);
}

fn alone(name: &str) {
    let daemon = Daemon::start(CONFIG);
    case(&daemon.socket("attach.sock"), name);
}

#[test]
fn a_synchronisation_sends_what_its_thread_has_put_while_another_thread_synchronises() {
    alone("threads-sync");
}

#[test]
fn two_descriptors_of_one_ring_lose_and_repeat_no_frame() {
    alone("two-descriptors");
}

#[test]
fn two_processes_of_one_ring_lose_and_repeat_no_frame() {
    alone("two-processes");
}

#[test]
fn a_thread_that_ends_in_a_synchronisation_stops_nobody() {
    alone("dead-thread");
}

#[test]
fn processes_that_share_a_descriptor_get_their_own_answers() {
    alone("own-answers");
}

#[test]
fn an_answer_that_nobody_takes_is_no_answer_to_others_and_no_end_of_the_registration() {
    alone("left-answers");
}

#[test]
fn a_child_that_was_forked_in_its_parents_first_open_can_open() {
    alone("fork-open");
}

#[test]
fn a_child_that_was_forked_in_its_parents_registration_can_register() {
    alone("fork-register");
}

#[test]
fn the_room_for_a_mutex_in_a_ring_is_left_to_the_program() {
    alone("semaphore");
}

#[test]
fn a_signal_handler_may_close_a_descriptor_that_its_thread_waits_for() {
    alone("signal-close");
}

#[test]
fn a_call_that_a_signal_handler_leaves_by_a_jump_stops_nobody() {
    alone("left-call");
}

#[test]
fn a_socket_that_was_passed_is_no_netmap_descriptor_for_the_link_that_its_peer_leaves_at_its_path() {
    alone("disguised");
}

#[test]
fn a_descriptor_that_is_passed_is_recognised_without_memory_from_the_programs_allocator() {
    let (daemon, folder) = (Daemon::start(CONFIG), tempfile::tempdir().unwrap());
    case(&daemon.socket("attach.sock"), "passed-quietly");
    // The daemon has bound the socket by another path.
    let link = folder.path().join("link.sock");
    std::os::unix::fs::symlink(daemon.socket("attach.sock"), &link).unwrap();
    case(&link, "passed-quietly");
}

#[test]
fn threads_with_equal_numbers_in_two_pid_namespaces_take_turns() {
    if !rustix::process::geteuid().is_root() {
        skip!("needs root for PID namespaces");
    }
    alone("namespaces");
}

/// A daemon that answers as `reply` says to each request, or accepts no connection at all.
fn fake(path: &Path, reply: Option<fn(Request) -> Option<Reply>>) {
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    std::thread::spawn(move || match reply {
        Some(reply) => serve(&accept(&listener).unwrap(), reply),
        None => {
            std::thread::park();
            drop(listener);
        }
    });
}

fn serve(client: &OwnedFd, reply: fn(Request) -> Option<Reply>) {
    let mut message = [0; REQUEST_BYTES];
    while let Ok((_, REQUEST_BYTES)) = recv(client, &mut message[..], RecvFlags::empty()) {
        let Some(reply) = reply(Request::decode(&message).unwrap()) else { continue };
        let answer: [u8; REPLY_BYTES] = tagged(reply.encode(), tag_of(&message));
        let mut none = SendAncillaryBuffer::default();
        let _ = sendmsg(client, &[IoSlice::new(&answer)], &mut none, SendFlags::NOSIGNAL);
    }
}

#[test]
fn every_call_ends_in_time_whatever_the_daemon_does_and_however_many_signals_come() {
    let folder = tempfile::tempdir().unwrap();
    let silent: fn(Request) -> Option<Reply> = |request| matches!(request, Request::Open(_)).then_some(Reply::Done);
    let endless: fn(Request) -> Option<Reply> = |request| match request {
        Request::List(number) => {
            // The program asks for ten seconds: it need not use a processor meanwhile.
            std::thread::sleep(Duration::from_millis(1));
            let name = format!("lan9:p{number}").parse().unwrap();
            Some(Reply::Listed { name, switch_index: 0, port_index: number })
        }
        _ => Some(Reply::Done),
    };
    let mut programs = Vec::new();
    for (name, reply) in [
        ("late-open", None),
        ("late-answer", Some(silent)),
        ("handler-asks", Some(silent)),
        ("late-recall", Some(silent)),
        ("late-list", Some(endless)),
    ] {
        let socket = folder.path().join(name);
        fake(&socket, reply);
        let output = move || Said::from(command(&socket, name).output().unwrap());
        programs.push((name, std::thread::spawn(output)));
    }
    for (name, program) in programs {
        let said = program.join().unwrap();
        assert_eq!(said.code, Some(0), "case {name}: {}", said.err);
    }
}
