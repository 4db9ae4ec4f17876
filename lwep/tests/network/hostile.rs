//! Frames that no honest peer sends, peers that harm others, and networks at their worst moment.

use std::collections::BTreeSet;

use ringway_link::memory::{InFlight, MemoryLink, MemoryOptions, pair};
use ringway_link::{Gso, Link, Offload};
use ringway_lwep::wire::header::{self, CHECKSUM};
use ringway_lwep::wire::{AcksEntry, Description, ETHER_TYPE, Ethernet, Header, Kind, Mac, checksum};
use ringway_lwep::{Connection, Endpoint, Event, Nanos, Options, Reason, SendError};

use crate::scene::{End, MICROSECOND, SECOND, SERVICE, Scene, Weather, messages, wrapping};

pub const MILLISECOND: Nanos = 1_000 * MICROSECOND;
/// The identifier of a connection that the tests agree on.
pub const AGREED: u64 = 0x8123_4567_89ab_cdef;
pub const CLIENT: Mac = [2, 0, 0, 0, 0, 1];
const SERVER: Mac = [2, 0, 0, 0, 0, 2];

pub fn options() -> Options {
    Options { random: wrapping, ..Options::default() }
}

/// The header of a frame of the agreed connection.
pub fn header(kind: Kind, number: u32) -> Header {
    Header {
        kind,
        flags: CHECKSUM,
        length: 0,
        connection: (AGREED >> 32) as u32,
        token: AGREED as u32,
        number,
        acknowledgement: 0,
        window: 100,
        remaining: 0,
        selective: 0,
    }
}

/// Returns a frame to the server.
pub fn frame(from: Mac, header: &Header, data: &[u8]) -> Vec<u8> {
    let mut bytes = Ethernet::encode(SERVER, from, ETHER_TYPE).to_vec();
    let mut head = [0; header::BYTES];
    Header { length: data.len() as u16, ..*header }.encode(&mut head);
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(&checksum::crc(&bytes[14..]));
    bytes
}

pub fn open(from: Mac, connection: u32) -> Vec<u8> {
    let description = Description {
        connection,
        token: connection,
        service: SERVICE,
        frame: 1_000,
        checksums: false,
        long: 0,
        address: [0, 0, 0, 0].into(),
        holds: 0,
    };
    frame(from, &Header { connection: 0, token: 0, ..header(Kind::Open, 5) }, &description.encode())
}

/// A server whose peer is the test.
pub struct Victim {
    pub endpoint: Endpoint<MemoryLink>,
    /// The link at which the peer would be.
    pub peer: MemoryLink,
    pub connection: Connection,
    pub now: Nanos,
    pub ended: Vec<Reason>,
    pub heard: usize,
    /// How a frame of the connection begins that it has accepted last.
    pub accepted: Header,
}

impl Victim {
    pub fn new(options: Options, links: &MemoryOptions) -> Self {
        let (peer, link) = pair(links).expect("memory");
        let mut endpoint = Endpoint::new(link, options);
        endpoint.listen(SERVICE);
        let connection = endpoint.agree(CLIENT, AGREED, SECOND).expect("room");
        Self { endpoint, peer, connection, now: SECOND, ended: vec![], heard: 0, accepted: header(Kind::Ack, 0) }
    }

    pub fn gets(&mut self, header: &Header, data: &[u8]) {
        self.endpoint.link().inject(&frame(CLIENT, header, data));
    }

    pub fn poll(&mut self, passes: Nanos) {
        self.now += passes;
        while let Some(event) = self.endpoint.poll(self.now) {
            match event {
                Event::Ended { reason, .. } => self.ended.push(reason),
                Event::Message { .. } => self.heard += 1,
                _ => {}
            }
        }
        self.endpoint.audit().expect("in order");
    }

    pub fn free(&mut self) -> usize {
        self.endpoint.audit().expect("in order").free
    }

