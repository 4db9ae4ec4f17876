//! Buffers of many messages: they are sent, kept and repeated as a whole.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use proptest::prelude::*;
use ringway_link::Gso;
use ringway_link::memory::{InFlight, MemoryOptions};
use ringway_lwep::wire::{ETHER_TYPE, Header, Kind, header};
use ringway_lwep::{Connection, Event, Options, SendError};
use ringway_testing::random::Random;

use crate::scene::{MICROSECOND, SERVICE, Scene, Weather, wrapping};

/// Bytes of a message, and messages of a buffer.
const PART: usize = 1_440;
const COUNT: usize = 45;
/// Bytes before the data of a frame: Ethernet, IPv4, TCP.
const HEADERS: usize = 74;

fn scene(holds: usize) -> (Scene, Connection) {
    let options = |last| Options { address: Some([10, 0, 0, last].into()), random: wrapping, ..Options::default() };
    let links = MemoryOptions { offload: true, buffer: 65_472, buffers: 128, capacity: holds };
    let mut scene = Scene::with(Weather::default(), 1, &options(1), &options(2), &links);
    let connection = scene.connect();
    (scene, connection)
}

/// Returns the messages of the buffer with this number.
fn buffer(number: u32) -> Vec<u8> {
    let message = |index: usize| [&number.to_be_bytes()[..], &[index as u8; PART - 4]].concat();
    (0..COUNT).flat_map(message).collect()
}

/// Sends the buffer with this number. Returns false if there is no room.
fn send(scene: &mut Scene, connection: Connection, number: u32) -> bool {
    let Some(mut outgoing) = scene.client.endpoint.reserve_many() else { return false };
    let bytes = buffer(number);
    outgoing[..bytes.len()].copy_from_slice(&bytes);
    match scene.client.endpoint.commit_many(connection, outgoing, bytes.len(), PART, scene.now) {
        Ok(()) => true,
        Err(refused) => {
            assert_eq!(refused.error, SendError::Full);
            scene.client.endpoint.discard(refused.outgoing);
            false
        }
    }
}

/// Sends so many buffers, until all are acknowledged.
fn send_all(scene: &mut Scene, connection: Connection, count: u32) {
    let mut sent = 0;
    scene.until("all arrived", |scene| {
        while sent < count && send(scene, connection, sent) {
            sent += 1;
        }
        sent == count && scene.client.endpoint.status(connection).is_some_and(|status| status.queued == 0)
    });
}

fn has_heard(scene: &Scene, count: u32) -> bool {
    let all: Vec<Vec<u8>> = (0..count).map(buffer).collect();
    scene.server.heard.iter().map(|message| &message[..]).eq(all.iter().flat_map(|bytes| bytes.chunks(PART)))
}

fn is_train(frame: &InFlight) -> bool {
    frame.offload.is_some_and(|offload| offload.gso == Gso::Tcp4)
}

/// Returns how many messages are in a frame.
fn messages(frame: &InFlight) -> usize {
    let size = frame.offload.map_or(0, |offload| usize::from(offload.gso_size));
    if size == 0 { 1 } else { (frame.bytes.len() - HEADERS).div_ceil(size) }
}

/// Returns the frames that a NIC makes of one.
fn cut(frame: InFlight) -> Vec<InFlight> {
    let Some(offload) = frame.offload.filter(|offload| offload.gso == Gso::Tcp4) else { return vec![frame] };
    let (head, data) = frame.bytes.split_at(HEADERS);
    let number = u16::from_be_bytes([head[18], head[19]]);
    let segment = |(data, index): (&[u8], u16)| {
        let mut bytes = [head, data].concat();
        bytes[16..18].copy_from_slice(&(60 + data.len() as u16).to_be_bytes());
        bytes[18..20].copy_from_slice(&(number + index).to_be_bytes());
        InFlight { bytes, offload: Some(ringway_link::Offload { gso: Gso::None, gso_size: 0, ..offload }) }
    };
    data.chunks(offload.gso_size.into()).zip(0..).map(segment).collect()
}

#[test]
fn a_lost_buffer_is_sent_again_whole() {
    let (mut scene, connection) = scene(1024);
    let trains = Rc::new(Cell::new(0));
    let count = trains.clone();
    scene.client.endpoint.link().set_network(move |frame, queue| {
        count.set(count.get() + u32::from(is_train(&frame)));
        if count.get() != 10 {
            queue.push_back(frame);
        }
    });
    send_all(&mut scene, connection, 40);
    assert!(has_heard(&scene, 40));
    let counters = scene.client.endpoint.counters();
    // The numbers of the first one pass a multiple of 65,536.
    assert_eq!((trains.get(), counters.repeated), (42, COUNT as u64), "{counters:?}");
}

