//! A device dies at any point of a release, and another device continues its packed ring. The front end reports the
//! ring's first position, as QEMU does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::inflight::{Inflight, InflightNote};
use super::testing::{Driver, Guest, PackedDriver, Piece, collect, deliver, receive_queue, transmit_queue};
use super::{F_IN_ORDER, F_INDIRECT_DESC};

const HEADER: usize = 12;
const SIZE: u16 = 16;

fn memory() -> Arc<Inflight> {
    let (area, file) = Inflight::create(2).expect("memory");
    Arc::new(
        Inflight::map(&ringway_memory::Quota::of_port(ringway_memory::Limits::PORT), &file, area, 2).expect("memory"),
    )
}

fn taken(memory: &Arc<Inflight>) -> Option<InflightNote> {
    InflightNote::of(memory, 0, 7)
}

/// Returns the ring's descriptors as pairs of words.
fn descriptors(guest: &Guest, driver: &PackedDriver) -> Vec<[u64; 2]> {
    let at = |slot: u64| driver.addresses().descriptors + 16 * slot;
    let word = |address| guest.word64(address).load(Ordering::Relaxed);
    (0..SIZE.into()).map(|slot| [word(at(slot)), word(at(slot) + 8)]).collect()
}

fn put_descriptor(guest: &Guest, driver: &PackedDriver, slot: usize, words: [u64; 2]) {
    let at = driver.addresses().descriptors + 16 * slot as u64;
    guest.word64(at).store(words[0], Ordering::Relaxed);
    guest.word64(at + 8).store(words[1], Ordering::Relaxed);
}

fn frame(number: u8) -> Vec<u8> {
    vec![number; 60]
}

fn put_frame(guest: &Guest, driver: &mut PackedDriver, number: u8, direct: usize) -> u16 {
    let place = guest.place(&[&[0; HEADER][..], &frame(number)].concat());
    let pieces = [Piece::read(place, HEADER), Piece::read(place + HEADER as u64, 20), Piece::read(place + 32, 40)];
    driver.put(guest, &pieces, direct).expect("room")
}

#[test]
fn frames_that_were_taken_are_given_back_once_and_not_sent_again() {
    for features in [F_INDIRECT_DESC, F_INDIRECT_DESC | F_IN_ORDER] {
        // `before` frames circulated earlier, `done` frames are marked used when the process dies, and each chain has
        // `direct` descriptors (0: one indirect).
        for (before, done, direct) in (0..40).flat_map(|b| (0..=4).flat_map(move |d| [(b, d, 0), (b, d, 3)])) {
            let guest = Guest::new();
            let mut driver = PackedDriver::new(&guest, SIZE, features);
            let record = memory();
            let mut queue = transmit_queue(&guest, &driver);
            queue.set_noted(&guest.memory, taken(&record));
            for number in 0..before {
                put_frame(&guest, &mut driver, number, if number % 3 == 0 { 3 } else { 0 });
                driver.publish(&guest);
                assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), 1);
                assert_eq!(driver.all_used(&guest).len(), 1);
            }
            let ids: Vec<(u16, u32)> =
                (0..4).map(|number| (put_frame(&guest, &mut driver, number, direct), 0)).collect();
            driver.publish(&guest);
            let available = descriptors(&guest, &driver);
            let first = driver.taken_back() as usize % usize::from(SIZE);
            let mut storage = ringway_switch::BatchStorage::new(256).into_batch();
            let bounce = super::Bounce::default();
            queue.collect(&guest.memory, &bounce, &mut storage).expect("no fault");
            assert_eq!(storage.len(), 4);
            drop(storage);
            // A release writes these descriptors, and only a part of them is written before the process dies. The first
            // is written last.
            let left = taken(&record).and_then(|taken| taken.noted()).expect("a record of the chains in flight");
            queue.release(&guest.memory).expect("no fault");
            let given_back = descriptors(&guest, &driver);
            if done < 4 {
                let mut changed: Vec<usize> =
                    (first..first + usize::from(SIZE)).map(|at| at % usize::from(SIZE)).collect();
                changed.retain(|&slot| available[slot] != given_back[slot]);
                for &slot in changed.iter().skip(1 + done) {
                    put_descriptor(&guest, &driver, slot, available[slot]);
                }
                put_descriptor(&guest, &driver, first, available[first]);
            }
            taken(&record).expect("a place").note(left.from, left.until);
            drop(queue);

            let mut queue = super::Transmit::new(
                driver.device_at(&guest, driver.base(0)).expect("a ring"),
                HEADER,
                usize::MAX,
                ringway_switch::Accepts::EVERYTHING,
            );
            queue.set_noted(&guest.memory, taken(&record));
            let case = format!("{before} before, {done} given back, {direct} direct, features {features:x}");
            assert_eq!(driver.all_used(&guest), ids, "{case}");
            for number in 10..30 {
                let id = put_frame(&guest, &mut driver, number, 0);
                driver.publish(&guest);
                let sent = collect(&mut queue, &guest).expect("no fault");
                assert_eq!(sent.frames.iter().map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>(), [frame(number)]);
                assert_eq!(driver.all_used(&guest), [(id, 0)], "{case}");
            }
        }
    }
}

