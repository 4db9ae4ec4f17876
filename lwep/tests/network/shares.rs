//! Stations that want everything, and what is left for others.

use ringway_link::memory::MemoryOptions;
use ringway_lwep::wire::{Header, Kind, Mac};
use ringway_lwep::{Connection, Nanos, Options, Reason, SendError};

use crate::counted;
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
    fn again(victim: &mut Victim, number: u8, more: u16) -> Self {
        Self::if_there_is_room(victim, number, more).expect("room")
    }

    fn if_there_is_room(victim: &mut Victim, number: u8, more: u16) -> Option<Self> {
        let (mac, number) = ([2, 0, 0, 0, 1, number], u32::from(number) << 16 | u32::from(more));
        let connection = victim.endpoint.agree(mac, AGREED + (u64::from(number) << 32), victim.now).ok()?;
        let station = Self { mac, number, connection };
        // Its window is wide.
        station.says(victim, &header(Kind::Ack, 0));
        Some(station)
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
fn brings(victim: &mut Victim, station: u8, more: u16) -> bool {
    let (before, station) = (victim.heard, Station::again(victim, station, more));
    fragments(victim, &station, 0..50, 49);
    victim.heard > before
}

/// Bytes of a fragment in these tests, and fragments of the longest message.
const FRAGMENT: u32 = 1_900;
const FRAGMENTS: u32 = LONG / FRAGMENT;

/// A station that takes all memory it may. It completes each message after some time, and begins the next one at once.
struct Greedy {
    number: u8,
    /// Each connection, the number of its next fragment, and since when it waits.
    open: Vec<(Station, u32, u64)>,
    made: u16,
}

impl Greedy {
    fn new(number: u8) -> Self {
        Self { number, open: vec![], made: 0 }
    }

    /// All connections but those whose last fragment has waited for less than `patience` go on. New ones begin, up to `most` in all.
    fn goes_on(&mut self, victim: &mut Victim, patience: Nanos, most: usize) {
        for (station, next, since) in &mut self.open {
            if victim.now >= *since + patience {
                fragments(victim, station, *next..*next + 1, *next);
                fragments(victim, station, *next + 1..*next + FRAGMENTS, *next + FRAGMENTS);
                (*next, *since) = (*next + FRAGMENTS, victim.now);
            }
        }
        self.open.retain(|(station, ..)| victim.endpoint.status(station.connection).is_some());
        let mut is_refused = false;
        while self.open.len() < most && !is_refused {
            self.made += 1;
            let Some(station) = Station::if_there_is_room(victim, self.number, self.made) else { break };
            fragments(victim, &station, 0..FRAGMENTS - 1, FRAGMENTS - 1);
            is_refused = victim.endpoint.status(station.connection).is_none();
            if !is_refused {
                self.open.push((station, FRAGMENTS - 1, victim.now));
            }
        }
    }
}

/// A message of an honest station comes, whose link needs `each` for a fragment, beside these.
fn comes_beside(victim: &mut Victim, greedy: &mut [Greedy], patience: Nanos, each: Nanos) {
    let honest = Station::new(victim, 200);
    for number in 0..FRAGMENTS {
        greedy.iter_mut().for_each(|one| one.goes_on(victim, patience, 60));
        fragments(victim, &honest, number..number + 1, FRAGMENTS - 1);
        let (beside, lost) = (greedy.len(), victim.ended.len());
        assert!(
            victim.endpoint.status(honest.connection).is_some(),
            "after {number} fragments, {each} ns each, beside {beside} stations that complete messages after {patience} ns; {lost} ended"
        );
        victim.poll(each);
        victim.said();
    }
    victim.endpoint.abort(honest.connection, victim.now);
    victim.poll(MICROSECOND);
    victim.said();
}

#[test]
fn stations_that_complete_all_their_long_messages_leave_memory_for_those_of_others() {
    for stations in [4, 12, 40] {
        for patience in [29 * SECOND, SECOND] {
            let mut victim = victim_of_long_messages();
            let mut greedy: Vec<Greedy> = (1..=stations).map(Greedy::new).collect();
            for _ in 0..40 {
                greedy.iter_mut().for_each(|one| one.goes_on(&mut victim, patience, 60));
                victim.poll(SECOND);
                victim.said();
            }
            // At 19 GB/s, 20 KB/s, and slower than the least rate: minutes for a message.
            for each in [100, 95 * MILLISECOND, 10 * SECOND] {
                comes_beside(&mut victim, &mut greedy, patience, each);
            }
        }
    }
}

#[test]
fn long_messages_alone_in_their_memory_may_be_slow() {
    let mut victim = victim_of_long_messages();
    let slow: Vec<Station> = (0..40).map(|more| Station::again(&mut victim, 1, more)).collect();
    slow.iter().for_each(|one| fragments(&mut victim, one, 0..49, FRAGMENTS));
    pass(&mut victim, 200, |_, _| ());
    assert!(victim.ended.is_empty() && brings(&mut victim, 2, 0));
}

#[test]
fn long_messages_that_come_slower_than_the_least_rate_make_room_beyond_64_stations() {
    let mut victim = victim_of_long_messages();
    let mut greedy: Vec<Greedy> = (1..=90).map(Greedy::new).collect();
    greedy.iter_mut().for_each(|one| one.goes_on(&mut victim, 60 * SECOND, 1));
    assert!(!brings(&mut victim, 200, 0), "each has one message at most, and none is slow");
    pass(&mut victim, 37, |_, _| ());
    assert!(brings(&mut victim, 200, 1));
}

#[test]
fn a_station_that_was_started_again_finds_room_for_long_messages() {
    let mut victim = victim_of_long_messages();
    for more in 0..60 {
        let station = Station::again(&mut victim, 1, more);
        fragments(&mut victim, &station, 0..49, 1_000);
    }
    assert!(!brings(&mut victim, 1, 60));
    pass(&mut victim, 37, |_, _| ());
    assert!(brings(&mut victim, 1, 61));
}

/// Most memory for long messages that are not complete.
const MOST_LONG: isize = 64 * LONG as isize;

/// How much more memory there is than before. Lists and tables take some, too.
fn grown(before: isize) -> isize {
    counted::bytes() - before - (1 << 20)
}

#[test]
fn a_connection_that_has_had_a_long_message_keeps_no_memory_of_it() {
    let mut victim = victim_of_long_messages();
    let stations: Vec<Station> = (0..200).map(|more| Station::again(&mut victim, 1, more)).collect();
    victim.poll(MICROSECOND);
    let before = counted::bytes();
    for station in &stations {
        fragments(&mut victim, station, 0..50, 49);
        fragments(&mut victim, station, 50..51, 90);
    }
    assert_eq!((victim.heard, victim.ended.len()), (200, 0));
    assert!(grown(before) < 200 * 2 * FRAGMENT as isize, "{}", grown(before));
}

#[test]
fn long_messages_have_no_more_memory_than_they_may_whatever_grows() {
    for count in [1, 2, 5, 17, 33, 34, 50] {
        let mut victim = victim_of_long_messages();
        let stations: Vec<Station> = (1..=200).map(|number| Station::new(&mut victim, number)).collect();
        victim.poll(MICROSECOND);
        let before = counted::bytes();
        stations.iter().for_each(|station| fragments(&mut victim, station, 0..count, 1_000));
        assert!(grown(before) <= MOST_LONG, "{count}: {}", grown(before));
        // What a message declares it will be, it does not get before.
        assert!(grown(before) <= 200 * 2 * (count * FRAGMENT) as isize, "{count}: {}", grown(before));
    }
}

/// Stations with one message each that take all memory for long messages.
fn take_all(victim: &mut Victim, numbers: std::ops::RangeInclusive<u8>) {
    for number in numbers {
        let station = Station::new(victim, number);
        fragments(victim, &station, 0..FRAGMENTS, 1_000);
    }
}

#[test]
fn a_station_beyond_its_part_does_not_use_up_the_look_of_those_that_have_less() {
    let mut victim = victim_of_long_messages();
    take_all(&mut victim, 1..=90);
    pass(&mut victim, 37, |_, _| ());
    // It has a whole message.
    let beyond = Station::again(&mut victim, 1, 1);
    fragments(&mut victim, &beyond, 0..1, 1_000);
    let next = Station::new(&mut victim, 200);
    fragments(&mut victim, &next, 0..FRAGMENTS, 1_000);
    assert!(brings(&mut victim, 201, 0), "within the same second");
}

#[test]
fn the_time_of_a_pause_makes_no_long_message_slow() {
    let mut victim = victim_of_long_messages();
    let honest = Station::new(&mut victim, 99);
    fragments(&mut victim, &honest, 0..10, FRAGMENTS - 1);
    victim.endpoint.pause(honest.connection);
    pass(&mut victim, 60, |_, _| ());
    take_all(&mut victim, 1..=90);
    assert!(!brings(&mut victim, 200, 0), "all memory is in use");
    victim.poll(SECOND);
    let is_there = |victim: &mut Victim| victim.endpoint.status(honest.connection).is_some();
    assert!(is_there(&mut victim), "the program has paused it");
    victim.endpoint.resume(honest.connection);
    victim.poll(SECOND);
    assert!(!brings(&mut victim, 200, 1) && is_there(&mut victim), "it has had no time yet");
    pass(&mut victim, 31, |victim, _| assert!(is_there(victim)));
    brings(&mut victim, 200, 2);
    assert!(!is_there(&mut victim), "it has had its time");
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