    /// Returns the frames that the victim has sent since the last call.
    pub fn said(&mut self) -> Vec<Header> {
        let mut said = vec![];
        while let Some(received) = self.peer.peek() {
            let ethernet = Ethernet::split(received.bytes).expect("a frame");
            let (header, data) = Header::decode(ethernet.rest).expect("a header");
            if header.kind == Kind::Accept {
                let description = Description::decode(data).expect("a description");
                let (connection, token) = (description.connection, description.token);
                self.accepted = Header { connection, token, acknowledgement: header.number, ..self.accepted };
            }
            said.push(header);
            self.peer.release();
        }
        said
    }
}

#[test]
fn messages_behind_an_end_are_not_delivered_and_keep_no_buffers() {
    let mut victim = Victim::new(options(), &MemoryOptions::default());
    let all = victim.free();
    victim.gets(&header(Kind::Data, 2), b"behind");
    victim.gets(&header(Kind::End, 0), b"");
    victim.gets(&header(Kind::Data, 1), b"behind");
    victim.poll(MICROSECOND);
    assert_eq!(victim.heard, 0);
    victim.endpoint.close(victim.connection, victim.now).unwrap();
    victim.poll(MICROSECOND);
    victim.gets(&Header { acknowledgement: 1, ..header(Kind::Ack, 1) }, b"");
    victim.poll(MICROSECOND);
    assert_eq!(victim.ended, [Reason::Closed]);
    victim.poll(SECOND);
    assert_eq!((victim.endpoint.connections(), victim.free()), (0, all));
}

#[test]
fn a_peer_that_leaves_gaps_takes_a_quarter_of_the_buffers_at_most_and_hears_of_it() {
    let links = MemoryOptions { buffers: 64, ..MemoryOptions::default() };
    let mut victim = Victim::new(options(), &links);
    (1..200).for_each(|number| victim.gets(&header(Kind::Data, number), b"early"));
    victim.poll(MILLISECOND);
    assert_eq!((victim.free(), victim.endpoint.counters().no_buffer), (64 - 16, 199 - 16));
    victim.said();
    victim.gets(&header(Kind::Data, 200), b"early");
    victim.poll(MILLISECOND);
    assert!(victim.said().iter().any(|header| header.kind == Kind::Ack), "the peer hears that this end is there");
    victim.gets(&header(Kind::Data, 0), b"the gap");
    victim.poll(MILLISECOND);
    assert_eq!((victim.heard, victim.free()), (17, 64));
}

#[test]
fn hostile_frames_of_a_peer_end_with_all_buffers_free() {
    let mut random = ringway_testing::random::Random::new(7);
    for _ in 0..50 {
        let links = MemoryOptions { buffers: 64, ..MemoryOptions::default() };
        let mut victim = Victim::new(Options { long: 5_000, window: 64, ..options() }, &links);
        for _ in 0..500 {
            let kinds = [Kind::Data, Kind::Data, Kind::Ack, Kind::Probe, Kind::End, Kind::Accept];
            let far = [0, u32::MAX, 1 << 31, 70][random.below(4) as usize];
            let number = if random.below(8) == 0 { far } else { random.below(64) as u32 };
            let header = Header {
                acknowledgement: if random.below(4) == 0 { far } else { random.below(8) as u32 },
                window: [0, 1, 100, u16::MAX][random.below(4) as usize],
                remaining: if random.below(4) == 0 { random.below(4) as u16 } else { 0 },
                selective: if random.below(4) == 0 { random.bits() } else { 0 },
                ..header(kinds[random.below(6) as usize], number)
            };
            victim.gets(&header, &[1; 100][..random.below(100) as usize]);
            if random.below(3) == 0 {
                let _ = victim.endpoint.send(victim.connection, b"out", victim.now);
            }
            match random.below(60) {
                0 => victim.endpoint.pause(victim.connection),
                1..4 => victim.endpoint.resume(victim.connection),
                4 => drop(victim.endpoint.close(victim.connection, victim.now)),
                _ => {}
            }
            victim.poll(random.below(MILLISECOND));
            victim.said();
        }
        victim.endpoint.abort(victim.connection, victim.now);
        victim.poll(SECOND);
        assert_eq!(victim.free(), 64);
    }
}