#[test]
fn buffers_that_were_filled_are_given_back_once_and_the_next_are_filled() {
    for (before, done) in (0..40).flat_map(|before| (0..=5).map(move |done| (before, done))) {
        let guest = Guest::new();
        let mut driver = PackedDriver::new(&guest, SIZE, 0);
        let record = memory();
        let mut queue = receive_queue(&guest, &driver, false);
        queue.enabled = true;
        queue.set_noted(&guest.memory, taken(&record));
        let fill = |driver: &mut PackedDriver| {
            let buffer = || Piece::write(guest.alloc(HEADER + 100, 1), HEADER + 100);
            let put = std::iter::from_fn(|| driver.put(&guest, &[buffer()], 1)).count();
            driver.publish(&guest);
            put
        };
        assert_eq!(fill(&mut driver), usize::from(SIZE));
        for number in 0..before {
            let (result, tally) = deliver(&mut queue, &guest, &[(frame(number), None)], 100);
            assert_eq!((result, tally.frames), (Ok(()), 1));
            assert_eq!(driver.all_used(&guest).len(), 1);
            fill(&mut driver);
        }
        let available = descriptors(&guest, &driver);
        let first = driver.taken_back() as usize % usize::from(SIZE);
        let noted = taken(&record).and_then(|taken| taken.noted()).expect("a record of the chains in flight");
        let frames: Vec<_> = (0..4).map(|number| (frame(number), None)).collect();
        assert_eq!(deliver(&mut queue, &guest, &frames, 100).1.frames, 4);
        let given_back = descriptors(&guest, &driver);
        let at = |step: usize| (first + step) % usize::from(SIZE);
        let place = taken(&record).expect("a place");
        // The first descriptor is written last. The process dies after it has written `done` of the other three, or the
        // first as well (4: before it updates the note; 5: after that).
        if done < 4 {
            for step in done + 1..4 {
                put_descriptor(&guest, &driver, at(step), available[at(step)]);
            }
            put_descriptor(&guest, &driver, first, available[first]);
            place.note(noted.from, noted.from);
            place.hold(given_back[first][1]);
        } else if done == 4 {
            place.note(noted.from, place.noted().expect("a record of the chains in flight").until);
            place.hold(given_back[first][1]);
        }
        drop(queue);

        let ring = driver.device_at(&guest, driver.base(0)).expect("a ring");
        let mut queue = super::Receive::new(ring, HEADER, false);
        queue.enabled = true;
        queue.set_noted(&guest.memory, taken(&record));
        let case = format!("{before} before, {done} given back");
        let back = driver.all_used(&guest);
        assert_eq!(back.len(), if done < 4 { done + 1 } else { 4 }, "{case}");
        assert!(back.iter().all(|&(_, len)| len == 72), "{case}: {back:?}");
        fill(&mut driver);
        for number in 0..40 {
            assert_eq!(deliver(&mut queue, &guest, &[(frame(number), None)], 100).1.frames, 1, "{case}");
            assert_eq!(driver.all_used(&guest).len(), 1, "{case}");
            fill(&mut driver);
        }
    }
}

