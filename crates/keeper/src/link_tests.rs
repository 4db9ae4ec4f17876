//! What a switch takes of what a predecessor left.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

use super::link::Link;
use super::message::{BYTES_MOST, Entry, Message, Received, receive, send};

/// A switch to which a predecessor has left these names, each with this note, and the keeper's end.
fn after(left: &[(&str, &str)]) -> (Link, OwnedFd) {
    let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let begin = Message::Begin { starts: 1, failed: 0, end: String::new() };
    let left = left.iter().map(|(name, note)| Message::Left { name: (*name).to_owned(), note: note.as_bytes().into() });
    for message in [begin].into_iter().chain(left).chain([Message::All]) {
        send(&other, &message, &[], SendFlags::empty()).unwrap();
    }
    (Link::over(own).unwrap(), other)
}

#[test]
fn of_several_under_a_name_the_preferred_one_is_taken_and_of_others_the_newest() {
    let (link, _keeper) = after(&[("x#1", "a"), ("x#3", "b"), ("x#12", "c"), ("xy#99", "d")]);
    let take = |preferred: &str| {
        let taken = link.inherit_rather("x", |note| note == preferred.as_bytes());
        taken.map(|taken| String::from_utf8(taken.note).unwrap())
    };
    assert_eq!(take("b").as_deref(), Some("b"));
    assert_eq!(take("b").as_deref(), Some("c"), "none is preferred");
    assert_eq!(take("d").as_deref(), Some("a"));
    assert_eq!(take("d"), None);
}

#[test]
fn what_stays_is_taken_later_and_is_not_let_go_again() {
    let (link, keeper) = after(&[("x#1", ""), ("y#2", ""), ("y#3", ""), ("z#4", "")]);
    assert!(link.has_left(|name| name == "y"));
    let mut gone = link.give_up(|name| name.starts_with('y'));
    gone.sort();
    assert_eq!(gone, ["x#1", "z#4"]);
    let mut bytes = vec![0; BYTES_MOST + 1];
    let mut released = || match receive(&keeper, &mut bytes, RecvFlags::DONTWAIT) {
        Ok(Received::Message { message: Message::Release { name, .. }, .. }) => Some(name),
        _ => None,
    };
    let mut told: Vec<_> = std::iter::from_fn(&mut released).collect();
    told.sort();
    assert_eq!(told, gone);
    assert_eq!(link.inherit("y").expect("it stays").name, "y#3");
    assert_eq!(link.give_up(|_| false), ["y#2"]);
    assert!(!link.has_left(|_| true) && link.give_up(|_| false).is_empty());
}

#[test]
fn of_several_names_in_one_message_those_without_all_their_files_are_let_go() {
    let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let entry = |name: &str, files| Entry { name: name.to_owned(), note: name.as_bytes().into(), files };
    let several = Message::Several(vec![entry("none#1", 0), entry("two#2", 2), entry("cut#3", 2), entry("later#4", 0)]);
    let files = [&own, &other, &own].map(AsFd::as_fd);
    for (message, files) in [
        (Message::Begin { starts: 1, failed: 0, end: String::new() }, &[][..]),
        (several, &files[..]),
        (Message::All, &[][..]),
    ] {
        send(&other, &message, files, SendFlags::empty()).unwrap();
    }
    let link = Link::over(own).unwrap();
    let files = |name: &str| link.inherit(name).map(|left| (left.note, left.files.len()));
    assert_eq!(files("two"), Some((b"two#2".to_vec(), 2)));
    assert_eq!(files("none"), Some((b"none#1".to_vec(), 0)));
    assert_eq!(files("later"), Some((b"later#4".to_vec(), 0)));
    assert_eq!(files("cut"), None);
    let mut bytes = vec![0; BYTES_MOST + 1];
    let Ok(Received::Message { message: Message::Release { name, .. }, .. }) =
        receive(&other, &mut bytes, RecvFlags::DONTWAIT)
    else {
        panic!("nothing is let go")
    };
    assert_eq!(name, "cut#3");
}
