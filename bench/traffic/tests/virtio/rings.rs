//! Frames through the rings.

use proptest::prelude::*;
use ringway_traffic::{Endpoint, Packed, Ring, Split, VirtioEndpoint, VirtioOptions};

use crate::device::Buffer;
use crate::scene::{HEADER, attach, everywhere, frame, queues, read, received, variants, write};

/// Sends as many frames of these lengths as fit. Returns their number.
fn send<R: Ring>(driver: &mut VirtioEndpoint<R>, first: u32, lens: impl Iterator<Item = usize>) -> u32 {
    let mut sent = 0;
    for len in lens {
        if !driver.tx_push(len, |place| place.copy_from_slice(&frame(first + sent, len))) {
            break;
        }
        sent += 1;
    }
    driver.tx_flush();
    sent
}

#[test]
fn the_device_reads_what_was_sent_over_many_laps() {
    fn sent<R: Ring>(options: &VirtioOptions) {
        let (mut driver, session) = attach::<R>(options);
        let [_, mut tx] = queues(&session);
        let (mut number, mut seen) = (0, 0);
        for round in 0..100usize {
            // Long runs of one length, and mixtures.
            let len = |at: usize| if round % 20 < 10 { 60 } else { 60 + (at * 37 + round) % 100 };
            number += send(&mut driver, number, (0..=round % 11).map(len));
            let mut at = 0;
            while let Some(buffer) = tx.take() {
                let bytes = read(&session, &buffer);
                assert!(!buffer.writable);
                assert_eq!(bytes[..12], [0; 12], "no offload is requested");
                assert_eq!(bytes[12..], frame(seen, len(at)), "frame {seen}");
                (seen, at) = (seen + 1, at + 1);
                tx.give(buffer.id, 0);
            }
            tx.publish();
            assert_eq!(seen, number, "the device sees all flushed frames");
        }
        assert!(number > 400);
    }
    everywhere!(sent);
}

#[test]
fn there_is_room_for_as_many_frames_as_the_ring_has_places() {
    fn room<R: Ring>(options: &VirtioOptions) {
        let (mut driver, session) = attach::<R>(options);
        let [_, mut tx] = queues(&session);
        assert_eq!(driver.tx_room(), 8);
        assert_eq!(send(&mut driver, 0, std::iter::repeat(60)), 8);
        assert_eq!(driver.tx_room(), 0);
        assert!(!driver.tx_repeat(&[0; 60]));
        let first = tx.take().expect("a frame");
        assert_eq!(driver.tx_room(), 0, "a taken buffer is not free yet");
        tx.give(first.id, 0);
        tx.publish();
        assert_eq!(driver.tx_room(), 1);
        assert!(!driver.tx_push(193, |_| panic!("a frame that does not fit is filled")), "longer than a buffer");
        assert!(driver.tx_push(192, |frame| frame.fill(1)), "as long as a buffer");
    }
    everywhere!(room);
}

#[test]
fn nothing_is_visible_before_it_is_flushed() {
    fn flushed<R: Ring>(options: &VirtioOptions) {
        let (mut driver, session) = attach::<R>(options);
        let [_, mut tx] = queues(&session);
        for _ in 0..5 {
            assert!(driver.tx_push(60, |frame| frame.fill(1)));
            assert!(driver.tx_push(60, |frame| frame.fill(2)));
            assert_eq!(tx.take(), None);
            driver.tx_flush();
            let pair = [tx.take().expect("the first"), tx.take().expect("the second")];
            assert_eq!(pair.map(|buffer| read(&session, &buffer)[12]), [1, 2]);
            pair.iter().for_each(|buffer| tx.give(buffer.id, 0));
            tx.publish();
        }
    }
    everywhere!(flushed);
}

#[test]
fn a_repeated_frame_is_what_its_buffer_held() {
    fn repeated<R: Ring>(options: &VirtioOptions) {
        let (mut driver, session) = attach::<R>(options);
        let [_, mut tx] = queues(&session);
        let mut give_back = |wanted: &[Vec<u8>]| {
            let all: Vec<Buffer> = std::iter::from_fn(|| tx.take()).collect();
            let held: Vec<_> = all.iter().map(|buffer| read(&session, buffer)[12..].to_vec()).collect();
            assert_eq!(held, wanted);
            all.iter().for_each(|buffer| tx.give(buffer.id, 0));
            tx.publish();
        };
        let frames: Vec<_> = (0..8).map(|number| frame(number, 60)).collect();
        assert_eq!(send(&mut driver, 0, (0..8).map(|_| 60)), 8);
        give_back(&frames);
        for _ in 0..20 {
            assert_eq!(driver.tx_room(), 8);
            (0..8).for_each(|_| assert!(driver.tx_repeat(&frames[0])));
            driver.tx_flush();
            give_back(&frames);
        }
    }
    everywhere!(repeated);
}