#[test]
fn frames_that_have_to_wait_are_there_for_the_successor() {
    for (before, kept) in (0..40).flat_map(|before| (0..=4).map(move |kept| (before, kept))) {
        let guest = Guest::new();
        let mut driver = PackedDriver::new(&guest, SIZE, F_INDIRECT_DESC);
        let record = memory();
        let mut queue = transmit_queue(&guest, &driver);
        queue.set_noted(&guest.memory, taken(&record));
        for number in 0..before {
            put_frame(&guest, &mut driver, number, 0);
            driver.publish(&guest);
            assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), 1);
            driver.all_used(&guest);
        }
        let ids: Vec<u16> = (0..4).map(|number| put_frame(&guest, &mut driver, number, 3)).collect();
        driver.publish(&guest);
        let (bounce, mut batch) = (super::Bounce::default(), ringway_switch::BatchStorage::new(256).into_batch());
        queue.collect(&guest.memory, &bounce, &mut batch).expect("no fault");
        drop(batch);
        assert_eq!(queue.rewind(kept), kept);
        queue.release(&guest.memory).expect("no fault");
        drop(queue);

        let ring = driver.device_at(&guest, driver.base(0)).expect("a ring");
        let mut queue = super::Transmit::new(ring, HEADER, usize::MAX, ringway_switch::Accepts::EVERYTHING);
        queue.set_noted(&guest.memory, taken(&record));
        let sent = collect(&mut queue, &guest).expect("no fault").frames;
        let sent: Vec<u8> = sent.iter().map(|(bytes, _)| bytes[0]).collect();
        assert_eq!(sent, (kept as u8..4).collect::<Vec<_>>(), "{before} before, {kept} kept");
        assert_eq!(driver.all_used(&guest).iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids, "{before} before");
    }
}

/// A chain that a driver has put into the ring: its position and its id.
#[derive(Clone, Copy)]
struct Put {
    position: u64,
    id: u16,
}

/// Marks a chain used, as QEMU does, independently of the device's position.
fn throw_away(guest: &Guest, driver: &PackedDriver, put: Put) {
    let is_odd_lap = (put.position / u64::from(SIZE)).is_multiple_of(2);
    let flags: u64 = if is_odd_lap { 1 << 7 | 1 << 15 } else { 0 };
    let slot = (put.position % u64::from(SIZE)) as usize;
    let [address, _] = descriptors(guest, driver)[slot];
    put_descriptor(guest, driver, slot, [address, u64::from(put.id) << 32 | flags << 48]);
}

