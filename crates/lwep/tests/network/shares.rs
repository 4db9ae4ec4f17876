//! Stations that want everything, and what is left for others.

use ringway_link::memory::MemoryOptions;
use ringway_lwep::wire::{Header, Kind, Mac};
use ringway_lwep::{Connection, Options, Reason, SendError};

use crate::hostile::{AGREED, MILLISECOND, Victim, frame, header, open, options};
use crate::scene::{MICROSECOND, SECOND, SERVICE, Scene, Weather};

/// A station with a connection to the victim that both have agreed on.
struct Station {
    mac: Mac,
    number: u32,
    connection: Connection,
}

impl Station {
    fn new(victim: &mut Victim, number: u8) -> Self {
        Self::again(victim, number, 0)
    }

    /// One more connection of the same station.
    fn again(victim: &mut Victim, number: u8, more: u8) -> Self {
        let (mac, number) = ([2, 0, 0, 0, 1, number], u32::from(number) << 8 | u32::from(more));
        let connection = victim.endpoint.agree(mac, AGREED + (u64::from(number) << 32), victim.now).expect("room");
        let station = Self { mac, number, connection };
        // Its window is wide.
        station.says(victim, &header(Kind::Ack, 0));
        station
    }

    fn wire_id(&self) -> u32 {
        (AGREED >> 32) as u32 + self.number
    }

    fn says(&self, victim: &mut Victim, header: &Header) {
        let connection = self.wire_id();
        let frame = frame(self.mac, &Header { connection, window: 4_096, ..*header }, b"data");
        victim.endpoint.link().inject(&frame);
    }

    fn acknowledges(&self, victim: &mut Victim, acknowledgement: u32) {
        self.says(victim, &Header { acknowledgement, ..header(Kind::Ack, 0) });
    }
}

/// Sends to a connection what it takes. Returns the number of messages.
fn fill(victim: &mut Victim, connection: Connection) -> u32 {
    (0..4_096).take_while(|_| victim.endpoint.send(connection, b"message", victim.now).is_ok()).count() as u32
}

fn victim(buffers: u32) -> Victim {
    Victim::new(options(), &MemoryOptions { buffers, capacity: 65_536, ..MemoryOptions::default() })
}

/// Time passes, without silence of the stations that say something each second.
fn pass(victim: &mut Victim, seconds: u64, mut each: impl FnMut(&mut Victim, u64)) {
    for second in 0..seconds {
        each(victim, second);
        victim.poll(SECOND);
        victim.said();
    }
}

#[test]
fn stations_that_acknowledge_nothing_leave_buffers_for_messages_to_others() {
    let mut victim = victim(1024);
    for number in 1..=8 {
        // Six connections each, of which one would take all.
        let connections: Vec<_> = (0..6).map(|more| Station::again(&mut victim, number, more)).collect();
        victim.poll(MICROSECOND);
        let taken: Vec<_> = connections.iter().map(|one| fill(&mut victim, one.connection)).collect();
        assert!(taken[0] > 0 && taken[1..].iter().all(|count| *count == 0), "station {number}: {taken:?}");
        let honest = Station::new(&mut victim, 100 + number);
        victim.poll(MICROSECOND);
        for acknowledged in 1..=100 {
            victim.endpoint.send(honest.connection, b"answer", victim.now).expect("a buffer");
            honest.acknowledges(&mut victim, acknowledged);
            victim.poll(MICROSECOND);
            victim.said();
        }
    }
}

#[test]
fn stations_that_leave_gaps_leave_buffers_for_what_is_early_from_others() {
    let mut victim = victim(1024);
    for number in 1..=8 {
        let station = Station::new(&mut victim, number);
        (1..1_000).for_each(|early| station.says(&mut victim, &header(Kind::Data, early)));
        victim.poll(MICROSECOND);
        let refused = victim.endpoint.counters().no_buffer;
        assert!(refused > 0, "it takes all that it may");
        let honest = Station::new(&mut victim, 100 + number);
        let before = victim.heard;
        [1, 0].into_iter().for_each(|number| honest.says(&mut victim, &header(Kind::Data, number)));
        victim.poll(MICROSECOND);
        assert_eq!((victim.heard, victim.endpoint.counters().no_buffer), (before + 2, refused));
        victim.said();
    }
}