#[test]
fn what_the_device_writes_is_received_in_order_over_many_laps() {
    fn arrives<R: Ring>(options: &VirtioOptions) {
        let (mut driver, session) = attach::<R>(options);
        let [mut rx, _] = queues(&session);
        let mut number = 0;
        for round in 0..100 {
            let frames: Vec<_> = (0..=round % 16).map(|at| frame(number + at, 60 + (at * 13) as usize % 132)).collect();
            for frame in &frames {
                let buffer = rx.take().expect("a receive buffer for each place of the ring");
                let len = write(&session, &buffer, frame, 1);
                rx.give(buffer.id, len);
            }
            assert!(received(&mut driver, 100).is_empty(), "not yet visible");
            rx.publish();
            let some = received(&mut driver, 3);
            assert_eq!(some.len(), frames.len().min(3), "at most the requested number");
            assert_eq!([some, received(&mut driver, 100)].concat(), frames);
            number += frames.len() as u32;
        }
        let all: Vec<Buffer> = std::iter::from_fn(|| rx.take()).collect();
        assert_eq!(all.len(), 16, "all receive buffers are with the device");
        assert!(all.iter().all(|buffer| buffer.writable && buffer.len == 192 + HEADER));
    }
    everywhere!(arrives);
}

#[test]
fn a_frame_over_several_buffers_is_received_whole_also_when_its_end_comes_later() {
    fn merged<R: Ring>(options: &VirtioOptions) {
        if !options.mergeable {
            return;
        }
        let (mut driver, session) = attach::<R>(options);
        let [mut rx, _] = queues(&session);
        for round in 0..50 {
            let frame = frame(round, 192 + 204 + 50);
            let pieces = [&frame[..192], &frame[192..396], &frame[396..]];
            for (number, piece) in pieces.iter().enumerate() {
                let buffer = rx.take().expect("a buffer");
                let len = if number == 0 {
                    write(&session, &buffer, piece, 3)
                } else {
                    assert!(session.guest(buffer.address, buffer.len).write(piece));
                    piece.len() as u32
                };
                rx.give(buffer.id, len);
                rx.publish();
                let wanted = if number == 2 { vec![frame.clone()] } else { Vec::new() };
                assert_eq!(received(&mut driver, 10), wanted);
            }
        }
    }
    everywhere!(merged);
}

#[test]
fn a_batch_used_in_order_may_have_one_entry() {
    fn batched<R: Ring>(options: &VirtioOptions) {
        if !options.in_order {
            return;
        }
        let (mut driver, session) = attach::<R>(options);
        let [mut rx, mut tx] = queues(&session);
        let mut number = 0;
        for round in 0..60 {
            let sent = send(&mut driver, number, (0..=round % 8).map(|_| 60));
            let taken: Vec<Buffer> = std::iter::from_fn(|| tx.take()).collect();
            assert_eq!(taken.len() as u32, sent);
            assert_eq!(
                taken.iter().map(|b| read(&session, b)[12..].to_vec()).collect::<Vec<_>>(),
                (0..sent).map(|at| frame(number + at, 60)).collect::<Vec<_>>()
            );
            tx.give_batch(taken.last().expect("some").id, 0, sent as u16);
            tx.publish();
            assert_eq!(driver.tx_room(), 8);
            number += sent;

            // Receive buffers without their own used entry are full.
            let count = 1 + round as usize % 5;
            let frames: Vec<_> =
                (0..count).map(|at| frame(at as u32, if at + 1 == count { 77 } else { 192 })).collect();
            let buffers: Vec<Buffer> = (0..count).map(|_| rx.take().expect("a buffer")).collect();
            for (buffer, frame) in buffers.iter().zip(&frames) {
                write(&session, buffer, frame, 1);
            }
            rx.give_batch(buffers[count - 1].id, 77 + HEADER, count as u16);
            rx.publish();
            let some = received(&mut driver, 2);
            assert!(some.len() <= 2);
            assert_eq!([some, received(&mut driver, 100)].concat(), frames);
        }
    }
    everywhere!(batched);
}

