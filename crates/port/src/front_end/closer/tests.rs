//! The closer as a thread.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;

use ringway_testing::until;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::keeper::check_unclosed;
use super::{ClientFd, Owners, new_owner, take_files};
use crate::front_end::connection::Connection;
use crate::front_end::files::peek_bytes;
use crate::front_end::testing::{lingering, memfd, new_eventfd, send_files};

fn pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&read, true).expect("non-blocking");
    (read, write)
}

fn is_closed(read: &OwnedFd) -> bool {
    rustix::io::read(read, &mut [0; 1]) == Ok(0)
}

fn name(file: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("a name").display().to_string()
}

#[test]
fn a_file_is_closed_after_its_last_owner_and_never_waited_for() {
    let owner = new_owner();
    let (read, write) = pipe();
    let file = ClientFd::from(write);
    file.hold(owner).expect("a copy");
    file.hold(owner).expect("the same copy");
    assert!(!is_closed(&read));
    drop(file);
    until("the closer closes it", || is_closed(&read));

    let (files, peers): (Vec<_>, Vec<_>) = (0..16).map(|_| lingering()).unzip();
    for file in files {
        let file = ClientFd::from(file);
        file.hold(owner).expect("a copy");
        // Not waited for: the peers are there until the test has come further.
        drop(file);
    }
    until("the closes wait for their peers", || check_unclosed(owner).is_err());
    assert_eq!(check_unclosed(new_owner()), Ok(()), "others are not refused");
    let (read, write) = pipe();
    let other = ClientFd::from(write);
    other.hold(new_owner()).expect("a copy");
    drop(other);
    until("another client's file is closed", || is_closed(&read));
    drop(peers);
    until("all are closed", || check_unclosed(owner).is_ok());
}

#[test]
fn a_port_accepts_no_connection_while_closes_of_sixteen_earlier_ones_wait() {
    let (mut owners, mut peers) = (Owners::default(), Vec::new());
    for _ in 0..16 {
        assert_eq!(owners.check(), Ok(()));
        let (file, peer) = lingering();
        let file = ClientFd::from(file);
        let owner = new_owner();
        owners.note(owner);
        file.hold(owner).expect("a copy");
        drop(file);
        peers.push(peer);
    }
    until("the closes wait for their peers", || owners.check().is_err());
    drop(peers);
    until("all are closed", || owners.check().is_ok());
}

#[test]
fn only_eventfds_and_files_in_memory_are_passed_on() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    let (read, write) = pipe();
    let near = Connection::from(near);
    near.accept_files(NonZeroU32::new(7)).expect("a copy of the connection");
    assert_eq!(send_files(&far, b"one", vec![new_eventfd(), write, memfd(4096)]), Ok(3));
    assert_eq!(send_files(&far, b"two", Vec::new()), Ok(3));
    let mut bytes = [0; 16];
    assert_eq!(peek_bytes(&near, &mut bytes), Ok((3, true)), "the kernel ends a message with files");
    let files = near.take(3).expect("files");
    let names: Vec<_> = files.iter().map(|file| name(file)).collect();
    assert_eq!((names[0].as_str(), names[1].as_str()), ("anon_inode:[eventfd]", "/dev/null"), "{names:?}");
    assert!(names[2].starts_with("/memfd:"), "{names:?}");
    assert!(!is_closed(&read), "the closer keeps the pipe");
    drop(files);
    until("the closer closes the pipe", || is_closed(&read));
    assert_eq!(peek_bytes(&near, &mut bytes), Ok((3, false)), "the next message");
    assert_eq!(&bytes[..3], b"two");
}

#[test]
fn what_a_connection_holds_is_closed_with_it_and_its_peer_reads_the_end() {
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("sockets");
    let (read, write) = pipe();
    let near = Connection::from(near);
    near.accept_files(new_owner()).expect("a copy of the connection");
    assert_eq!(send_files(&far, b"unread", vec![write]), Ok(6));
    drop(near);
    let mut bytes = [0; 16];
    assert_eq!(rustix::io::read(&far, &mut bytes), Ok(0), "no reset");
    until("the closer closes the file", || is_closed(&read));
}

#[test]
fn files_of_a_connection_that_the_closer_does_not_have_are_not_received() {
    let (near, _far) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("sockets");
    let (say, hear) = channel();
    take_files(&near.into(), 1, move |files| say.send(files.is_none()).expect("the test waits"));
    assert_eq!(hear.recv(), Ok(true));
}