/// A station acknowledges messages bit by bit, as they go out.
fn acknowledge(victim: &mut Victim, station: &Station, from: u32, to: u32) {
    for acknowledged in (from..to).step_by(4).skip(1).chain([to]) {
        station.acknowledges(victim, acknowledged);
        victim.poll(MICROSECOND);
        victim.said();
    }
    assert_eq!(victim.endpoint.status(station.connection).expect("a connection").queued, 0);
}

/// Sends to a station what it may have, which it acknowledges. Returns how many messages were sent to it.
fn exchange(victim: &mut Victim, station: &Station, before: u32) -> u32 {
    let sent = before + fill(victim, station.connection);
    assert!(sent > before, "a station is shut out");
    acknowledge(victim, station, before, sent);
    sent
}

/// A station with all the buffers for messages that it may have, of which it acknowledges one each fourth second.
fn slow(victim: &mut Victim) -> (Station, u32) {
    let slow = Station::new(victim, 1);
    victim.poll(MICROSECOND);
    let taken = fill(victim, slow.connection);
    (slow, taken)
}

#[test]
fn what_a_slow_station_has_is_taken_back_when_another_one_lacks_it() {
    let mut victim = victim(1024);
    let (slow, taken) = slow(&mut victim);
    // Alone it does no harm.
    pass(&mut victim, 100, |victim, second| slow.acknowledges(victim, second as u32 / 4));
    assert_eq!((victim.ended.len(), taken > 300), (0, true));
    let other = Station::new(&mut victim, 2);
    victim.poll(MICROSECOND);
    let mut sent = 0;
    pass(&mut victim, 40, |victim, second| {
        slow.acknowledges(victim, 25 + second as u32 / 4);
        sent = exchange(victim, &other, sent);
    });
    assert_eq!(victim.ended, [Reason::NoAnswer]);
    assert!(victim.endpoint.status(slow.connection).is_none());
    assert!(victim.endpoint.status(other.connection).is_some());
}

#[test]
fn a_station_with_many_buffers_that_is_not_slow_keeps_its_connection() {
    let mut victim = victim(1024);
    let busy = Station::new(&mut victim, 1);
    victim.poll(MICROSECOND);
    let other = Station::new(&mut victim, 2);
    let (mut to_busy, mut to_other) = (0, 0);
    pass(&mut victim, 100, |victim, _| {
        let sent = to_busy + fill(victim, busy.connection);
        to_other = exchange(victim, &other, to_other);
        acknowledge(victim, &busy, to_busy, sent);
        to_busy = sent;
    });
    assert!(victim.ended.is_empty() && to_busy > 30_000 && to_other > 5_000, "{to_busy} {to_other}");
}

#[test]
fn what_a_station_keeps_behind_a_gap_is_taken_back_when_another_one_lacks_it() {
    let mut victim = victim(1024);
    let slow = Station::new(&mut victim, 1);
    // All but the first message of its window.
    (1..1_000).for_each(|early| slow.says(&mut victim, &header(Kind::Data, early)));
    pass(&mut victim, 100, |victim, _| slow.says(victim, &header(Kind::Probe, 1_000)));
    assert!(victim.ended.is_empty(), "alone it does no harm");
    let other = Station::new(&mut victim, 2);
    let refused = victim.endpoint.counters().no_buffer;
    pass(&mut victim, 40, |victim, second| {
        // 200 messages come early, and then the one that was missing.
        let first = 201 * second as u32;
        (1..=200).for_each(|early| other.says(victim, &header(Kind::Data, first + early)));
        other.says(victim, &header(Kind::Data, first));
        victim.poll(MICROSECOND);
        (1..=200).for_each(|early| other.says(victim, &header(Kind::Data, first + early)));
        slow.says(victim, &header(Kind::Probe, 1_000));
    });
    assert!(victim.endpoint.counters().no_buffer > refused, "the other one lacks buffers at first");
    assert_eq!(victim.ended, [Reason::NoAnswer]);
    assert!(victim.endpoint.status(other.connection).is_some());
}