/// The driver takes a part of a batch, then the rest together with later frames.
#[test]
fn a_batch_may_be_taken_in_parts() {
    fn parts<R: Ring>(options: &VirtioOptions) {
        if !options.in_order {
            return;
        }
        let (mut driver, session) = attach::<R>(options);
        let [mut rx, _] = queues(&session);
        let buffers: Vec<Buffer> = (0..16).map(|_| rx.take().expect("a buffer")).collect();
        for buffer in &buffers {
            write(&session, buffer, &frame(buffer.id.into(), 192), 1);
        }
        rx.give_batch(buffers[4].id, 192 + HEADER, 5);
        rx.publish();
        assert_eq!(received(&mut driver, 3).len(), 3);
        rx.give_batch(buffers[15].id, 192 + HEADER, 11);
        rx.publish();
        let rest = [received(&mut driver, 4), received(&mut driver, 100)].concat();
        assert_eq!(rest, buffers[3..].iter().map(|buffer| frame(buffer.id.into(), 192)).collect::<Vec<_>>());
    }
    everywhere!(parts);
}

/// The device uses its buffers in any order. No frame is lost, sent twice, or changed.
fn any_order<R: Ring>(picks: &[(u8, u8, u8)]) {
    let (mut driver, session) = attach::<R>(&variants()[0]);
    let [mut rx, mut tx] = queues(&session);
    let (mut numbers, mut sent_by_id) = (0, [None; 8]);
    let (mut tx_held, mut rx_held): (Vec<Buffer>, Vec<Buffer>) = (Vec::new(), Vec::new());
    for &(pushes, tx_pick, rx_pick) in picks {
        for _ in 0..pushes % 9 {
            let len = 60 + (numbers as usize * 11) % 120;
            numbers += u32::from(driver.tx_push(len, |place| place.copy_from_slice(&frame(numbers, len))));
        }
        driver.tx_flush();
        while let Some(buffer) = tx.take() {
            let held = read(&session, &buffer)[12..].to_vec();
            let number = (0..numbers).rev().find(|&n| frame(n, 60 + (n as usize * 11) % 120) == held);
            assert!(sent_by_id[usize::from(buffer.id)].replace(number.expect("a frame that was sent")).is_none());
            tx_held.push(buffer);
        }
        while let Some(buffer) = rx.take() {
            assert!(rx_held.iter().all(|held| held.id != buffer.id), "buffer {} twice", buffer.id);
            rx_held.push(buffer);
        }
        assert_eq!(rx_held.len(), 16);
        for _ in 0..tx_pick % 4 {
            if !tx_held.is_empty() {
                let buffer = tx_held.swap_remove(usize::from(tx_pick) % tx_held.len());
                sent_by_id[usize::from(buffer.id)] = None;
                tx.give(buffer.id, 0);
            }
        }
        tx.publish();
        let mut wanted = Vec::new();
        for number in 0..rx_pick % 5 {
            let buffer = rx_held.swap_remove(usize::from(rx_pick) % rx_held.len());
            let frame = frame(number.into(), 60 + usize::from(rx_pick) % 100);
            let len = write(&session, &buffer, &frame, 1);
            rx.give(buffer.id, len);
            wanted.push(frame);
        }
        rx.publish();
        assert_eq!(received(&mut driver, 100), wanted);
        assert_eq!(driver.tx_room(), 8 - tx_held.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn buffers_may_come_back_in_any_order(picks in prop::collection::vec(any::<(u8, u8, u8)>(), 1..120)) {
        any_order::<Split>(&picks);
        any_order::<Packed>(&picks);
    }
}

/// 16-bit indices and wrap counters wrap around.
#[test]
fn a_ring_works_beyond_65536_frames() {
    fn wraps<R: Ring>(options: &VirtioOptions) {
        let (mut driver, session) = attach::<R>(options);
        let [mut rx, mut tx] = queues(&session);
        let mut count = 0u32;
        while count < 140_000 {
            for number in count..count + 7 {
                assert!(driver.tx_push(60, |place| place[..4].copy_from_slice(&number.to_le_bytes())));
            }
            driver.tx_flush();
            for _ in 0..7 {
                let (from, to) = (tx.take().expect("a frame"), rx.take().expect("a buffer"));
                let copied = session.guest(to.address, 72).copy_from(session.guest(from.address, from.len));
                assert!(copied && session.guest(to.address + 10, 2).write(&[1, 0]));
                tx.give(from.id, 0);
                rx.give(to.id, 72);
            }
            tx.publish();
            rx.publish();
            let mut next = count;
            driver.rx_batch(100, |frame| {
                assert_eq!(frame[..4], next.to_le_bytes());
                next += 1;
            });
            assert_eq!(next, count + 7);
            count = next;
            assert_eq!(driver.tx_room(), 8);
        }
    }
    everywhere!(wraps);
}
