//! A receiver that leaves messages in the socket until they are consumed.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::closer::new_owner;
use super::connection::Connection;
use super::end::End;
use super::files::is_peeked;
use super::receiver::{Attached, Framing, Received, Receiver};
use super::testing::{new_eventfd, send_files};

/// Messages with a header of two bytes, the second of which is the length of the body.
struct Short;

impl Framing for Short {
    type Header = u8;
    type Error = std::fmt::Error;
    const HEADER_BYTES: usize = 2;
    const MOST_BODY_BYTES: usize = 200;
    const MOST_FDS: usize = 4;

    fn decode(header: &[u8]) -> Result<(u8, usize), std::fmt::Error> {
        Ok((header[0], header[1].into()))
    }

    fn attached(header: u8, _: &[u8]) -> Attached {
        match header {
            9 => Attached::Nothing,
            6 => Attached::Ignored,
            _ => Attached::Files,
        }
    }
}

fn pair() -> (Connection, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    let near = Connection::from(near);
    near.accept_files(new_owner()).expect("a copy");
    (near, far)
}

fn receive(receiver: &mut Receiver<Short>, socket: &Connection) -> Option<(u8, Vec<u8>, usize)> {
    match receiver.receive(socket).expect("a message") {
        Received::Message(header) => {
            let (body, files) = receiver.take();
            Some((header, body.to_owned(), files.len()))
        }
        Received::Nothing => None,
        Received::Gone => panic!("the peer is there"),
    }
}

#[test]
fn a_message_and_its_files_are_there_until_they_are_consumed() {
    // The pieces that the first message is sent in, and the files with each.
    for pieces in [
        &[(5, 2)][..],
        &[(5, 0)],
        &[(1, 0), (4, 0)],
        &[(2, 2), (3, 0)],
        &[(2, 0), (3, 2)],
        &[(1, 2), (1, 0), (2, 0), (1, 0)],
    ] {
        let (near, far) = pair();
        let files = pieces.iter().map(|(_, files)| files).sum();
        let (kind, mut at) = (if files > 0 { 7 } else { 9 }, 0);
        let first = [kind, 3, 1, 2, 3];
        for &(bytes, files) in pieces {
            let sent = (0..files).map(|_| new_eventfd()).collect();
            assert_eq!(send_files(&far, &first[at..at + bytes], sent), Ok(bytes));
            at += bytes;
        }
        send_files(&far, &[8, 1, 9], vec![new_eventfd()]).expect("room");
        // Each of them finds what the one before it has not consumed.
        for _ in 0..3 {
            let mut receiver = Receiver::<Short>::peeking();
            assert_eq!(receive(&mut receiver, &near), Some((kind, vec![1, 2, 3], files)), "{pieces:?}");
            assert!(is_peeked(&*near));
        }
        let mut receiver = Receiver::<Short>::peeking();
        assert_eq!(receive(&mut receiver, &near), Some((kind, vec![1, 2, 3], files)), "{pieces:?}");
        receiver.consume(&near).expect("consumed");
        assert!(!is_peeked(&*near), "{pieces:?}");
        assert_eq!(receive(&mut receiver, &near), Some((8, vec![9], 1)), "{pieces:?}");
        receiver.consume(&near).expect("consumed");
        assert_eq!(receive(&mut receiver, &near), None);
    }
}

#[test]
fn files_belong_to_the_message_that_they_come_with() {
    for (first, with_first, is_right) in [(9, 1, false), (7, 0, false), (7, 1, true), (6, 0, true), (6, 1, true)] {
        let (near, far) = pair();
        let files = |count: usize| (0..count).map(|_| new_eventfd()).collect();
        send_files(&far, &[first, 1, 1], files(with_first)).expect("room");
        send_files(&far, &[8, 1, 2], files(2)).expect("room");
        let mut receiver = Receiver::<Short>::peeking();
        assert!(receive(&mut receiver, &near).is_some());
        let consumed = receiver.consume(&near);
        if is_right {
            assert_eq!(consumed, Ok(()));
            assert_eq!(receive(&mut receiver, &near), Some((8, vec![2], 2)));
        } else {
            assert!(matches!(consumed, Err(End::Fault("bad_message", _))), "{first}");
        }
    }
}

#[test]
fn a_message_that_comes_slowly_is_received_once() {
    let (near, far) = pair();
    let mut receiver = Receiver::<Short>::peeking();
    for number in 10..13 {
        for byte in [number, 4, 1, 2, 3] {
            assert_eq!(receive(&mut receiver, &near), None);
            assert_eq!(send_files(&far, &[byte], if byte == 2 { vec![new_eventfd()] } else { Vec::new() }), Ok(1));
            assert!(receiver.receive(&near).is_ok_and(|received| received == Received::Nothing) && receiver.waits());
        }
        assert_eq!(send_files(&far, &[4], Vec::new()), Ok(1));
        assert_eq!(receive(&mut receiver, &near), Some((number, vec![1, 2, 3, 4], 1)));
        receiver.consume(&near).expect("consumed");
        assert!(!receiver.waits());
    }
    drop(far);
    assert_eq!(receiver.receive(&near).expect("no message"), Received::Gone);
}
