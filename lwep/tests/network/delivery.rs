//! Every message arrives once, whole and in order.

use proptest::prelude::*;
use ringway_link::memory::MemoryOptions;
use ringway_lwep::{Connection, Options, SendError};

use crate::scene::{MICROSECOND, SECOND, SERVICE, Scene, Weather, messages, wrapping};

/// Networks may lose most frames of a handshake: it goes on until both ends know of the connection.
fn checked() -> Options {
    Options { checksums: true, window: 256, random: wrapping, connect_within: 300 * SECOND, ..Options::default() }
}

/// Connects as often as `count` says.
fn connections(scene: &mut Scene, count: usize) -> Vec<Connection> {
    let mac = scene.server.endpoint.mac();
    let all = (0..count).map(|_| scene.client.endpoint.connect(mac, SERVICE, scene.now).expect("room")).collect();
    scene
        .until("connected", |scene| scene.client.connections.len() == count && scene.server.connections.len() == count);
    all
}

#[test]
fn connections_of_two_stations_share_the_frames_of_acknowledgements() {
    let mut scene = Scene::new(Weather::default(), 1, &Options { random: wrapping, ..Options::default() });
    let all = connections(&mut scene, 60);
    let before = scene.server.endpoint.counters().frames_sent;
    for round in 1..=10 {
        for connection in &all {
            scene.client.endpoint.send(*connection, &[1; 100], scene.now).expect("room");
        }
        scene.until("acknowledged", |scene| {
            all.iter().all(|one| scene.client.endpoint.status(*one).is_some_and(|status| status.acknowledged == round))
        });
    }
    let frames = scene.server.endpoint.counters().frames_sent - before;
    assert!(frames <= 20, "{frames} frames for 600 messages");
    assert_eq!(scene.client.endpoint.counters().repeated, 0);
}