#[test]
fn a_late_duplicate_of_a_request_ends_no_connection() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let requests = std::rc::Rc::new(std::cell::RefCell::new(vec![]));
    let seen = requests.clone();
    scene.client.endpoint.link().set_network(move |frame: InFlight, queue| {
        seen.borrow_mut().push(frame.bytes.clone());
        queue.push_back(frame);
    });
    let connection = scene.connect();
    scene.server.endpoint.ignore(SERVICE);
    let first = requests.borrow()[0].clone();
    scene.server.endpoint.link().inject(&first);
    scene.send_all(connection, &messages(10, 50, 1));
    assert_eq!((scene.client.ended.len(), scene.server.heard.len()), (0, 10));
}

#[test]
fn a_connection_is_told_before_its_first_message() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let mac = scene.server.endpoint.mac();
    let connection = scene.client.endpoint.connect(mac, SERVICE, scene.now).unwrap();
    scene.server.poll(scene.now);
    // The ACK of the handshake is lost.
    scene.is_cut.set(true);
    scene.client.poll(scene.now);
    scene.is_cut.set(false);
    scene.client.endpoint.send(connection, b"first", scene.now).unwrap();
    let first = scene.server.endpoint.poll(scene.now);
    assert!(matches!(first, Some(Event::Accepted { .. })), "{first:?}");
    let second = scene.server.endpoint.poll(scene.now);
    assert!(matches!(second, Some(Event::Message { data: b"first", .. })), "{second:?}");
    scene.until("acknowledged", |scene| scene.client.endpoint.status(connection).is_some_and(|s| s.queued == 0));
}

#[test]
fn timers_of_a_connection_stay_few() {
    let mut scene = Scene::new(Weather::default(), 1, &Options { keep_alive: Some(3_600 * SECOND), ..options() });
    let connection = scene.connect();
    for _ in 0..5_000 {
        scene.client.endpoint.send(connection, b"ping", scene.now).unwrap();
        (0..3).for_each(|_| scene.step(MILLISECOND));
    }
    let audit = scene.client.endpoint.audit().expect("in order");
    assert!(audit.timers < 200, "{audit:?}");
}

#[test]
fn a_flood_of_foreign_frames_does_not_keep_a_program_in_poll() {
    let mut victim = Victim::new(options(), &MemoryOptions::default());
    (0..100_000).for_each(|_| victim.endpoint.link().inject(&[0x55; 60]));
    assert!(victim.endpoint.poll(victim.now).is_none());
    let received = victim.endpoint.counters().frames_received;
    assert!(received <= 4_096, "{received} in one call");
    assert!(!victim.endpoint.prepare_sleep(victim.now), "there is more");
}

#[test]
fn a_peer_hears_of_an_abort_although_the_program_does_nothing_more() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let connection = scene.connect();
    scene.client.endpoint.abort(connection, scene.now);
    scene.server.poll(scene.now);
    assert_eq!(scene.server.ended.len(), 1);
}

#[test]
fn an_abort_after_the_end_changes_nothing_for_the_peer() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let connection = scene.connect();
    let accepted = scene.server.connections[0];
    scene.server.endpoint.close(accepted, scene.now).unwrap();
    scene.step(MICROSECOND);
    scene.step(MICROSECOND);
    scene.client.endpoint.close(connection, scene.now).unwrap();
    scene.until("over", |scene| !scene.server.ended.is_empty());
    scene.server.endpoint.abort(accepted, scene.now);
    scene.until("over", |scene| !scene.client.ended.is_empty());
    assert_eq!(scene.client.ended[0].1, Reason::Closed);
}

#[test]
fn a_connection_that_was_agreed_waits_for_a_peer_that_comes_later() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let (client, server) = (scene.client.endpoint.mac(), scene.server.endpoint.mac());
    let connection = scene.client.endpoint.agree(server, AGREED, scene.now).unwrap();
    scene.client.endpoint.send(connection, b"early", scene.now).unwrap();
    (0..1_000).for_each(|_| scene.step(10 * MICROSECOND));
    scene.server.endpoint.agree(client, AGREED, scene.now).unwrap();
    scene.until("arrived", |scene| scene.server.heard.len() == 1);
    assert!(scene.client.ended.is_empty());
}

