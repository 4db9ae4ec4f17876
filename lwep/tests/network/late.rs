//! Devices that read late or have no room.

use std::time::Duration;

use ringway_lwep::{Connection, Endpoint, Event, Nanos, Options};

use crate::device::{Device, devices};
use crate::scene::{MICROSECOND, SECOND, wrapping};

/// Two endpoints with a connection.
struct Two {
    left: Endpoint<Device>,
    right: Endpoint<Device>,
    connection: Connection,
    accepted: Connection,
    now: Nanos,
}

fn poll(endpoint: &mut Endpoint<Device>, now: Nanos) -> usize {
    let mut heard = 0;
    while let Some(event) = endpoint.poll(now) {
        assert!(!matches!(event, Event::Ended { .. }), "{event:?}");
        heard += usize::from(matches!(event, Event::Message { .. }));
    }
    endpoint.audit().expect("in order");
    heard
}

impl Two {
    fn new(buffers: u32) -> Self {
        let options = Options { random: wrapping, ..Options::default() };
        let (left, right) = devices(buffers, 64);
        let (mut left, mut right) = (Endpoint::new(left, options.clone()), Endpoint::new(right, options));
        let identifier = 1 << 63 | 77;
        let (mac, other) = (left.mac(), right.mac());
        let connection = left.agree(other, identifier, SECOND).unwrap();
        let accepted = right.agree(mac, identifier, SECOND).unwrap();
        Self { left, right, connection, accepted, now: SECOND }
    }

    /// Returns what the right end has heard.
    fn step(&mut self, passes: Nanos) -> usize {
        self.now += passes;
        poll(&mut self.left, self.now);
        self.left.link().tx.borrow_mut().carry();
        let heard = poll(&mut self.right, self.now);
        self.right.link().tx.borrow_mut().carry();
        heard
    }

    fn queued(&mut self) -> usize {
        self.left.status(self.connection).expect("a connection").queued
    }
}

#[test]
fn an_acknowledgement_for_which_there_was_no_room_is_sent_as_soon_as_there_is() {
    let mut two = Two::new(64);
    two.right.link().tx.borrow_mut().room = 0;
    two.left.send(two.connection, b"one", two.now).unwrap();
    assert_eq!(two.step(10 * MICROSECOND), 1);
    two.step(60 * MICROSECOND);
    two.right.sleep(two.now, Duration::from_secs(1)).unwrap();
    assert!(two.right.link().waited_for_room, "there is an acknowledgement to send");
    two.right.link().tx.borrow_mut().room = 64;
    two.step(10 * MICROSECOND);
    two.step(10 * MICROSECOND);
    assert_eq!((two.queued(), two.left.counters().repeated), (0, 0));
}

#[test]
fn a_device_that_reads_late_reads_what_was_sent() {
    let mut two = Two::new(64);
    two.left.send(two.connection, b"one", two.now).unwrap();
    // Timeouts while the device has not even read the first frame, when a repetition would tell something else.
    let accepted = two.accepted;
    two.right.send(accepted, b"back", two.now).unwrap();
    two.right.link().tx.borrow_mut().carry();
    for _ in 0..2_000 {
        two.now += 1_000 * MICROSECOND;
        poll(&mut two.left, two.now);
    }
    assert_eq!(two.step(MICROSECOND), 1);
    two.step(60 * MICROSECOND);
    two.step(MICROSECOND);
    assert_eq!(two.queued(), 0);
    // The timeout still works for what the device has read.
    two.left.send(two.connection, b"two", two.now).unwrap();
    two.left.link().tx.borrow_mut().carry();
    two.left.link().tx.borrow_mut().lose(1);
    let mut heard = 0;
    (0..2_000).for_each(|_| heard += two.step(1_000 * MICROSECOND));
    assert_eq!((heard, two.queued()), (1, 0));
}

#[test]
fn a_few_buffers_are_enough_for_ever() {
    let mut two = Two::new(16);
    let (mut heard, mut sent) = (0, 0);
    for _ in 0..10_000 {
        while sent < 5_000 && two.left.send(two.connection, b"one of many", two.now).is_ok() {
            sent += 1;
        }
        heard += two.step(10 * MICROSECOND);
    }
    assert_eq!((heard, sent, two.left.counters().timeouts), (5_000, 5_000, 0));
}

#[test]
fn a_program_without_buffers_hears_of_those_that_the_device_reads() {
    let mut two = Two::new(20);
    let accepted = two.accepted;
    for _ in 0..8 {
        two.right.send(accepted, b"one", two.now).unwrap();
        two.right.link().tx.borrow_mut().carry();
        // An acknowledgement, which the device does not read.
        (0..2).for_each(|_| {
            two.now += 60 * MICROSECOND;
            poll(&mut two.left, two.now);
        });
    }
    let taken: Vec<_> = std::iter::from_fn(|| two.left.reserve()).collect();
    assert_eq!(taken.len(), 20 - 8 - 1);
    assert!(two.left.send(two.connection, b"no buffer", two.now).is_err());
    assert!(two.left.poll(two.now).is_none());
    assert!(two.left.prepare_sleep(two.now));
    let soon = two.now + 1_000 * MICROSECOND;
    assert!(two.left.next_deadline().is_some_and(|at| at <= soon), "the device will read some and not tell");
    two.left.link().tx.borrow_mut().carry();
    let event = two.left.poll(two.now);
    assert!(matches!(event, Some(Event::Room { .. })), "{event:?}");
    two.left.send(two.connection, b"now", two.now).unwrap();
    taken.into_iter().for_each(|outgoing| two.left.discard(outgoing));
}

#[test]
fn a_program_that_sleeps_hears_that_its_link_has_ended() {
    let mut two = Two::new(64);
    // It was found when something was sent, say: there is no sleep at such a link.
    two.left.link().has_ended = true;
    assert!(two.left.sleep(two.now, Duration::from_secs(1)).is_err());
}

#[test]
fn a_sleep_asks_the_device_once() {
    let mut two = Two::new(64);
    two.left.link().asked = 0;
    two.left.sleep(two.now, Duration::from_secs(1)).unwrap();
    assert_eq!(two.left.link().asked, 0, "the link's own sleep asks");
}

#[test]
fn messages_of_a_buffer_that_find_no_buffer_to_travel_in_go_out_when_the_device_has_read_some() {
    let mut two = Two::new(64);
    two.left.link().tx.borrow_mut().room = 1_000;
    // The peer has no address for segmentation: each message travels alone, in a copy that is free when the device has read it.
    let mut outgoing = two.left.reserve_many().unwrap();
    let len = outgoing.len() / 100 * 100;
    outgoing[..len].fill(7);
    for _ in 0..8 {
        let more = two.left.reserve_many().unwrap();
        two.left.commit_many(two.connection, more, len, 100, two.now).unwrap();
    }
    two.left.commit_many(two.connection, outgoing, len, 100, two.now).unwrap();
    let all = 9 * len / 100;
    two.left.link().tx.borrow_mut().room = 64;
    let mut heard = 0;
    for _ in 0..2_000 {
        assert!(two.left.audit().unwrap().free > 0);
        heard += two.step(10 * MICROSECOND);
    }
    assert_eq!((heard, two.queued(), two.left.counters().timeouts), (all, 0, 0));
    two.left.audit().unwrap();
}