#[test]
fn on_a_good_network_nothing_is_sent_twice() {
    let mut scene = Scene::new(Weather::default(), 1, &Options { random: wrapping, window: 256, ..Options::default() });
    let connection = scene.connect();
    let all = messages(10_000, 1_400, 1);
    scene.send_all(connection, &all);
    assert!(scene.server.heard == all);
    let (client, server) = (*scene.client.endpoint.counters(), *scene.server.endpoint.counters());
    assert_eq!((client.repeated, client.timeouts, server.duplicates, server.no_connection), (0, 0, 0, 0), "{client:?}");
    assert_eq!((client.messages_sent, server.messages_received), (10_000, 10_000));
    // An acknowledgement for each eighth of the window.
    assert!(server.frames_sent < 700, "{server:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn on_a_bad_network_every_message_arrives_once_whole_and_in_order(
        seed in 1..u64::MAX / 2,
        [lost, repeated, swapped, delayed, corrupted] in prop::array::uniform5(0..=20u64),
    ) {
        let weather = Weather { lost, repeated, swapped, delayed, corrupted };
        let mut scene = Scene::new(weather, seed, &checked());
        let connection = scene.connect();
        let all = messages(1_000, 300, seed);
        scene.send_all(connection, &all);
        prop_assert!(scene.server.heard == all);
    }

    #[test]
    fn many_connections_on_a_bad_network_lose_and_mix_nothing(
        seed in 1..u64::MAX / 2,
        [lost, repeated, swapped, delayed, corrupted] in prop::array::uniform5(0..=10u64),
    ) {
        let weather = Weather { lost, repeated, swapped, delayed, corrupted };
        // One of so many would be given up now and then, in the worst weather also one that is connected.
        let options = Options { connect_within: 100 * SECOND, ..checked() };
        let mut scene = Scene::new(weather, seed, &options);
        let all = connections(&mut scene, 20);
        let mut sent = vec![0_u32; all.len()];
        scene.until("all arrived", |scene| {
            for (index, connection) in all.iter().enumerate() {
                let message = [&(index as u32).to_be_bytes()[..], &sent[index].to_be_bytes()].concat();
                if sent[index] < 50 && scene.client.endpoint.send(*connection, &message, scene.now).is_ok() {
                    sent[index] += 1;
                }
            }
            all.iter().all(|one| scene.client.endpoint.status(*one).is_some_and(|status| status.acknowledged == 50))
        });
        let mut next = vec![0_u32; all.len()];
        for message in &scene.server.heard {
            let (index, number) = message.split_at(4);
            let index = u32::from_be_bytes(index.try_into().unwrap()) as usize;
            prop_assert_eq!(number, &next[index].to_be_bytes()[..]);
            next[index] += 1;
        }
        prop_assert_eq!(next, vec![50; all.len()]);
    }

    #[test]
    fn long_messages_arrive_whole_on_a_bad_network(seed in 1..u64::MAX / 2, lost in 0..=20u64, swapped in 0..=20u64) {
        let weather = Weather { lost, swapped, corrupted: 5, ..Weather::default() };
        let options = Options { long: 100_000, ..checked() };
        let links = MemoryOptions { offload: seed % 2 == 0, ..MemoryOptions::default() };
        let mut scene = Scene::with(weather, seed, &options, &options, &links);
        let connection = scene.connect();
        let all = messages(20, 60_000, seed);
        let mut sent = 0;
        scene.until("all arrived", |scene| {
            while let Some(message) = all.get(sent) {
                match scene.client.endpoint.send_long(connection, message, scene.now) {
                    Ok(()) => sent += 1,
                    Err(SendError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            scene.server.heard.len() >= all.len()
        });
        prop_assert!(scene.server.heard == all);
    }

    #[test]
    fn buffers_of_many_messages_arrive_as_messages(
        seed in 1..u64::MAX / 2,
        lost in 0..=20u64,
        part in 1..=1_440usize,
        is_segmented: bool,
    ) {
        // A buffer that was not cut has no checksum yet.
        let corrupted = if is_segmented { 0 } else { lost / 2 };
        let weather = Weather { lost, swapped: lost, corrupted, ..Weather::default() };
        let client = Options { address: Some([10, 0, 0, 1].into()), ..checked() };
        let server = Options { address: Some([10, 0, 0, 2].into()), ..checked() };
        let links = MemoryOptions { offload: is_segmented, buffer: 16_384, buffers: 256, ..MemoryOptions::default() };
        let mut scene = Scene::with(weather, seed, &client, &server, &links);
        let connection = scene.connect();
        let count = (12_000 / part).min(60);
        let bytes: Vec<u8> = (0..count * part - part / 2).map(|at| (at / 7) as u8).collect();
        let mut sent = 0;
        scene.until("all arrived", |scene| {
            let now = scene.now;
            while sent < 20 {
                let Some(mut outgoing) = scene.client.endpoint.reserve_many() else { break };
                outgoing[..bytes.len()].copy_from_slice(&bytes);
                match scene.client.endpoint.commit_many(connection, outgoing, bytes.len(), part, now) {
                    Ok(()) => sent += 1,
                    Err(refused) => {
                        assert_eq!(refused.error, SendError::Full);
                        scene.client.endpoint.discard(refused.outgoing);
                        break;
                    }
                }
            }
            scene.server.heard.len() >= 20 * count
        });
        let expected: Vec<&[u8]> = (0..20).flat_map(|_| bytes.chunks(part)).collect();
        prop_assert!(scene.server.heard.iter().map(|message| &message[..]).eq(expected));
        let trains = scene.client.endpoint.counters().frames_sent;
        prop_assert!(!(is_segmented && lost == 0 && count > 2) || trains < 100, "{} frames", trains);
    }
}

#[test]
fn a_receiver_that_stands_still_for_three_minutes_gets_everything_afterwards() {
    let mut scene = Scene::new(Weather::default(), 1, &checked());
    let connection = scene.connect();
    let all = messages(1_000, 100, 1);
    let (mut sent, end) = (0, scene.now + 180 * SECOND);
    while scene.now < end {
        while sent < all.len() && scene.client.endpoint.send(connection, &all[sent], scene.now).is_ok() {
            sent += 1;
        }
        scene.client.poll(scene.now);
        scene.now += 1_000 * MICROSECOND;
    }
    let sent_meanwhile = scene.client.endpoint.counters().frames_sent;
    assert!(sent_meanwhile < 2_000, "{sent_meanwhile} frames to a receiver that does not answer");
    scene.send_all(connection, &all[sent..]);
    assert!(scene.server.heard == all);
    assert!(scene.client.ended.is_empty());
}

#[test]
fn a_program_that_takes_no_messages_makes_its_peer_wait_and_loses_nothing() {
    let mut scene = Scene::new(Weather::default(), 1, &checked());
    let connection = scene.connect();
    let accepted = scene.server.connections[0];
    scene.server.endpoint.pause(accepted);
    let all = messages(1_000, 100, 1);
    let mut sent = 0;
    for _ in 0..100_000 {
        while sent < all.len() && scene.client.endpoint.send(connection, &all[sent], scene.now).is_ok() {
            sent += 1;
        }
        scene.step(100 * MICROSECOND);
    }
    assert!(scene.server.heard.is_empty());
    let counters = *scene.client.endpoint.counters();
    assert_eq!((counters.messages_sent, counters.repeated), (256, 0), "as many as the window");
    // Probes at doubled intervals: the window is asked for about once a second.
    assert!(counters.frames_sent < 300, "{counters:?}");
    scene.server.endpoint.resume(accepted);
    scene.send_all(connection, &all[sent..]);
    assert!(scene.server.heard == all);
}

#[test]
fn a_clock_that_jumps_ends_nothing() {
    let mut scene = Scene::new(Weather { lost: 5, ..Weather::default() }, 3, &checked());
    let connection = scene.connect();
    let all = messages(3_000, 100, 1);
    for (number, some) in all.chunks(100).enumerate() {
        scene.now = if number % 2 == 0 { scene.now + 3_600 * SECOND } else { scene.now.saturating_sub(10 * SECOND) };
        scene.send_all(connection, some);
    }
    assert!(scene.server.heard == all && scene.client.ended.is_empty());
}

#[test]
fn a_network_that_is_cut_for_a_minute_costs_nothing_but_time() {
    let mut scene = Scene::new(Weather::default(), 1, &checked());
    let connection = scene.connect();
    let all = messages(500, 100, 1);
    scene.send_all(connection, &all[..100]);
    scene.is_cut.set(true);
    all[100..].iter().for_each(|message| scene.client.endpoint.send(connection, message, scene.now).expect("room"));
    (0..60_000).for_each(|_| scene.step(1_000 * MICROSECOND));
    assert_eq!(scene.server.heard.len(), 100);
    scene.is_cut.set(false);
    scene.until("all arrived", |scene| scene.server.heard.len() == 500);
    assert!(scene.server.heard == all);
}

#[test]
fn on_a_good_network_large_buffers_are_sent_once() {
    let options = |last| Options { address: Some([10, 0, 0, last].into()), random: wrapping, ..Options::default() };
    let links = MemoryOptions { offload: true, buffer: 65_472, buffers: 128, capacity: 63 };
    let mut scene = Scene::with(Weather::default(), 1, &options(1), &options(2), &links);
    let connection = scene.connect();
    let bytes = vec![7; 64_800];
    let mut sent = 0;
    scene.until("all arrived", |scene| {
        while sent < 3_000 {
            let Some(mut outgoing) = scene.client.endpoint.reserve_many() else { break };
            outgoing[..bytes.len()].copy_from_slice(&bytes);
            if let Err(refused) = scene.client.endpoint.commit_many(connection, outgoing, bytes.len(), 1_440, scene.now)
            {
                scene.client.endpoint.discard(refused.outgoing);
                break;
            }
            sent += 1;
        }
        let count = scene.server.heard.len();
        scene.server.heard.clear();
        scene.server.rooms += count;
        scene.server.rooms >= 3_000 * 45
    });
    let (client, server) = (*scene.client.endpoint.counters(), *scene.server.endpoint.counters());
    assert_eq!((client.repeated, client.timeouts, server.no_buffer), (0, 0, 0), "{client:?} {server:?}");
    assert!(client.frames_sent < 3_400, "{client:?}");
}

#[test]
fn messages_that_the_program_keeps_stay_as_they_are() {
    let mut scene = Scene::new(Weather::default(), 1, &checked());
    let connection = scene.connect();
    let all = messages(600, 300, 1);
    let mut kept = Vec::new();
    for some in all.chunks(100) {
        some.iter().for_each(|message| scene.client.endpoint.send(connection, message, scene.now).expect("room"));
        let wanted = kept.len() + some.len();
        for _ in 0..1_000 {
            scene.now += 10 * MICROSECOND;
            scene.client.poll(scene.now);
            while let Some(event) = scene.server.endpoint.poll(scene.now) {
                if matches!(event, ringway_lwep::Event::Message { .. }) {
                    kept.push(scene.server.endpoint.keep().expect("a buffer"));
                }
            }
        }
        assert_eq!(kept.len(), wanted);
        // The first ones make room for more.
        if kept.len() == 400 {
            assert!(kept.iter().zip(&all).all(|(kept, message)| **kept == message[..]));
            kept.drain(..).for_each(|message| scene.server.endpoint.give_back(message));
            scene.until("all is acknowledged", |scene| {
                scene.client.endpoint.status(connection).is_some_and(|status| status.queued == 0)
            });
            break;
        }
    }
}

#[test]
fn a_buffer_that_waits_for_acknowledgements_lets_the_program_sleep() {
    let options = |last| Options { address: Some([10, 0, 0, last].into()), random: wrapping, ..Options::default() };
    let links = MemoryOptions { offload: true, buffer: 65_472, buffers: 128, capacity: 63 };
    let mut scene = Scene::with(Weather::default(), 1, &options(1), &options(2), &links);
    let connection = scene.connect();
    scene.until("quiet", |scene| scene.client.endpoint.prepare_sleep(scene.now));
    for _ in 0..3 {
        let outgoing = scene.client.endpoint.reserve_many().expect("a buffer");
        scene.client.endpoint.commit_many(connection, outgoing, 64_800, 1_440, scene.now).expect("room");
    }
    scene.client.poll(scene.now);
    let queued = scene.client.endpoint.status(connection).map(|status| status.queued);
    assert!(queued == Some(135) && scene.client.endpoint.prepare_sleep(scene.now), "one buffer waits for the first");
    scene.until("all arrived", |scene| scene.server.heard.len() == 135);
}