#[test]
fn messages_arrive_although_no_buffer_of_many_does() {
    let (mut scene, connection) = scene(1024);
    scene.client.endpoint.link().set_network(|frame, queue| {
        if !is_train(&frame) {
            queue.push_back(frame);
        }
    });
    send_all(&mut scene, connection, 10);
    assert!(has_heard(&scene, 10));
}

#[test]
fn buffers_that_are_early_wait_in_one_buffer_each() {
    let (mut scene, connection) = scene(1024);
    let (trains, is_lost) = (Cell::new(0), Rc::new(Cell::new(true)));
    let loses = is_lost.clone();
    scene.client.endpoint.link().set_network(move |frame, queue| {
        trains.set(trains.get() + usize::from(is_train(&frame)));
        if trains.get() <= 10 || (is_train(&frame) && trains.get() > 11 && trains.get() <= 16) || !loses.get() {
            queue.push_back(frame);
        }
    });
    // Two frames for the first.
    send_all(&mut scene, connection, 9);
    (9..15).for_each(|number| assert!(send(&mut scene, connection, number), "no room for {number}"));
    (0..10).for_each(|_| scene.step(MICROSECOND));
    let free = scene.server.endpoint.audit().map(|audit| audit.free);
    assert_eq!((free, scene.server.endpoint.counters().no_buffer), (Ok(128 - 5), 0));
    is_lost.set(false);
    scene.until("all arrived", |scene| scene.server.heard.len() >= 15 * COUNT);
    assert!(has_heard(&scene, 15));
    assert_eq!(scene.server.endpoint.audit().map(|audit| audit.free), Ok(128));
}

#[test]
fn a_receiver_that_holds_few_frames_loses_none() {
    let (mut scene, connection) = scene(100);
    let lost = Rc::new(Cell::new(0));
    let losses = lost.clone();
    scene.client.endpoint.link().set_network(move |frame, queue: &mut VecDeque<InFlight>| {
        // As if each was cut on the way.
        if queue.iter().map(messages).sum::<usize>() + messages(&frame) <= 100 {
            queue.push_back(frame);
        } else {
            losses.set(losses.get() + 1);
        }
    });
    send_all(&mut scene, connection, 300);
    assert!(has_heard(&scene, 300));
    assert_eq!((lost.get(), scene.client.endpoint.counters().repeated), (0, 0));
}

#[test]
fn numbers_that_pass_a_multiple_of_65_536_make_two_frames_of_a_buffer() {
    let (mut scene, connection) = scene(1024);
    let trains = Rc::new(Cell::new(0));
    let count = trains.clone();
    scene.client.endpoint.link().set_network(move |frame, queue| {
        count.set(count.get() + usize::from(is_train(&frame)));
        queue.push_back(frame);
    });
    send_all(&mut scene, connection, 1);
    assert!(has_heard(&scene, 1));
    assert_eq!(trains.get(), 2);
}

#[test]
fn a_full_buffer_that_waited_is_sent_whole() {
    let options = |last| Options { address: Some([10, 0, 0, last].into()), random: || 1, ..Options::default() };
    let links = MemoryOptions { offload: true, buffer: 65_472, buffers: 128, capacity: 1024 };
    let mut scene = Scene::with(Weather::default(), 1, &options(1), &options(2), &links);
    let longest = Rc::new(Cell::new(0));
    let seen = longest.clone();
    scene.client.endpoint.link().set_network(move |frame, queue| {
        seen.set(seen.get().max(messages(&frame)));
        queue.push_back(frame);
    });
    let (mac, now) = (scene.server.endpoint.mac(), scene.now);
    let connection = scene.client.endpoint.connect(mac, SERVICE, now).expect("room");
    let outgoing = scene.client.endpoint.reserve_many().expect("a buffer");
    let bytes = outgoing.len();
    assert!(bytes > COUNT * PART, "the last message is shorter");
    scene.client.endpoint.commit_many(connection, outgoing, bytes, PART, now).expect("room");
    scene.until("all arrived", |scene| scene.server.heard.len() == COUNT + 1);
    assert_eq!(longest.get(), COUNT + 1, "messages in one frame");
}

