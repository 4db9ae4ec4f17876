//! Notification suppression, against the rules of the specification on positions that never wrap.

use super::testing::{Driver, Guest, PackedDriver, Piece, SplitDriver, both, collect, transmit_queue};
use super::{F_EVENT_IDX, F_IN_ORDER, Ring, Transmit};

both!(
    calls_are_made_exactly_when_the_event_is_passed,
    calls_are_made_exactly_when_they_are_not_declined,
    a_driver_that_waits_while_the_ring_goes_round_is_called,
    an_event_passed_laps_ago_is_not_forgotten,
    one_that_is_asked_after_more_frames_than_an_index_counts_is_called,
    kicks_are_asked_for_from_the_next_chain_on,
    in_order_one_entry_stands_for_a_batch,
    the_first_question_is_answered_with_a_call,
);

/// Ring sizes that the format allows.
fn sizes<D: Driver>() -> &'static [u16] {
    if D::PACKED { &[1, 2, 3, 5, 7] } else { &[1, 2, 4, 8] }
}

/// Positions at which the rings start: laps of both parities (packed), and indices about to wrap (split).
fn begins<D: Driver>(size: u16) -> std::ops::Range<u64> {
    if D::PACKED { 2 * u64::from(size)..4 * u64::from(size) } else { 65_536 + 65_530..2 * 65_536 + 4 }
}

fn small_frame(guest: &Guest) -> Piece {
    Piece::read(guest.place(&[0; 72]), 72)
}

fn call_wanted<R: Ring>(queue: &mut Transmit<R>) -> bool {
    queue.ring.call_wanted()
}

/// Returns a driver and its device at position `begin`. The device has decided once whether to call.
fn started<D: Driver>(guest: &Guest, size: u16, features: u64, begin: u64) -> (D, Transmit<D::Device>) {
    let mut driver = D::new(guest, size, features);
    driver.begin_at(guest, begin);
    let mut queue = transmit_queue(guest, &driver);
    assert!(call_wanted(&mut queue));
    (driver, queue)
}

/// Sends `count` frames and has their buffers marked used.
fn circulate<D: Driver>(driver: &mut D, queue: &mut Transmit<D::Device>, guest: &Guest, count: u64, piece: Piece) {
    for _ in 0..count {
        driver.put(guest, &[piece], 1).expect("room");
    }
    driver.publish(guest);
    assert_eq!(collect(queue, guest).expect("no fault").frames.len() as u64, count);
}

fn calls_are_made_exactly_when_the_event_is_passed<D: Driver>() {
    for &size in sizes::<D>() {
        let guest = Guest::new();
        let piece = small_frame(&guest);
        for old in begins::<D>(size) {
            for count in 0..=u64::from(size) {
                let new = old + count;
                for event in new - u64::from(size)..new + u64::from(size) {
                    let (mut driver, mut queue) = started::<D>(&guest, size, F_EVENT_IDX, old);
                    circulate(&mut driver, &mut queue, &guest, count, piece);
                    driver.ask_at(&guest, event);
                    let wanted = (old..new).contains(&event);
                    let case = format!("ring of {size}: {old} to {new}, event {event}");
                    assert_eq!(call_wanted(&mut queue), wanted, "{case}");
                    assert!(!call_wanted(&mut queue), "once only, {case}");
                }
            }
        }
    }
}

fn calls_are_made_exactly_when_they_are_not_declined<D: Driver>() {
    for &size in sizes::<D>() {
        let guest = Guest::new();
        let piece = small_frame(&guest);
        for old in begins::<D>(size) {
            for count in 0..=u64::from(size) {
                for declined in [false, true] {
                    let (mut driver, mut queue) = started::<D>(&guest, size, 0, old);
                    circulate(&mut driver, &mut queue, &guest, count, piece);
                    if declined {
                        driver.decline(&guest)
                    } else {
                        driver.ask_any(&guest)
                    }
                    assert_eq!(call_wanted(&mut queue), count > 0 && !declined);
                }
            }
        }
    }
}

/// Two pollers deliver in turn, and each of them asks whether to call after both have delivered.
fn a_driver_that_waits_while_the_ring_goes_round_is_called<D: Driver>() {
    for &size in sizes::<D>() {
        for laps in 2..5 {
            let guest = Guest::new();
            let piece = small_frame(&guest);
            let (mut driver, mut queue) = started::<D>(&guest, size, F_EVENT_IDX, begins::<D>(size).start);
            for _ in 0..laps {
                driver.all_used(&guest);
                driver.ask_at(&guest, driver.taken_back());
                circulate(&mut driver, &mut queue, &guest, size.into(), piece);
            }
            assert!(call_wanted(&mut queue), "{laps} laps of {size}");
        }
    }
}

/// One poller is delayed between delivering and asking. Meanwhile another delivers several laps.
fn an_event_passed_laps_ago_is_not_forgotten<D: Driver>() {
    for &size in sizes::<D>() {
        let guest = Guest::new();
        let piece = small_frame(&guest);
        let old = begins::<D>(size).start;
        for laps in 1..4 {
            for event in old..old + laps * u64::from(size) {
                let (mut driver, mut queue) = started::<D>(&guest, size, F_EVENT_IDX, old);
                driver.ask_at(&guest, event);
                for _ in 0..laps {
                    circulate(&mut driver, &mut queue, &guest, size.into(), piece);
                    driver.all_used(&guest);
                }
                assert!(call_wanted(&mut queue), "ring of {size}, {laps} laps from {old}, event {event}");
            }
        }
    }
}