#[test]
fn an_honest_client_connects_while_others_ask_for_connections_and_never_confirm() {
    // One station with its own address; many addresses; and a table that requests alone would fill.
    for (stations, connections) in [(1, 1024), (250, 1024), (1, 16), (250, 16)] {
        let options = Options { connections, ..options() };
        let mut scene = Scene::new(Weather::default(), 1, &options);
        let mac = scene.server.endpoint.mac();
        let connection = scene.client.endpoint.connect(mac, SERVICE, scene.now).unwrap();
        let mut number = 0;
        scene.until("connected", |scene| {
            // 400,000 requests in a second.
            for _ in 0..4 {
                number += 1;
                let from = [2, 0, 0, 0, 1, (number % stations) as u8];
                scene.server.endpoint.link().inject(&open(from, number));
            }
            !scene.server.connections.is_empty()
        });
        scene.send_all(connection, &messages(10, 50, 1));
        assert_eq!(scene.server.heard.len(), 10);
        assert!(scene.server.endpoint.connections() <= 65);
    }
}

#[test]
fn answers_to_strangers_are_bounded_although_there_is_no_room_for_them() {
    let mut victim = Victim::new(options(), &MemoryOptions { capacity: 1, ..MemoryOptions::default() });
    for number in 0..2_000 {
        victim.gets(&Header { connection: number, ..header(Kind::Data, 0) }, b"?");
        victim.poll(MILLISECOND);
    }
    let mut answers = 0;
    for _ in 0..5_000 {
        victim.poll(MICROSECOND);
        answers += victim.said().iter().filter(|header| header.kind == Kind::Unknown).count();
    }
    assert!((64..=200).contains(&answers), "{answers}");
}

#[test]
fn forged_frames_change_nothing() {
    let mut scene = Scene::new(Weather::default(), 1, &options());
    let connection = scene.connect();
    scene.send_all(connection, &messages(5, 50, 1));
    let identifiers: BTreeSet<u32> = [0, 1, scene.server.connections[0].number()].into();
    let before = scene.server.endpoint.status(scene.server.connections[0]);
    let mut count = 0;
    for kind in [Kind::Accept, Kind::Data, Kind::Ack, Kind::Probe, Kind::End, Kind::Reset, Kind::Unknown] {
        for connection in identifiers.iter().copied() {
            for from in [CLIENT, [2, 0, 0, 0, 0, 9]] {
                count += 1;
                let header = Header { connection, token: 0x1234, ..header(kind, 5) };
                scene.server.endpoint.link().inject(&frame(from, &header, &[3]));
            }
        }
    }
    scene.step(MICROSECOND);
    assert_eq!(scene.server.endpoint.status(scene.server.connections[0]), before);
    assert_eq!(scene.server.endpoint.counters().no_connection, count);
    scene.send_all(connection, &messages(5, 50, 1));
    assert_eq!(scene.server.heard.len(), 10);
}

#[test]
fn forged_entries_of_an_acknowledgement_of_many_change_nothing() {
    let mut victim = Victim::new(Options { checksums: true, ..options() }, &MemoryOptions::default());
    victim.endpoint.send(victim.connection, b"one", victim.now).expect("room");
    victim.endpoint.send(victim.connection, b"two", victim.now).expect("room");
    victim.poll(MICROSECOND);
    let (connection, token) = ((AGREED >> 32) as u32, AGREED as u32);
    let entry =
        |connection, token, acknowledgement| AcksEntry { connection, token, acknowledgement, window: 100 }.encode();
    let acks = Header { connection: 0, token: 0, window: 0, ..header(Kind::Acks, 0) };
    let right = entry(connection, token, 1);
    let strangers = [entry(connection, token + 1, 1), entry(7, token, 1), entry(0, 0, 0)].concat();
    victim.gets(&acks, &strangers);
    victim.endpoint.link().inject(&frame([2, 0, 0, 0, 0, 9], &acks, &right));
    victim.gets(&acks, &entry(connection, token, 3));
    victim.gets(&Header { flags: 0, ..acks }, &right);
    victim.gets(&acks, &right[..15]);
    victim.gets(&acks, &[]);
    victim.poll(MICROSECOND);
    let counters = *victim.endpoint.counters();
    assert_eq!((counters.no_connection, counters.bad_acknowledgement, counters.bad_checksum), (4, 1, 1));
    let acknowledged = |victim: &mut Victim| {
        victim.endpoint.status(victim.connection).map(|status| (status.acknowledged, status.queued))
    };
    assert_eq!(acknowledged(&mut victim), Some((0, 2)));
    // The same connection often in one frame, among others.
    victim.gets(&acks, &[right, entry(7, 7, 7), entry(connection, token, 2), right].concat());
    victim.poll(MICROSECOND);
    assert_eq!(acknowledged(&mut victim), Some((2, 0)));
}

