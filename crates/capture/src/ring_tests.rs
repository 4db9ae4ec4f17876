//! The ring, used by one thread and by several.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::Ring;

/// Writes a record. The low half of its first word is its length, the high half its number; the other bytes depend on
/// the number.
fn put(ring: &Ring, number: u32, len: usize) -> bool {
    let Some(place) = ring.reserve(len) else { return false };
    let bytes: Vec<u8> = (8..len).map(|at| (at as u32).wrapping_mul(number | 1) as u8).collect();
    let mut before = vec![1; len];
    assert!(place.bytes().read(&mut before));
    assert!(before.iter().all(|&byte| byte == 0), "a place is zeroed");
    assert!(place.bytes().sub(8, len - 8).is_some_and(|tail| tail.write(&bytes)));
    place.publish(len as u64 | u64::from(number) << 32);
    true
}

/// Takes the next record, checks its bytes, and returns its number.
fn take(ring: &Ring) -> Option<u32> {
    ring.take(
        |word| word as u32 as usize,
        |record| {
            let mut bytes = vec![0; record.len()];
            assert!(record.read(&mut bytes));
            let number = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            let right = |(at, &byte): (usize, &u8)| byte == (at as u32).wrapping_mul(number | 1) as u8;
            assert!(bytes.iter().enumerate().skip(8).all(right), "record {number}");
            number
        },
    )
}

#[test]
fn records_of_every_length_come_out_whole_and_in_order_over_many_laps() {
    let ring = Ring::new(4096).unwrap();
    let (mut sent, mut received) = (0, 0);
    for lap in 0..3000usize {
        let len = 8 + lap * 37 % 1500;
        while !put(&ring, sent, len) {
            assert_eq!(take(&ring), Some(received), "a full ring has something");
            received += 1;
        }
        sent += 1;
    }
    while let Some(number) = take(&ring) {
        assert_eq!(number, received);
        received += 1;
    }
    assert!(received == sent && ring.is_empty());
}

#[test]
fn a_full_ring_refuses_and_keeps_what_it_has() {
    let ring = Ring::new(4096).unwrap();
    let fits = (0..).take_while(|&number| put(&ring, number, 1000)).count() as u32;
    assert_eq!(fits, 4, "1,000 bytes four times are less than 4,096");
    assert!(!put(&ring, 9, 200) && put(&ring, 4, 90), "what is left holds small ones");
    assert!(ring.reserve(4097).is_none(), "longer than the ring");
    assert!((0..5).all(|number| take(&ring) == Some(number)) && take(&ring).is_none());
    assert!(put(&ring, 5, 4096), "all of it is free again");
}

#[test]
fn what_is_reserved_and_not_written_yet_holds_back_what_comes_after_it() {
    let ring = Ring::new(4096).unwrap();
    let slow = ring.reserve(16).unwrap();
    assert!(put(&ring, 2, 16));
    assert!(take(&ring).is_none() && !ring.is_empty());
    let bytes: Vec<u8> = (8..16).map(|at| at as u8).collect();
    assert!(slow.bytes().sub(8, 8).is_some_and(|tail| tail.write(&bytes)));
    slow.publish(16 | 1 << 32);
    assert_eq!((take(&ring), take(&ring)), (Some(1), Some(2)));
}

#[test]
fn several_writers_and_a_reader_lose_and_tear_nothing() {
    const EACH: u32 = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    let (ring, failed) = (Ring::new(1 << 14).unwrap(), AtomicBool::new(false));
    let (ring, failed) = (&ring, &failed);
    std::thread::scope(|scope| {
        let write = |writer: u32| {
            move || {
                for number in 0..EACH {
                    let len = 8 + (number as usize * 13 + writer as usize) % 400;
                    while !put(ring, writer << 24 | number, len) {
                        if failed.load(Ordering::Relaxed) {
                            return;
                        }
                        std::thread::yield_now();
                    }
                }
            }
        };
        let writers = [0, 1, 2].map(|writer| scope.spawn(write(writer)));
        let mut next = [0; 3];
        // A panic of the reader must not leave the writers waiting, nor a panic of a writer the reader.
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while next.iter().sum::<u32>() < 3 * EACH {
                let have_ended = writers.iter().all(|writer| writer.is_finished());
                let Some(number) = take(ring) else {
                    assert!(!have_ended, "the writers have ended, and only {next:?} of {EACH} records each are there");
                    std::thread::yield_now();
                    continue;
                };
                let writer = &mut next[(number >> 24) as usize];
                assert_eq!(number & 0xff_ffff, *writer, "of one writer, in order");
                *writer += 1;
            }
        }));
        failed.store(true, Ordering::Relaxed);
        assert!(read.is_ok());
    });
    assert!(ring.is_empty());
}

#[test]
fn a_writer_that_panics_holds_back_nobody() {
    let ring = Ring::new(4096).unwrap();
    for number in 0..2000u32 {
        let len = 8 + number as usize * 53 % 900;
        let wrote = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let place = ring.reserve(len).expect("room");
            assert!(place.bytes().write(&vec![0x5a; len]));
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(wrote.is_err());
        // Every other time, several skipped records follow each other.
        if number % 2 == 0 {
            assert!(put(&ring, number, 40));
            assert_eq!((take(&ring), take(&ring)), (Some(number), None), "{number}");
            assert!(ring.is_empty());
        }
    }
}
