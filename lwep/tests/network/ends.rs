//! How connections begin and end.

use ringway_link::memory::MemoryOptions;
use ringway_lwep::{Event, Options, Reason, SendError};

use crate::scene::{MICROSECOND, SECOND, Scene, Weather, messages, wrapping};

fn options() -> Options {
    Options { random: wrapping, ..Options::default() }
}

#[test]
fn both_ends_know_what_has_arrived_when_a_connection_is_closed() {
    for lost in [0, 20] {
        let mut scene = Scene::new(Weather { lost, ..Weather::default() }, 5, &options());
        let connection = scene.connect();
        scene.send_all(connection, &messages(100, 50, 1));
        scene.client.endpoint.close(connection, scene.now).unwrap();
        assert_eq!(scene.client.endpoint.send(connection, b"late", scene.now), Err(SendError::Over));
        scene.until("the server hears of it", |scene| scene.server.finished.len() == 1);
        // The other direction is still open.
        let accepted = scene.server.connections[0];
        scene.server.endpoint.send(accepted, b"goodbye", scene.now).unwrap();
        scene.server.endpoint.close(accepted, scene.now).unwrap();
        scene.until("both are over", |scene| scene.client.ended.len() == 1 && scene.server.ended.len() == 1);
        assert_eq!(scene.client.heard, [b"goodbye"]);
        // The END is a message, too.
        assert_eq!(scene.client.ended, [(connection, Reason::Closed, 101, 2)]);
        assert_eq!(scene.server.ended, [(accepted, Reason::Closed, 2, 101)]);
        scene.until("nothing of them is left", |scene| {
            scene.client.endpoint.connections() + scene.server.endpoint.connections() == 0
        });
    }
}

#[test]
fn an_aborted_connection_ends_at_both_ends_at_once() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let connection = scene.connect();
    scene.send_all(connection, &messages(10, 50, 1));
    scene.until("acknowledged", |scene| scene.client.endpoint.status(connection).is_some_and(|s| s.queued == 0));
    scene.client.endpoint.abort(connection, scene.now);
    scene.step(MICROSECOND);
    scene.step(MICROSECOND);
    assert_eq!(scene.client.ended, [(connection, Reason::Aborted, 10, 0)]);
    assert_eq!(scene.server.ended, [(scene.server.connections[0], Reason::Reset, 0, 10)]);
    assert_eq!(scene.client.endpoint.send(connection, b"late", scene.now), Err(SendError::Over));
}

#[test]
fn a_service_for_which_nobody_listens_is_refused() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let mac = scene.server.endpoint.mac();
    let connection = scene.client.endpoint.connect(mac, 8, scene.now).unwrap();
    scene.until("refused", |scene| !scene.client.ended.is_empty());
    assert_eq!(scene.client.ended, [(connection, Reason::NobodyListens, 0, 0)]);
}

#[test]
fn a_peer_that_is_not_there_is_given_up() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let connection = scene.client.endpoint.connect([2, 0, 0, 0, 0, 9], 7, scene.now).unwrap();
    let began = scene.now;
    scene.until("given up", |scene| !scene.client.ended.is_empty());
    assert_eq!(scene.client.ended, [(connection, Reason::NoAnswer, 0, 0)]);
    assert!((5 * SECOND..6 * SECOND).contains(&(scene.now - began)));
}

#[test]
fn a_peer_that_was_started_again_ends_the_connection_and_gets_nothing_of_it() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let connection = scene.connect();
    scene.send_all(connection, &messages(10, 50, 1));
    let again = Scene::new(Weather::default(), 1, &options());
    // The new program is at the old link's place: its endpoint knows no connection.
    let accepted = scene.server.connections[0];
    scene.is_cut.set(true);
    scene.server.endpoint.abort(accepted, scene.now);
    scene.step(MICROSECOND);
    scene.is_cut.set(false);
    drop(again);
    scene.client.endpoint.send(connection, b"are you there?", scene.now).unwrap();
    scene.until("told", |scene| !scene.client.ended.is_empty());
    assert_eq!(scene.client.ended[0].1, Reason::Unknown);
    assert_eq!(scene.server.heard.len(), 10);
}

#[test]
fn a_peer_that_is_silent_for_five_minutes_is_given_up_while_something_is_under_way() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let connection = scene.connect();
    scene.is_cut.set(true);
    scene.client.endpoint.send(connection, b"lost", scene.now).unwrap();
    let began = scene.now;
    while scene.client.ended.is_empty() && scene.now < began + 400 * SECOND {
        scene.step(1_000 * MICROSECOND);
    }
    assert_eq!(scene.client.ended, [(connection, Reason::NoAnswer, 0, 0)]);
    assert!(scene.now - began >= 300 * SECOND);
}

#[test]
fn with_keep_alive_an_idle_connection_hears_that_its_peer_is_gone() {
    let options = Options { keep_alive: Some(SECOND), ..options() };
    let mut scene = Scene::new(Weather::default(), 1, &options);
    let connection = scene.connect();
    for _ in 0..60_000 {
        scene.step(1_000 * MICROSECOND);
    }
    assert!(scene.client.ended.is_empty(), "an idle peer that answers is there");
    scene.is_cut.set(true);
    for _ in 0..15_000 {
        scene.step(1_000 * MICROSECOND);
    }
    assert_eq!(scene.client.ended, [(connection, Reason::NoAnswer, 0, 0)]);
}