#[test]
fn a_long_message_is_sent_beside_a_station_that_always_has_many_buffers() {
    let links = MemoryOptions { buffers: 4_096, capacity: 65_536, ..MemoryOptions::default() };
    let long = vec![7; 1 << 20];
    let mut victim = Victim::new(Options { long: 1 << 20, ..options() }, &links);
    let busy = [0, 1].map(|more| Station::again(&mut victim, 1, more));
    let honest = Station::new(&mut victim, 2);
    victim.poll(MICROSECOND);
    let (mut acknowledged, mut sent, mut steps) = (0, 0, 0);
    busy.iter().for_each(|one| sent = fill(&mut victim, one.connection).max(sent));
    assert!(sent > 900, "it has much: {sent}");
    // It is not slow, and the program has more for it at once.
    let mut number = 0;
    while let Err(error) = victim.endpoint.send_long(honest.connection, &long, victim.now) {
        assert_eq!((error, steps < 100), (SendError::Full, true), "after {number} fragments");
        steps += 1;
        acknowledged += 40;
        busy.iter().for_each(|one| one.acknowledges(&mut victim, acknowledged));
        victim.poll(SECOND);
        for one in &busy {
            fill(&mut victim, one.connection);
        }
        let said = victim.said();
        let fragments = said.iter().filter(|said| said.kind == Kind::Data && said.connection == honest.wire_id());
        number = fragments.map(|said| said.number + 1).max().unwrap_or(number);
        honest.acknowledges(&mut victim, number);
    }
    assert!(victim.ended.is_empty());
}

/// Returns what the victim has answered to each OPEN of a station, up to the fifth refusal. The station completes connections.
fn ask(victim: &mut Victim, mac: Mac, numbers: std::ops::Range<u32>) -> Vec<Kind> {
    let mut answers = vec![];
    for number in numbers {
        if answers.iter().filter(|kind| **kind == Kind::Reset).count() == 5 {
            break;
        }
        victim.endpoint.link().inject(&open(mac, number));
        victim.poll(MILLISECOND);
        for said in victim.said().iter().filter(|said| said.connection == number && said.token == number) {
            answers.push(said.kind);
            if said.kind == Kind::Accept {
                let ack = Header { number: 5, ..victim.accepted };
                victim.endpoint.link().inject(&frame(mac, &ack, b""));
                victim.poll(MICROSECOND);
            }
        }
    }
    answers
}

#[test]
fn stations_that_take_all_connections_they_may_leave_some_for_others() {
    let mut victim = victim(1024);
    let mut last = 1_024;
    for station in 1..=20 {
        let answers = ask(&mut victim, [2, 0, 0, 0, 1, station], 0..1_100);
        let accepted = answers.iter().filter(|kind| **kind == Kind::Accept).count();
        assert!((1..=last).contains(&accepted) && answers.len() == accepted + 5, "{station}: {accepted}");
        assert!(answers[accepted..].iter().all(|kind| *kind == Kind::Reset));
        last = accepted;
    }
    assert_eq!(ask(&mut victim, [2, 0, 0, 0, 1, 99], 0..1), [Kind::Accept]);
    assert!(victim.ended.is_empty(), "nobody else loses a connection for it");
}

#[test]
fn a_station_that_asks_for_many_connections_displaces_none_of_others() {
    let mut victim = victim(1024);
    let (honest, hostile) = ([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]);
    victim.endpoint.link().inject(&open(honest, 7));
    victim.poll(MILLISECOND);
    victim.said();
    let message = Header { kind: Kind::Data, number: 5, ..victim.accepted };
    for number in 0..200 {
        victim.endpoint.link().inject(&open(hostile, number));
        victim.poll(MICROSECOND);
    }
    // More stations come.
    (3..20).for_each(|station| victim.endpoint.link().inject(&open([2, 0, 0, 0, 1, station], 0)));
    victim.poll(MICROSECOND);
    victim.endpoint.link().inject(&frame(honest, &message, b"mine"));
    victim.poll(MICROSECOND);
    assert_eq!(victim.heard, 1, "{:?}", victim.endpoint.counters());
}

