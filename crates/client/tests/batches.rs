//! Batches of buffers in place, on ports of a running switch.

use ringway_client::{Piece, Port, Shape};
use ringway_scenes::{Daemon, PATIENCE};

/// Bytes of a buffer.
const SIZE: u32 = 128;

/// Two ports of one switch with rings of 16 slots.
fn ports(daemon: &Daemon) -> [Port; 2] {
    let shape = Shape { tx_slots: 16, rx_slots: 16, buffer_size: SIZE, ..Shape::default() };
    ["lan0:a", "lan0:b"].map(|name| Port::attach(daemon.socket("attach.sock"), name, shape).unwrap())
}

/// Writes a broadcast with this number in every byte after the header.
fn write(buffer: &mut [u8], number: u8) {
    buffer[..6].fill(0xff);
    buffer[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    buffer[12..].fill(number);
}

/// Waits until so many slots have been received.
fn await_slots(port: &mut Port, slots: usize) {
    while port.rx().available() < slots {
        assert!(port.wait_rx(PATIENCE).unwrap(), "{} of {slots}", port.rx().available());
    }
}

fn await_room(port: &mut Port, slots: usize) {
    while port.tx().room() < slots {
        assert!(port.wait_tx(PATIENCE).unwrap(), "{} of {slots}", port.tx().room());
    }
}

#[test]
fn a_batch_is_written_and_read_in_place_around_the_end_of_the_rings() {
    let daemon = Daemon::start("");
    let [mut a, mut b] = ports(&daemon);
    for round in 0..40u8 {
        await_room(&mut a, 10);
        let buffers = a.tx().reserve(10);
        assert_eq!(buffers.len(), 10);
        buffers.zip(0..).for_each(|(buffer, frame)| {
            assert_eq!(buffer.len(), SIZE as usize);
            write(buffer, round + frame);
        });
        assert!(a.tx().commit((0..10).map(|frame| Piece::whole(60 + frame))));
        a.flush();
        await_slots(&mut b, 10);
        // The iteration from outside and from inside, and again without a release.
        let seen: Vec<(usize, u8)> = b.rx().peek(16).map(|slot| (slot.bytes.len(), slot.bytes[59])).collect();
        let mut again = Vec::new();
        for slot in b.rx().peek(16) {
            assert!(!slot.more);
            again.push((slot.bytes.len(), slot.bytes[59]));
        }
        assert_eq!(seen, again);
        assert_eq!(seen, (0..10).map(|frame| (60 + usize::from(frame), round + frame)).collect::<Vec<_>>());
        assert!(b.rx().release(3));
        assert_eq!(b.rx().peek(1).next().map(|slot| slot.bytes[59]), Some(round + 3));
        assert!(!b.rx().release(8), "seven are left");
        assert!(b.rx().release(7));
        assert_eq!(b.rx().peek(16).len(), 0);
    }
}

#[test]
fn a_reservation_without_a_commit_queues_nothing() {
    let daemon = Daemon::start("");
    let [mut a, mut b] = ports(&daemon);
    let first = a.tx().reserve(5).next().unwrap().as_ptr();
    assert_eq!(a.tx().reserve(5).next().unwrap().as_ptr(), first);
    assert_eq!((a.tx().queued(), a.tx().reserve(100).len()), (0, 15));
    write(a.tx().reserve(1).next().unwrap(), 1);
    assert!(a.tx().commit([Piece::whole(60)]));
    assert!(a.tx().commit([]));
    assert_eq!(a.tx().queued(), 1);
    a.tx().flush();
    await_slots(&mut b, 1);
    assert_eq!(b.rx().drain(16, |frame| assert_eq!(frame.len(), 60)), 1);
}

#[test]
fn what_cannot_be_queued_is_refused_as_a_whole() {
    let daemon = Daemon::start("");
    let [mut a, mut b] = ports(&daemon);
    let whole = Piece::whole(60);
    let cut = Piece { more: true, ..whole };
    a.tx().reserve(15).for_each(|buffer| write(buffer, 1));
    assert!(!a.tx().commit([whole; 16]), "more than there are");
    assert!(!a.tx().commit([whole, Piece::whole(SIZE as usize + 1)]), "longer than a buffer");
    assert!(!a.tx().commit([whole, cut]), "a frame without its end");
    assert!(!a.tx().commit_run(16));
    assert_eq!(a.tx().queued(), 0);
    assert!(a.tx().commit([Piece { len: SIZE as usize, more: true }, whole]));
    a.flush();
    await_slots(&mut b, 2);
    let pieces: Vec<(usize, bool)> = b.rx().peek(16).map(|slot| (slot.bytes.len(), slot.more)).collect();
    assert_eq!(pieces, [(SIZE as usize, true), (60, false)]);
    assert!(b.rx().release(2));
}

#[test]
fn a_run_ends_at_the_end_of_the_ring() {
    let daemon = Daemon::start("");
    let [mut a, mut b] = ports(&daemon);
    let mut counts = Vec::new();
    for _ in 0..8 {
        await_room(&mut a, 12);
        let mut left = 12;
        while left > 0 {
            let run = a.tx().reserve_run(left);
            counts.push(run.count);
            assert_eq!(run.buffer_size, SIZE);
            // The words of the slots are set as any other way sets them.
            a.tx().reserve(run.count as usize).for_each(|buffer| write(buffer, 1));
            assert!(a.tx().commit((0..run.count).map(|_| Piece::whole(60))));
            left -= run.count as usize;
        }
        a.flush();
        await_slots(&mut b, 12);
        let mut left = 12;
        while left > 0 {
            let run = b.rx().peek_run(left);
            assert!(b.rx().release(run.count as usize));
            left -= run.count as usize;
        }
    }
    // Rings of 16 slots, from 0 on in steps of 12.
    assert_eq!(counts, [12, 4, 8, 8, 4, 12, 12, 4, 8, 8, 4, 12]);
}