#[test]
fn messages_of_a_buffer_wait_while_the_program_takes_none() {
    let (mut scene, connection) = scene(1024);
    let accepted = scene.server.connections[0];
    assert!(send(&mut scene, connection, 0));
    scene.client.poll(scene.now);
    // The first frame of the buffer; the program takes three messages of it.
    for _ in 0..3 {
        let event = scene.server.endpoint.poll(scene.now);
        assert!(matches!(event, Some(Event::Message { .. })), "{event:?}");
    }
    scene.server.endpoint.pause(accepted);
    (0..100).for_each(|_| scene.step(MICROSECOND));
    assert_eq!(scene.server.heard.len(), 0);
    let status = scene.client.endpoint.status(connection);
    assert!(status.is_some_and(|status| status.queued == 0), "what waits is acknowledged: {status:?}");
    scene.server.endpoint.resume(accepted);
    scene.until("all arrived", |scene| scene.server.heard.len() >= COUNT - 3);
    assert!(scene.server.heard.iter().map(|message| &message[..]).eq(buffer(0).chunks(PART).skip(3)));
    assert_eq!(scene.server.endpoint.audit().map(|audit| audit.free), Ok(128));
}

#[test]
fn a_message_that_has_waited_does_not_make_a_buffer_begin_again() {
    let (mut scene, connection) = scene(1024);
    let (mac, now) = (scene.server.endpoint.mac(), scene.now);
    let other = scene.client.endpoint.connect(mac, SERVICE, now).expect("room");
    scene.until("both", |scene| scene.server.connections.len() == 2 && scene.client.connections.len() == 2);
    let waits = scene.server.connections[1];
    scene.server.endpoint.pause(waits);
    scene.client.endpoint.send(other, b"waits", scene.now).expect("room");
    (0..100).for_each(|_| scene.step(MICROSECOND));
    let before = scene.server.endpoint.counters().frames_received;
    assert!(send(&mut scene, connection, 0));
    scene.client.poll(scene.now);
    for _ in 0..3 {
        let event = scene.server.endpoint.poll(scene.now);
        assert!(matches!(event, Some(Event::Message { .. })), "{event:?}");
    }
    scene.server.endpoint.resume(waits);
    scene.server.poll(scene.now);
    let counters = *scene.server.endpoint.counters();
    assert_eq!((counters.duplicates, counters.frames_received - before), (0, 2), "two frames for the buffer");
    assert_eq!(scene.server.heard.remove(0), b"waits");
    assert!(scene.server.heard.iter().map(|message| &message[..]).eq(buffer(0).chunks(PART).skip(3)));
}