/// Like moderated calls: the device does not ask for an interval, during which the driver takes frames without calls.
fn one_that_is_asked_after_more_frames_than_an_index_counts_is_called<D: Driver>() {
    const SIZE: u16 = 4;
    for first in 0..u64::from(SIZE) {
        let guest = Guest::new();
        let piece = small_frame(&guest);
        let (mut driver, mut queue) = started::<D>(&guest, SIZE, F_EVENT_IDX, begins::<D>(SIZE).start);
        circulate(&mut driver, &mut queue, &guest, first, piece);
        for _ in 1..65_536 / u64::from(SIZE) {
            driver.all_used(&guest);
            circulate(&mut driver, &mut queue, &guest, SIZE.into(), piece);
        }
        driver.all_used(&guest);
        driver.ask_at(&guest, driver.taken_back());
        circulate(&mut driver, &mut queue, &guest, SIZE.into(), piece);
        assert!(call_wanted(&mut queue), "{first} frames and a lap of the index");
    }
}

fn kicks_are_asked_for_from_the_next_chain_on<D: Driver>() {
    for features in [0, F_EVENT_IDX] {
        for &size in sizes::<D>() {
            let guest = Guest::new();
            let piece = small_frame(&guest);
            for begin in begins::<D>(size) {
                let (mut driver, mut queue) = started::<D>(&guest, size, features, begin);
                for count in 0..=u64::from(size) {
                    queue.ring.arm();
                    assert!(!queue.ring.pending());
                    let from = driver.published();
                    for _ in 0..count {
                        driver.put(&guest, &[piece], 1).expect("room");
                    }
                    driver.publish(&guest);
                    assert_eq!(driver.kick_wanted(&guest, from), count > 0, "armed, ring of {size} from {begin}");
                    assert_eq!(queue.ring.pending(), count > 0);
                    assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len() as u64, count);
                    driver.all_used(&guest);
                    // From here on the driver sends no kick until the device enables kicks again.
                    queue.ring.disarm();
                    let from = driver.published();
                    circulate(&mut driver, &mut queue, &guest, 1, piece);
                    driver.all_used(&guest);
                    assert!(count == 0 && features != 0 || !driver.kick_wanted(&guest, from), "disarmed");
                }
            }
        }
    }
}

fn in_order_one_entry_stands_for_a_batch<D: Driver>() {
    for &size in sizes::<D>() {
        for count in 1..=size {
            let guest = Guest::new();
            let piece = small_frame(&guest);
            let mut driver = D::new(&guest, size, F_IN_ORDER);
            let mut queue = transmit_queue(&guest, &driver);
            let ids: Vec<u16> = (0..count).map(|_| driver.put(&guest, &[piece], 1).expect("room")).collect();
            driver.publish(&guest);
            // The bytes that the device writes: in the table (packed), or after flags and index of the used ring
            // (split).
            let Addresses { at, bytes } = Addresses::of(&driver, size);
            let before = guest.read(at, bytes);
            assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), usize::from(count));
            let after = guest.read(at, bytes);
            let entry = if D::PACKED { 16 } else { 8 };
            let changed = before.chunks(entry).zip(after.chunks(entry)).skip(1).filter(|(old, new)| old != new).count();
            assert_eq!(changed, 0, "a ring of {size}, a batch of {count}: only the first entry is written");
            assert_eq!(driver.all_used(&guest), ids.iter().map(|&id| (id, 0)).collect::<Vec<_>>());
        }
    }
}

struct Addresses {
    at: u64,
    bytes: usize,
}

impl Addresses {
    fn of<D: Driver>(driver: &D, size: u16) -> Addresses {
        let all = driver.addresses();
        let count = usize::from(size);
        if D::PACKED {
            Addresses { at: all.descriptors, bytes: 16 * count }
        } else {
            Addresses { at: all.device + 4, bytes: 8 * count }
        }
    }
}

fn the_first_question_is_answered_with_a_call<D: Driver>() {
    let guest = Guest::new();
    let driver = D::new(&guest, 4, F_EVENT_IDX);
    driver.decline(&guest);
    let mut queue = transmit_queue(&guest, &driver);
    assert!(call_wanted(&mut queue), "the device calls, because a predecessor may have published without a call");
    assert!(!call_wanted(&mut queue));
}

#[test]
fn a_packed_driver_that_wants_any_call_or_none_gets_them_with_events_negotiated() {
    let guest = Guest::new();
    let piece = small_frame(&guest);
    let (mut driver, mut queue) = started::<PackedDriver>(&guest, 5, F_EVENT_IDX, 12);
    driver.ask_any(&guest);
    circulate(&mut driver, &mut queue, &guest, 2, piece);
    assert!(call_wanted(&mut queue));
    driver.decline(&guest);
    circulate(&mut driver, &mut queue, &guest, 2, piece);
    assert!(!call_wanted(&mut queue));
}

#[test]
fn with_events_the_flags_of_a_split_ring_mean_nothing() {
    let guest = Guest::new();
    let piece = small_frame(&guest);
    let (mut driver, mut queue) = started::<SplitDriver>(&guest, 4, F_EVENT_IDX, 0);
    driver.ask_at(&guest, 0);
    driver.decline(&guest);
    circulate(&mut driver, &mut queue, &guest, 1, piece);
    assert!(call_wanted(&mut queue));
}