#[test]
fn a_connection_that_was_agreed_elsewhere_needs_no_handshake() {
    let mut scene = Scene::new(Weather { lost: 10, ..Weather::default() }, 1, &options());
    let identifier = 0x8123_4567_89ab_cdef;
    let (client, server) = (scene.client.endpoint.mac(), scene.server.endpoint.mac());
    let connection = scene.client.endpoint.agree(server, identifier, scene.now).unwrap();
    scene.server.endpoint.agree(client, identifier, scene.now).unwrap();
    let all = messages(500, 100, 1);
    scene.send_all(connection, &all);
    assert!(scene.server.heard == all);
}

#[test]
fn connections_are_refused_when_the_table_is_full() {
    // The server leaves room for other stations, and still takes as many of its only one as its options say.
    let mut scene = Scene::new(Weather::default(), 1, &Options { connections: 3, ..options() });
    let mac = scene.server.endpoint.mac();
    (0..3).for_each(|_| assert!(scene.client.endpoint.connect(mac, 7, scene.now).is_ok()));
    assert!(scene.client.endpoint.connect(mac, 7, scene.now).is_err());
    scene.until("three", |scene| scene.server.connections.len() == 3);
    let mut event = None;
    scene.server.endpoint.abort(scene.server.connections[0], scene.now);
    scene.until("room again", |scene| {
        event = scene.client.endpoint.poll(scene.now).map(|event| matches!(event, Event::Ended { .. }));
        event == Some(true)
    });
}

#[test]
fn a_buffer_of_another_endpoint_is_refused_and_changes_nothing() {
    // The client's link has more buffers than the server's: their numbers mean nothing there.
    let (many, few) = (MemoryOptions::default(), MemoryOptions { buffers: 64, ..MemoryOptions::default() });
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let mut other = Scene::with(Weather::default(), 1, &options(), &options(), &few);
    assert!(many.buffers > few.buffers);
    let (connection, theirs) = (scene.connect(), other.connect());
    let free = |scene: &mut Scene| scene.client.endpoint.audit().unwrap().free;
    let (before, before_there) = (free(&mut scene), free(&mut other));
    let taken: Vec<_> = std::iter::from_fn(|| scene.client.endpoint.reserve()).collect();
    let mut lost = 0;
    for (number, outgoing) in taken.into_iter().enumerate() {
        let refused = other.client.endpoint.commit(theirs, outgoing, 4, other.now).unwrap_err();
        assert_eq!(refused.error, SendError::OtherEndpoint);
        if number % 2 == 0 {
            scene.client.endpoint.discard(refused.outgoing);
        } else {
            other.client.endpoint.discard(refused.outgoing);
            lost += 1;
        }
    }
    assert_eq!((free(&mut scene), free(&mut other)), (before - lost, before_there));
    // A message that was kept.
    scene.client.endpoint.send(connection, b"kept", scene.now).unwrap();
    scene.client.endpoint.flush();
    while !matches!(scene.server.endpoint.poll(scene.now), Some(Event::Message { .. })) {}
    let kept = scene.server.endpoint.keep().unwrap();
    other.client.endpoint.give_back(kept);
    assert_eq!(free(&mut other), before_there);
    assert_eq!(other.client.endpoint.audit().map(drop), Ok(()));
    scene.server.endpoint.audit().unwrap();
    scene.send_all(connection, &messages(100, 50, 1));
    other.send_all(theirs, &messages(100, 50, 1));
}

#[test]
fn a_last_acknowledgement_that_is_lost_comes_again_however_long_the_peer_waits_for_it() {
    for lost in 1..=3 {
        let mut scene = Scene::new(Weather::default(), 1, &options());
        let connection = scene.connect();
        let accepted = scene.server.connections[0];
        // The server measures long round trips: its timeout is the longest.
        for _ in 0..8 {
            scene.server.endpoint.send(accepted, b"slow", scene.now).unwrap();
            (0..4).for_each(|_| scene.step(400_000 * MICROSECOND));
        }
        scene.client.endpoint.close(connection, scene.now).unwrap();
        scene.until("the server hears of it", |scene| !scene.server.finished.is_empty());
        scene.until("the server has acknowledged it", |scene| {
            scene.client.endpoint.status(connection).is_some_and(|status| status.queued == 0)
        });
        scene.server.endpoint.close(accepted, scene.now).unwrap();
        scene.server.poll(scene.now);
        for _ in 0..lost {
            // What the client answers is lost.
            scene.is_cut.set(true);
            scene.client.poll(scene.now);
            scene.is_cut.set(false);
            assert!(scene.server.ended.is_empty());
            let sent = scene.server.endpoint.counters().frames_sent;
            scene.until("the server asks again", |scene| {
                scene.now += 1_000 * MICROSECOND;
                scene.server.poll(scene.now);
                scene.server.endpoint.counters().frames_sent > sent
            });
        }
        assert_eq!(scene.client.ended, [(connection, Reason::Closed, 1, 9)]);
        assert_eq!(scene.client.endpoint.connections(), 0);
        scene.until("the server knows", |scene| !scene.server.ended.is_empty());
        assert_eq!(scene.server.ended, [(accepted, Reason::Closed, 9, 1)], "{lost} answers lost");
    }
}