#[test]
fn an_empty_segment_that_a_device_cuts_off_the_end_is_no_message() {
    let options = |last| Options { address: Some([10, 0, 0, last].into()), ..options() };
    let links = MemoryOptions { offload: true, buffer: 65_472, buffers: 128, ..MemoryOptions::default() };
    let mut scene = Scene::with(Weather::default(), 1, &options(1), &options(2), &links);
    let connection = scene.connect();
    // Behind each buffer comes its header again, with the number behind the last message.
    scene.client.endpoint.link().set_network(|frame, queue| {
        let is_train = frame.offload.is_some_and(|offload| offload.gso_size > 0);
        let mut empty = frame.clone();
        queue.push_back(frame);
        if is_train {
            let count = (empty.bytes.len() - 74).div_ceil(1_000) as u16;
            empty.bytes.truncate(74);
            empty.bytes[16..18].copy_from_slice(&60_u16.to_be_bytes());
            let number = u16::from_be_bytes([empty.bytes[18], empty.bytes[19]]);
            empty.bytes[18..20].copy_from_slice(&number.wrapping_add(count).to_be_bytes());
            empty.offload = empty.offload.map(|offload| Offload { gso: Gso::None, gso_size: 0, ..offload });
            queue.push_back(empty);
        }
    });
    for number in 0..10 {
        let mut outgoing = scene.client.endpoint.reserve_many().expect("a buffer");
        outgoing[..20_000].fill(number);
        scene.client.endpoint.commit_many(connection, outgoing, 20_000, 1_000, scene.now).expect("room");
    }
    scene.until("all arrived", |scene| scene.server.heard.len() >= 200);
    let expected: Vec<Vec<u8>> = (0..10).flat_map(|number| vec![vec![number; 1_000]; 20]).collect();
    assert!(scene.server.heard == expected);
    scene.until("acknowledged", |scene| {
        scene.client.endpoint.status(connection).is_some_and(|status| status.queued == 0)
    });
}

#[test]
fn small_frames_and_wide_windows_go_together() {
    let options = Options { window: 4_096, queue: 4_096, checksums: true, ..options() };
    let links = MemoryOptions { buffer: 256, buffers: 8_192, capacity: 8_192, ..MemoryOptions::default() };
    let mut scene = Scene::with(Weather { lost: 20, ..Weather::default() }, 3, &options, &options, &links);
    let connection = scene.connect();
    let all = messages(20_000, 100, 1);
    scene.send_all(connection, &all);
    assert!(scene.server.heard == all);
}

#[test]
fn a_request_that_was_damaged_does_not_spoil_the_next_one() {
    let server = Options { checksums: true, ..options() };
    let mut scene = Scene::with(Weather::default(), 1, &options(), &server, &MemoryOptions::default());
    let mut is_first = true;
    scene.client.endpoint.link().set_network(move |mut frame: InFlight, queue| {
        if std::mem::take(&mut is_first) {
            // The number.
            frame.bytes[14 + 13] ^= 1;
        }
        queue.push_back(frame);
    });
    let connection = scene.connect();
    scene.send_all(connection, &messages(5, 50, 1));
}

