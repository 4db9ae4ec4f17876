//! The switch's side, with the test in the closer's place.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::front_end::listener::Listener;
use crate::front_end::testing::new_eventfd;
use crate::front_end::{Files, SocketAccess};

/// A keeper whose closer is the test, at the other end of the socket.
fn with_closer() -> (Keeper, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    (Keeper::new(Arc::new(near)), far)
}

#[test]
fn what_a_new_closer_was_not_given_is_missing_and_closed_by_a_thread() {
    let (mut keeper, far) = with_closer();
    let files = [(); 3].map(|()| new_eventfd());
    for (id, file) in (1..).zip(&files) {
        keeper.held.insert(id, Held { file: file.as_raw_fd(), owner: None, copy: Answer::There, outlives: false });
    }
    keeper.give_copies();
    assert!(keeper.held.values().all(|held| held.copy == Answer::Asked) && keeper.missing.is_empty());
    drop(far);
    keeper.give_copies();
    assert!(keeper.held.values().all(|held| held.copy == Answer::Missing));
    assert_eq!(keeper.missing.len(), 3, "threads close them last");
    let (next, _far) = with_closer();
    keeper.socket = next.socket;
    keeper.give_copies();
    assert!(keeper.held.values().all(|held| held.copy == Answer::Asked) && keeper.missing.is_empty());
}

#[test]
fn files_that_only_a_replaced_closer_had_are_given_to_the_next_one() {
    let (keeper, far) = with_closer();
    hear(&Mutex::new(keeper), 0, Message::Taken { first: u64::MAX, files: 1 }, vec![new_eventfd()]);
    let (message, files) = receive(&far).expect("a message");
    let Message::Hold { id, .. } = message else { panic!("{message:?}") };
    assert_eq!(files.len(), 1);
    assert_eq!(receive(&far).map(|(message, _)| message), Some(Message::Close { id }));
}

#[test]
fn late_answers_of_a_replaced_closer_say_nothing_of_its_successor() {
    let (mut keeper, far) = with_closer();
    let (file, id) = (new_eventfd(), 1);
    keeper.held.insert(id, Held { file: file.as_raw_fd(), owner: None, copy: Answer::Asked, outlives: false });
    keeper.unclosed.insert(id, Unclosed { owner: None, since: Instant::now(), begun: None });
    keeper.takes.insert(id, (None, Box::new(|_| panic!("the present closer has not answered"))));
    // As another one is started.
    keeper.generation = 1;
    let keeper = Mutex::new(keeper);
    let late = [
        Message::Held { id, files: 1 },
        Message::NotHeld { id },
        Message::Closing { id },
        Message::Closed { id },
        Message::NotTaken { first: id },
        Message::Taken { first: id, files: 0 },
    ];
    for message in late {
        hear(&keeper, 0, message, Vec::new());
        let keeper = keeper.lock();
        assert_eq!(keeper.held[&id].copy, Answer::Asked, "{message:?}");
        assert!(keeper.unclosed[&id].begun.is_none() && keeper.takes.contains_key(&id), "{message:?}");
    }
    // Only the old one had these files.
    hear(&keeper, 0, Message::Taken { first: id, files: 1 }, vec![new_eventfd()]);
    assert!(matches!(receive(&far), Some((Message::Hold { .. }, files)) if files.len() == 1));
    hear(&keeper, 1, Message::Held { id, files: 1 }, Vec::new());
    assert_eq!(keeper.lock().held[&id].copy, Answer::There);
}

#[test]
fn a_file_that_is_offered_waits_for_no_closer() {
    let (mut keeper, _far) = with_closer();
    let file = new_eventfd();
    // The closer reads nothing.
    while keeper.ask_once(file.as_fd(), None, false).is_ok() {}
    assert_eq!(keeper.ask_once(file.as_fd(), None, false), Err(Errno::AGAIN));
    assert_eq!(keeper.generation, 0, "the same closer");
}

#[test]
fn a_socket_is_bound_while_another_thread_has_the_keeper() {
    let dir = tempfile::tempdir().expect("a directory");
    let keeper = super::keeper().lock();
    let listener = Listener::bind(&dir.path().join("s"), Files::Taken, &SocketAccess::default()).expect("a socket");
    drop(listener);
    drop(keeper);
}