#[test]
fn strangers_that_use_up_their_answers_leave_some_for_others() {
    let mut victim = victim(1024);
    let stray = |number| frame([2, 0, 0, 0, 1, 1], &Header { connection: number, ..header(Kind::Data, 0) }, b"?");
    (0..2_000).for_each(|number| victim.endpoint.link().inject(&stray(number)));
    victim.poll(MICROSECOND);
    victim.said();
    // Addresses share credits at random: not all of these that one.
    for station in 2..30 {
        let header = Header { connection: 5_000 + u32::from(station), ..header(Kind::Data, 0) };
        victim.endpoint.link().inject(&frame([2, 0, 0, 0, 1, station], &header, b"?"));
    }
    victim.poll(MICROSECOND);
    let heard = victim.said().iter().filter(|said| said.kind == Kind::Unknown && said.connection >= 5_000).count();
    assert!(heard > 0, "{:?}", victim.endpoint.counters());
}

/// Bytes of the longest message in these tests.
const LONG: u32 = 100_000;

fn victim_of_long_messages() -> Victim {
    let links = MemoryOptions { buffers: 1024, capacity: 65_536, ..MemoryOptions::default() };
    Victim::new(Options { long: LONG, ..options() }, &links)
}

/// A station sends fragments of a long message of 1,900 bytes each.
fn fragments(victim: &mut Victim, station: &Station, numbers: std::ops::Range<u32>, last: u32) {
    for number in numbers {
        let connection = station.wire_id();
        let header =
            Header { connection, remaining: (last - number) as u16, window: 100, ..header(Kind::Data, number) };
        victim.endpoint.link().inject(&frame(station.mac, &header, &[7; 1_900]));
    }
    victim.poll(MICROSECOND);
    victim.said();
}

/// Returns true if a new connection of a station brings a long message.
fn brings(victim: &mut Victim, station: u8, more: u8) -> bool {
    let (before, station) = (victim.heard, Station::again(victim, station, more));
    fragments(victim, &station, 0..50, 49);
    victim.heard > before
}

#[test]
fn long_messages_that_are_slow_make_room_for_those_of_others() {
    let mut victim = victim_of_long_messages();
    for (number, more) in (1..=6).flat_map(|number| (0..60).map(move |more| (number, more))) {
        let station = Station::again(&mut victim, number, more);
        fragments(&mut victim, &station, 0..49, 1_000);
    }
    let ended = victim.ended.len();
    pass(&mut victim, 20, |_, _| ());
    assert_eq!(victim.ended.len(), ended, "alone they do no harm");
    assert!(!brings(&mut victim, 100, 0), "what has not had its time stays");
    pass(&mut victim, 11, |_, _| ());
    assert!(brings(&mut victim, 100, 1), "it finds room when others have had their time");
    assert!(victim.ended.contains(&Reason::NoAnswer));
}

#[test]
fn a_station_that_was_started_again_finds_room_for_long_messages() {
    let mut victim = victim_of_long_messages();
    for more in 0..60 {
        let station = Station::again(&mut victim, 1, more);
        fragments(&mut victim, &station, 0..49, 1_000);
    }
    assert!(!brings(&mut victim, 1, 60));
    pass(&mut victim, 31, |_, _| ());
    assert!(brings(&mut victim, 1, 61));
}