#[test]
fn odd_options_and_times_end_no_program() {
    let odd = Options { segment: 0, acknowledge_within: Nanos::MAX, long: 100_000, queue: 0, ..options() };
    let odd = Options { address: Some([10, 0, 0, 1].into()), keep_alive: Some(Nanos::MAX), ..odd };
    let links = MemoryOptions { offload: true, ..MemoryOptions::default() };
    let mut scene = Scene::with(Weather::default(), 1, &odd, &odd, &links);
    let connection = scene.connect();
    scene.client.endpoint.send_long(connection, &[1; 30_000], scene.now).unwrap();
    scene.until("arrived", |scene| scene.server.heard.len() == 1);
    scene.client.endpoint.close(connection, scene.now).unwrap();
    scene.now = Nanos::MAX - 1;
    scene.client.poll(scene.now);
    scene.server.poll(scene.now);
}

#[test]
fn a_message_longer_than_all_buffers_arrives_whole_and_nothing_comes_between_its_parts() {
    let options = Options { long: 1 << 20, ..options() };
    let links = MemoryOptions { buffers: 64, ..MemoryOptions::default() };
    let mut scene = Scene::with(Weather::default(), 1, &options, &options, &links);
    let connection = scene.connect();
    let long: Vec<u8> = (0..200_000).map(|at| (at % 251) as u8).collect();
    let End { endpoint, .. } = &mut scene.client;
    assert_eq!(endpoint.send_long(connection, &long, scene.now), Err(SendError::Full));
    assert_eq!(endpoint.send(connection, b"between", scene.now), Err(SendError::InMessage));
    assert_eq!(endpoint.send_long(connection, &long[1..], scene.now), Err(SendError::InMessage));
    let outgoing = endpoint.reserve().expect("a buffer");
    let refused = endpoint.commit(connection, outgoing, 5, scene.now).expect_err("it comes between");
    assert_eq!(refused.error, SendError::InMessage);
    endpoint.discard(refused.outgoing);
    assert_eq!(endpoint.close(connection, scene.now), Err(SendError::InMessage));
    scene.until("sent", |scene| {
        let is_told = std::mem::take(&mut scene.client.rooms) > 0;
        is_told && scene.client.endpoint.send_long(connection, &long, scene.now).is_ok()
    });
    scene.client.endpoint.send(connection, b"behind", scene.now).expect("room");
    scene.until("arrived", |scene| scene.server.heard.len() == 2);
    assert!(scene.server.heard == [long, b"behind".to_vec()]);
}

#[test]
fn a_connection_hears_of_buffers_that_others_gave_back() {
    let links = MemoryOptions { buffers: 32, ..MemoryOptions::default() };
    let mut scene = Scene::with(Weather::default(), 1, &options(), &options(), &links);
    let first = scene.connect();
    let mac = scene.server.endpoint.mac();
    let second = scene.client.endpoint.connect(mac, SERVICE, scene.now).unwrap();
    scene.until("both", |scene| scene.server.connections.len() == 2);
    while scene.client.endpoint.send(first, b"takes all", scene.now).is_ok() {}
    assert_eq!(scene.client.endpoint.send(second, b"no buffer", scene.now), Err(SendError::Full));
    scene.client.rooms = 0;
    scene.until("room for both", |scene| scene.client.rooms == 2);
    scene.client.endpoint.send(second, b"now", scene.now).unwrap();
}

#[test]
fn a_peer_that_does_not_know_a_connection_is_asked_once_more() {
    let mut victim = Victim::new(options(), &MemoryOptions::default());
    victim.gets(&header(Kind::Data, 0), b"known");
    victim.poll(MILLISECOND);
    victim.said();
    victim.gets(&header(Kind::Unknown, 0), b"");
    victim.poll(2 * MILLISECOND);
    assert!(victim.said().iter().any(|header| header.kind == Kind::Probe), "no frame but that would tell");
    victim.gets(&header(Kind::Ack, 1), b"");
    victim.poll(2 * MILLISECOND);
    victim.gets(&header(Kind::Unknown, 0), b"");
    victim.poll(2 * MILLISECOND);
    assert_eq!((victim.said().len(), victim.ended.len()), (1, 0), "a PROBE for each doubt");
}