/// Returns a frame in the plain layout for the connection of a frame in the other one, with its number.
fn plain(train: &InFlight, kind: Kind) -> InFlight {
    let word = |at: usize| train.bytes[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let half = |at: usize| train.bytes[at..].first_chunk().map_or(0, |bytes| u32::from(u16::from_be_bytes(*bytes)));
    let header = Header {
        connection: word(58),
        token: word(62),
        number: half(66) << 16 | half(18),
        acknowledgement: word(42),
        window: 100,
        ..Header::new(kind)
    };
    let mut head = [0; header::BYTES];
    header.encode(&mut head);
    let addresses = [&train.bytes[..12], &ETHER_TYPE.to_be_bytes()].concat();
    InFlight { bytes: [&addresses[..], &head].concat(), offload: None }
}

#[test]
fn a_long_message_behind_an_end_is_not_delivered() {
    let options =
        |last| Options { address: Some([10, 0, 0, last].into()), long: 60_000, random: || 7, ..Options::default() };
    let links = MemoryOptions { offload: true, buffer: 65_472, buffers: 128, capacity: 1024 };
    let mut scene = Scene::with(Weather::default(), 1, &options(1), &options(2), &links);
    let connection = scene.connect();
    scene.client.endpoint.link().set_network(|mut frame, queue| {
        if is_train(&frame) {
            queue.push_back(plain(&frame, Kind::End));
            // The number, and that of the last fragment.
            [19, 71].iter().for_each(|at| frame.bytes[*at] += 1);
            queue.push_back(frame);
        }
    });
    scene.client.endpoint.send_long(connection, &[1; 30_000], scene.now).expect("room");
    (0..10).for_each(|_| scene.step(MICROSECOND));
    assert_eq!((scene.server.finished.len(), scene.server.heard.len()), (1, 0));
    assert!(scene.server.endpoint.counters().outside_window > 0);
}

#[test]
fn a_frame_of_65_536_messages_moves_the_numbers_by_as_many() {
    let options =
        |last| Options { address: Some([10, 0, 0, last].into()), random: || 0x10_000 << 32, ..Options::default() };
    let links = MemoryOptions { offload: true, buffer: 65_472, buffers: 128, capacity: 1024 };
    let mut scene = Scene::with(Weather::default(), 1, &options(1), &options(2), &links);
    let mac = scene.server.endpoint.mac();
    let connection = scene.client.endpoint.connect(mac, SERVICE, scene.now).expect("room");
    // No frame but this one confirms the connection: so an event comes before its first message.
    let opened = Cell::new(false);
    scene.client.endpoint.link().set_network(move |mut frame, queue| {
        if !opened.replace(true) {
            queue.push_back(frame);
        } else if is_train(&frame) {
            frame.bytes.resize(HEADERS + 65_536, 1);
            frame.bytes[16..18].fill(0);
            frame.offload.iter_mut().for_each(|offload| offload.gso_size = 1);
            queue.push_back(frame);
        }
    });
    scene.client.endpoint.connect(mac, SERVICE, scene.now).expect("room");
    scene.until("connected", |scene| !scene.client.connections.is_empty());
    assert!(send(&mut scene, connection, 0));
    let mut heard = 0;
    scene
        .server
        .endpoint
        .drain(scene.now, usize::MAX, |event| heard += usize::from(matches!(event, Event::Message { .. })));
    let accepted = scene.server.endpoint.status(Connection::from_number(0));
    assert_eq!((heard, accepted.map(|status| status.received)), (65_536, Some(65_536)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn messages_of_all_kinds_keep_their_order_on_a_bad_network(
        seed in 1..u64::MAX / 2,
        lost in 0..=20u64,
        is_cut: bool,
        window in prop_oneof![8..=100u16, Just(1024u16)],
        holds in 10..=1024usize,
    ) {
        let options = |last| Options {
            address: Some([10, 0, 0, last].into()),
            long: 60_000,
            window,
            random: wrapping,
            ..Options::default()
        };
        let links = MemoryOptions { offload: true, buffer: 65_472, buffers: 128, capacity: holds };
        let mut scene = Scene::with(Weather::default(), 1, &options(1), &options(2), &links);
        let connection = scene.connect();
        let mut random = Random::new(seed);
        scene.client.endpoint.link().set_network(move |frame, queue| {
            for frame in if is_cut { cut(frame) } else { vec![frame] } {
                if random.below(100) < lost {
                    continue;
                }
                queue.push_back(frame);
                let len = queue.len();
                if random.below(100) < lost && len > 1 {
                    queue.swap(len - 1, len - 2);
                }
            }
        });
        let mut random = Random::new(seed + 1);
        let (mut sent, mut heard, mut wanted, mut in_message) = (0_u32, Vec::new(), Vec::new(), None);
        let accepted = scene.server.connections[0];
        scene.until("all arrived", |scene| {
            // Of the step before.
            heard.append(&mut scene.server.heard);
            while sent < 60 {
                let bytes = buffer(sent);
                let kind = if in_message.is_some() { 2 } else { random.below(3) };
                let (parts, is_sent) = match kind {
                    0 => (bytes.chunks(PART).map(<[u8]>::to_vec).collect(), send(scene, connection, sent)),
                    1 => {
                        let message = &bytes[..1_000];
                        (vec![message.to_vec()], scene.client.endpoint.send(connection, message, scene.now).is_ok())
                    }
                    _ => {
                        let len = in_message.unwrap_or_else(|| (2_000 + random.below(50_000)) as usize);
                        let message = &bytes[..len];
                        let is_sent = scene.client.endpoint.send_long(connection, message, scene.now).is_ok();
                        in_message = (!is_sent).then_some(len);
                        (vec![message.to_vec()], is_sent)
                    }
                };
                if !is_sent {
                    break;
                }
                wanted.extend(parts);
                sent += 1;
            }
            match random.below(20) {
                0 => scene.server.endpoint.pause(accepted),
                1..5 => scene.server.endpoint.resume(accepted),
                _ => {}
            }
            // What the last step has heard comes before.
            heard.append(&mut scene.server.heard);
            let most = 1 + random.below(100) as usize;
            let mut take = |event: Event<'_>| {
                if let Event::Message { data, .. } = event {
                    heard.push(data.to_vec());
                }
            };
            if random.below(2) == 0 {
                scene.server.endpoint.drain(scene.now, most, take);
            } else {
                (0..most).for_each(|_| scene.server.endpoint.poll(scene.now).into_iter().for_each(&mut take));
            }
            scene.client.poll(scene.now);
            scene.now += 10 * MICROSECOND;
            sent == 60 && heard.len() >= wanted.len()
        });
        prop_assert!(heard == wanted);
        scene.until("all is acknowledged", |scene| {
            scene.client.endpoint.status(connection).is_some_and(|status| status.queued == 0)
        });
        // What the program was given last goes back.
        scene.step(MICROSECOND);
        for end in [&mut scene.client, &mut scene.server] {
            prop_assert_eq!(end.endpoint.audit().map(|audit| audit.free), Ok(128));
        }
    }

    #[test]
    fn whatever_a_peer_tells_every_buffer_has_one_owner(seed in 1..u64::MAX / 2, often in 1..30u64, offload: bool) {
        let options = |last| Options {
            address: Some([10, 0, 0, last].into()),
            long: 60_000,
            window: 200,
            random: wrapping,
            ..Options::default()
        };
        let links = MemoryOptions { offload, buffer: 16_384, buffers: 64, capacity: 60 };
        let mut scene = Scene::with(Weather::default(), 1, &options(1), &options(2), &links);
        let mac = scene.server.endpoint.mac();
        for link in [scene.client.endpoint.link(), scene.server.endpoint.link()] {
            let mut random = Random::new(seed);
            link.set_network(move |mut frame, queue| {
                if random.below(100) < often {
                    spoil(&mut frame, &mut random);
                }
                queue.push_back(frame);
            });
        }
        let mut random = Random::new(seed + 1);
        for _ in 0..300 {
            if scene.client.endpoint.connections() < 2 {
                scene.client.endpoint.connect(mac, SERVICE, scene.now).expect("room");
            }
            for end in [&mut scene.client, &mut scene.server] {
                let latest = end.connections.len().saturating_sub(1 + random.below(2) as usize);
                let connection = end.connections.get(latest).copied().unwrap_or(Connection::from_number(0));
                let len = random.below(16_000) as usize;
                match random.below(8) {
                    0 | 1 => drop(end.endpoint.send_long(connection, &vec![2; len], scene.now)),
                    2 | 3 => {
                        let Some(outgoing) = end.endpoint.reserve_many() else { continue };
                        let part = 1 + random.below(1_440) as usize;
                        let sent = end.endpoint.commit_many(connection, outgoing, len, part, scene.now);
                        sent.unwrap_or_else(|refused| end.endpoint.discard(refused.outgoing));
                    }
                    4 | 5 => drop(end.endpoint.send(connection, &[3; 100], scene.now)),
                    6 => end.endpoint.pause(connection),
                    _ => end.endpoint.resume(connection),
                }
                if random.below(2) == 0 {
                    let connections = &mut end.connections;
                    end.endpoint.drain(scene.now, random.below(20) as usize, |event| {
                        if let Event::Connected { connection } | Event::Accepted { connection, .. } = event {
                            connections.push(connection);
                        }
                    });
                } else {
                    end.poll(scene.now);
                }
                prop_assert!(end.endpoint.audit().is_ok(), "{:?}", end.endpoint.audit());
            }
            scene.now += 1 << random.below(24);
        }
        for end in [&mut scene.client, &mut scene.server] {
            end.connections.iter().for_each(|connection| end.endpoint.abort(*connection, scene.now));
        }
        (0..10).for_each(|_| scene.step(1_000_000 * MICROSECOND));
        for end in [&mut scene.client, &mut scene.server] {
            prop_assert_eq!(end.endpoint.audit().map(|audit| audit.free), Ok(64));
        }
    }
}

/// Changes some of what a frame tells, but not the connection.
fn spoil(frame: &mut InFlight, random: &mut Random) {
    // Flags, length, number, acknowledgement, window, remaining, selective, data.
    const PLAIN: [usize; 12] = [15, 17, 27, 29, 33, 34, 35, 36, 37, 45, 48, 59];
    // Lengths, number, acknowledgement, window, upper number, flags, last fragment.
    const TRAIN: [usize; 11] = [16, 17, 19, 44, 45, 48, 49, 67, 69, 70, 71];
    let is_train = frame.bytes[12..14] == [8, 0];
    let places = if is_train { &TRAIN[..] } else { &PLAIN[..] };
    for _ in 0..=random.below(2) {
        let at = places[random.below(places.len() as u64) as usize];
        let byte = match random.below(3) {
            0 => random.below(256) as u8,
            1 => random.below(4) as u8,
            _ => frame.bytes[at].wrapping_add(random.below(8) as u8),
        };
        frame.bytes[at] = byte;
    }
    if let Some(offload) = frame.offload.as_mut().filter(|_| is_train && random.below(4) == 0) {
        offload.gso_size = [0, 1, 2, 100, u16::MAX][random.below(5) as usize];
    }
}