#[test]
fn endpoints_with_few_buffers_serve_their_only_peer() {
    for (buffers, connections) in [2, 4, 8, 16, 36, 64].into_iter().flat_map(|buffers| [(buffers, 1), (buffers, 8)]) {
        let options = Options { long: 60_000, connections, ..options() };
        let links = MemoryOptions { buffers, ..MemoryOptions::default() };
        let weather = Weather { lost: 5, swapped: 5, ..Weather::default() };
        let mut scene = Scene::with(weather, 1, &options, &options, &links);
        let mac = scene.server.endpoint.mac();
        for _ in 0..connections {
            scene.client.endpoint.connect(mac, SERVICE, scene.now).expect("room");
        }
        scene.until("connected", |scene| {
            let ends = [&scene.client, &scene.server];
            ends.iter().all(|end| end.connections.len() == connections as usize)
        });
        let message = vec![5; 60_000];
        let mut left = [vec![3; connections as usize], vec![3; connections as usize]];
        let all = 3 * connections as usize;
        scene.until(&format!("{buffers} buffers, {connections} connections"), |scene| {
            for (end, left) in [&mut scene.client, &mut scene.server].into_iter().zip(&mut left) {
                for (connection, left) in end.connections.iter().zip(left).filter(|(_, left)| **left > 0) {
                    match end.endpoint.send_long(*connection, &message, scene.now) {
                        Ok(()) => *left -= 1,
                        Err(error) => assert_eq!(error, SendError::Full, "{buffers} {connections}: {:?}", end.ended),
                    }
                }
            }
            [&scene.client, &scene.server].iter().all(|end| end.heard.len() == all)
        });
        println!("{buffers} {connections}: {} ms {:?}", scene.now / 1_000_000, scene.client.endpoint.counters());
    }
}

#[test]
fn long_messages_that_are_never_complete_leave_memory_for_those_of_others() {
    let mut victim = victim_of_long_messages();
    for number in 0..200 {
        let station = Station::again(&mut victim, 1, number);
        fragments(&mut victim, &station, 0..50, 1_000);
    }
    assert!(victim.ended.len() > 100 && victim.ended.iter().all(|reason| *reason == Reason::TooLong));
    // An end in the middle of a message gives its memory back, too.
    for number in 0..200 {
        let station = Station::again(&mut victim, 3, number);
        fragments(&mut victim, &station, 0..5, 1_000);
        station.says(&mut victim, &header(Kind::End, 5));
        victim.endpoint.close(station.connection, victim.now).expect("a connection");
        victim.poll(MICROSECOND);
        station.says(&mut victim, &Header { acknowledgement: 1, ..header(Kind::Ack, 6) });
        victim.poll(MICROSECOND);
        assert_eq!(victim.ended.last(), Some(&Reason::Closed));
        victim.said();
    }
    assert!(brings(&mut victim, 2, 0));
}

#[test]
fn a_late_duplicate_of_a_request_makes_no_second_connection() {
    let mut victim = victim(1024);
    let mac = [2, 0, 0, 0, 1, 1];
    assert_eq!(ask(&mut victim, mac, 7..8), [Kind::Accept]);
    let before = victim.endpoint.connections();
    (0..100).for_each(|_| victim.endpoint.link().inject(&open(mac, 7)));
    victim.poll(MILLISECOND);
    assert_eq!((victim.endpoint.connections(), victim.said().len()), (before, 0));
}

#[test]
fn a_service_that_sends_hears_of_buffers_that_are_taken_back() {
    let mut victim = victim(256);
    slow(&mut victim);
    let other = Station::new(&mut victim, 2);
    victim.poll(MICROSECOND);
    fill(&mut victim, other.connection);
    assert_eq!(victim.endpoint.send(other.connection, b"more", victim.now), Err(SendError::Full));
    // The program waits for room. The endpoint itself knows when to look.
    while victim.ended.is_empty() && victim.now < 60 * SECOND {
        let at = victim.endpoint.next_deadline().expect("a deadline");
        victim.poll(at.saturating_sub(victim.now).max(MICROSECOND));
        victim.said();
    }
    assert_eq!(victim.ended, [Reason::NoAnswer]);
    assert_eq!(victim.endpoint.send(other.connection, b"more", victim.now), Ok(()));
}