#[test]
fn what_somebody_else_gave_back_meanwhile_is_passed_by() {
    // Without indirect descriptors a chain takes three descriptors, with them one. `taken` of `there` chains were in
    // flight. Another device marked the chains from `thrown` on used, and then `later` further chains came.
    for (features, direct, most) in [(0, 3, 5u64), (F_INDIRECT_DESC, 0, 16)] {
        for before in 0..40 {
            for (there, thrown, taken_of_them) in [(5, 3, 0), (5, 3, 2), (5, 3, 5), (5, 0, 0), (1, 0, 0), (3, 0, 2)] {
                for (later, seen) in (0..=most - there).flat_map(|later| [(later, false), (later, true)]) {
                    let case = format!(
                        "{before} before, {taken_of_them} of {there} taken, from {thrown} on thrown away, {later} later, \
                         seen {seen}, {direct} direct"
                    );
                    let guest = Guest::new();
                    let mut driver = PackedDriver::new(&guest, SIZE, features);
                    let record = memory();
                    let mut queue = transmit_queue(&guest, &driver);
                    queue.set_noted(&guest.memory, taken(&record));
                    for number in 0..before {
                        put_frame(&guest, &mut driver, number, direct);
                        driver.publish(&guest);
                        assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), 1);
                        assert_eq!(driver.all_used(&guest).len(), 1);
                    }
                    let slots = if direct == 0 { 1 } else { direct as u64 };
                    let first = driver.taken_back();
                    let mut puts: Vec<Put> = (0..there)
                        .map(|number| Put {
                            position: first + number * slots,
                            id: put_frame(&guest, &mut driver, 100 + number as u8, direct),
                        })
                        .collect();
                    driver.publish(&guest);
                    if taken_of_them > 0 {
                        let (bounce, mut batch) =
                            (super::Bounce::default(), ringway_switch::BatchStorage::new(256).into_batch());
                        queue.collect(&guest.memory, &bounce, &mut batch).expect("no fault");
                        drop(batch);
                        queue.rewind(taken_of_them);
                    }
                    for &put in &puts[thrown..] {
                        throw_away(&guest, &driver, put);
                    }
                    let mut back = if seen { driver.all_used(&guest) } else { Vec::new() };
                    assert_eq!(back.len(), if seen && thrown == 0 { there as usize } else { 0 });
                    for number in 0..later {
                        let id = put_frame(&guest, &mut driver, 200 + number as u8, direct);
                        puts.push(Put { position: 0, id });
                        driver.publish(&guest);
                    }
                    drop(queue);

                    let ring = driver.device_at(&guest, driver.base(0)).expect("a ring");
                    let mut queue = super::Transmit::new(ring, HEADER, usize::MAX, ringway_switch::Accepts::EVERYTHING);
                    queue.set_noted(&guest.memory, taken(&record));
                    let sent = collect(&mut queue, &guest).expect("no fault");
                    assert_eq!(sent.refused, 0, "{case}");
                    let sent: Vec<u8> = sent.frames.iter().map(|(bytes, _)| bytes[0]).collect();
                    assert_eq!(sent, (0..later).map(|number| 200 + number as u8).collect::<Vec<_>>(), "{case}");
                    back.extend(driver.all_used(&guest));
                    let ids = |puts: &[Put]| puts.iter().map(|put| put.id).collect::<Vec<_>>();
                    assert_eq!(back.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids(&puts), "{case}");
                    for number in 10..30 {
                        let id = put_frame(&guest, &mut driver, number, direct);
                        driver.publish(&guest);
                        let sent = collect(&mut queue, &guest).expect("no fault");
                        assert_eq!(
                            sent.frames.iter().map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>(),
                            [frame(number)]
                        );
                        assert_eq!(driver.all_used(&guest), [(id, 0)], "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_ring_that_is_full_again_when_the_end_comes_is_sent_whole() {
    for before in 0..40 {
        let guest = Guest::new();
        let mut driver = PackedDriver::new(&guest, SIZE, F_INDIRECT_DESC);
        let record = memory();
        let mut queue = transmit_queue(&guest, &driver);
        queue.set_noted(&guest.memory, taken(&record));
        let put = |driver: &mut PackedDriver, frames: u16| {
            for number in 0..frames {
                put_frame(&guest, driver, number as u8, 0);
            }
            driver.publish(&guest);
        };
        for _ in 0..before {
            put(&mut driver, 1);
            assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), 1);
            driver.all_used(&guest);
        }
        put(&mut driver, SIZE);
        let once = super::testing::collect_some(&mut queue, &guest, 256).expect("no fault");
        assert_eq!((once.frames.len(), driver.all_used(&guest).len()), (16, 16));
        put(&mut driver, SIZE);
        drop(queue);

        let ring = driver.device_at(&guest, driver.base(0)).expect("a ring");
        let mut queue = super::Transmit::new(ring, HEADER, usize::MAX, ringway_switch::Accepts::EVERYTHING);
        queue.set_noted(&guest.memory, taken(&record));
        let sent = collect(&mut queue, &guest).expect("no fault").frames;
        let sent: Vec<u8> = sent.iter().map(|(bytes, _)| bytes[0]).collect();
        assert_eq!(sent, (0..SIZE as u8).collect::<Vec<_>>(), "{before} before");
    }
}

/// The chain takes all descriptors of the ring, and the descriptor that is marked used precedes it.
#[test]
fn a_chain_that_is_longer_than_the_ring_leads_nowhere() {
    const AVAIL: u64 = 1 << 55;
    const USED: u64 = 1 << 63;
    const NEXT: u64 = 1 << 48;
    let (guest, record) = (Guest::new(), memory());
    let driver = PackedDriver::new(&guest, SIZE, 0);
    for slot in 0..15 {
        put_descriptor(&guest, &driver, slot, [1, USED | NEXT]);
    }
    put_descriptor(&guest, &driver, 15, [1, AVAIL | USED | 5 << 32]);
    let place = taken(&record).expect("a place");
    place.begin(driver.base(14));
    place.hold(AVAIL | USED);
    let mut queue = super::Receive::new(driver.device_at(&guest, driver.base(0)).expect("a ring"), HEADER, false);
    queue.set_noted(&guest.memory, taken(&record));
    let noted = taken(&record).and_then(|taken| taken.noted()).expect("a record of the chains in flight");
    assert!(noted.from & 0x7fff < SIZE.into(), "{:x}", noted.from);
}

#[test]
fn an_id_that_is_used_again_is_not_taken_for_a_part_of_the_chain_before() {
    for before in 0..40 {
        let guest = Guest::new();
        let mut driver = PackedDriver::new(&guest, SIZE, F_INDIRECT_DESC);
        let record = memory();
        let mut queue = transmit_queue(&guest, &driver);
        queue.set_noted(&guest.memory, taken(&record));
        for number in 0..before {
            put_frame(&guest, &mut driver, number, 0);
            driver.publish(&guest);
            assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), 1);
            driver.all_used(&guest);
        }
        let position = driver.taken_back();
        let id = put_frame(&guest, &mut driver, 1, 0);
        driver.publish(&guest);
        throw_away(&guest, &driver, Put { position, id });
        // Linux, too, reuses the id that it got back last.
        let place = guest.place(&[&[0; HEADER][..], &frame(2)].concat());
        driver.write_descriptor(&guest, position + 1, Piece::read(place, HEADER + 60), 0, id);
        drop(queue);

        let ring = driver.device_at(&guest, driver.base(0)).expect("a ring");
        let mut queue = super::Transmit::new(ring, HEADER, usize::MAX, ringway_switch::Accepts::EVERYTHING);
        queue.set_noted(&guest.memory, taken(&record));
        let sent = collect(&mut queue, &guest).expect("no fault").frames;
        assert_eq!(sent.iter().map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>(), [frame(2)], "{before} before");
    }
}

#[test]
fn a_driver_that_began_anew_meanwhile_is_met_at_the_beginning() {
    for before in 0..40 {
        let guest = Guest::new();
        let mut driver = PackedDriver::new(&guest, SIZE, F_INDIRECT_DESC);
        let record = memory();
        let mut queue = transmit_queue(&guest, &driver);
        queue.set_noted(&guest.memory, taken(&record));
        for number in 0..before {
            put_frame(&guest, &mut driver, number, 0);
            driver.publish(&guest);
            assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), 1);
            driver.all_used(&guest);
        }
        // The next ring has the same address, and is cleared.
        let at = driver.addresses().descriptors;
        guest.write(at, &[0; 16 * SIZE as usize]);
        let place = guest.place(&[&[0; HEADER][..], &frame(1)].concat());
        driver.write_descriptor(&guest, 0, Piece::read(place, HEADER + 60), 0, 3);
        let ring = driver.device_at(&guest, driver.base(0)).expect("a ring");
        let mut queue = super::Transmit::new(ring, HEADER, usize::MAX, ringway_switch::Accepts::EVERYTHING);
        queue.set_noted(&guest.memory, taken(&record));
        assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), 1, "{before} before");
    }
}