#[test]
fn a_peer_that_was_started_again_ends_an_idle_connection_by_two_answers_in_a_row() {
    let mut victim = Victim::new(options(), &MemoryOptions::default());
    victim.gets(&header(Kind::Data, 0), b"known");
    victim.poll(MILLISECOND);
    victim.gets(&header(Kind::Unknown, 0), b"");
    victim.poll(MICROSECOND);
    // The answer to the PROBE, after a short round trip.
    victim.gets(&header(Kind::Unknown, 0), b"");
    victim.poll(10 * MICROSECOND);
    assert_eq!(victim.ended, [Reason::Unknown]);
}

/// Another station has a connection to the victim, too, and sends a message. Returns true if it is acknowledged.
fn another_is_acknowledged(victim: &mut Victim) -> bool {
    let other = [2, 0, 0, 0, 0, 9];
    victim.endpoint.agree(other, AGREED + (1 << 32), victim.now).expect("room");
    victim.said();
    let connection = (AGREED >> 32) as u32 + 1;
    let message = Header { connection, ..header(Kind::Data, 0) };
    victim.endpoint.link().inject(&frame(other, &message, b"honest"));
    victim.poll(MILLISECOND);
    victim.poll(MILLISECOND);
    victim.said().iter().any(|header| header.connection == connection && header.acknowledgement == 1)
}

#[test]
fn a_peer_that_takes_all_buffers_leaves_some_for_acknowledgements_of_others() {
    let mut victim = Victim::new(options(), &MemoryOptions { buffers: 64, ..MemoryOptions::default() });
    while victim.endpoint.send(victim.connection, b"never acknowledged", victim.now).is_ok() {}
    (1..200).for_each(|number| victim.gets(&header(Kind::Data, number), b"early"));
    victim.poll(MICROSECOND);
    assert!(victim.endpoint.counters().no_buffer > 0);
    assert!(another_is_acknowledged(&mut victim));
}

#[test]
fn messages_that_are_taken_out_of_buffers_leave_some_for_acknowledgements() {
    let mut victim = Victim::new(options(), &MemoryOptions { buffers: 64, ..MemoryOptions::default() });
    victim.gets(&Header { window: 1_000, ..header(Kind::Ack, 0) }, b"");
    victim.poll(MICROSECOND);
    let all: Vec<_> = (0..5).filter_map(|_| victim.endpoint.reserve_many()).collect();
    for outgoing in all {
        victim.endpoint.commit_many(victim.connection, outgoing, 1_900, 100, victim.now).expect("room");
    }
    victim.poll(MICROSECOND);
    assert!(victim.endpoint.prepare_sleep(victim.now), "nothing is to be done until messages are acknowledged");
    assert!(another_is_acknowledged(&mut victim));
    let mut acknowledged = 0;
    while acknowledged < 95 {
        acknowledged += 5;
        victim.gets(&Header { acknowledgement: acknowledged, window: 1_000, ..header(Kind::Ack, 0) }, b"");
        victim.poll(MICROSECOND);
        victim.said();
    }
    let counters = *victim.endpoint.counters();
    assert_eq!((counters.messages_sent, counters.repeated, counters.timeouts, victim.free()), (95, 0, 0, 64));
}

#[test]
fn a_reset_whose_number_nobody_would_send_changes_nothing() {
    let mut victim = Victim::new(options(), &MemoryOptions::default());
    victim.gets(&header(Kind::Data, 0), b"known");
    victim.gets(&header(Kind::Data, 2), b"early");
    victim.poll(MICROSECOND);
    // Messages up to 1,025 can be under way: their sender's next number is between 1 and 1,025.
    for number in [0, 1_026, 1 << 31, u32::MAX] {
        victim.gets(&header(Kind::Reset, number), &[3]);
    }
    victim.poll(MICROSECOND);
    assert_eq!((victim.ended.len(), victim.endpoint.counters().outside_window), (0, 4));
    victim.gets(&header(Kind::Reset, 1_025), &[3]);
    victim.poll(MICROSECOND);
    assert_eq!(victim.ended, [Reason::Reset]);
}
