//! Kicks and calls: each one that is requested is made, and no other.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringway_testing::PATIENCE;
use ringway_traffic::{Endpoint, Ring, VirtioOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::backend::Session;
use crate::device::{Buffer, Queue};
use crate::scene::{attach, everywhere, queues, received, write};

/// Returns true if the driver has kicked since the last call.
fn kicked(session: &Session, queue: usize) -> bool {
    let kick = session.rings[queue].kick.as_ref().expect("a descriptor");
    rustix::io::read(kick, &mut [0; 8]).is_ok()
}

fn call(session: &Session, queue: usize) {
    let call = session.rings[queue].call.as_ref().expect("a descriptor");
    rustix::io::write(call, &1u64.to_ne_bytes()).expect("a call");
}

#[test]
fn the_device_is_kicked_when_it_asks_and_not_otherwise() {
    fn asked<R: Ring>(options: &VirtioOptions) {
        let (mut driver, session) = attach::<R>(options);
        let [_, mut tx] = queues(&session);
        assert!(kicked(&session, 0) && kicked(&session, 1), "rings start with a kick");
        for round in 0..50 {
            let wanted = round % 3 == 0;
            tx.want_kick(wanted, options.event_idx);
            for frames in [2, 3] {
                (0..frames).for_each(|_| assert!(driver.tx_push(60, |frame| frame.fill(0))));
                driver.tx_flush();
                // With event indices, the device asks for a kick at only one place in the ring.
                let first = frames == 2;
                assert_eq!(kicked(&session, 1), wanted && (first || !options.event_idx), "round {round}");
            }
            while let Some(buffer) = tx.take() {
                tx.give(buffer.id, 0);
            }
            tx.publish();
            assert_eq!(driver.tx_room(), 8);
        }
        assert!(!kicked(&session, 0));
    }
    everywhere!(asked);
}

#[test]
fn a_driver_that_polls_asks_for_no_calls() {
    fn polls<R: Ring>(options: &VirtioOptions) {
        let (mut driver, session) = attach::<R>(options);
        let [mut rx, mut tx] = queues(&session);
        for _ in 0..40 {
            assert!(driver.tx_push(60, |frame| frame.fill(0)));
            driver.tx_flush();
            let (sent, buffer) = (tx.take().expect("a frame"), rx.take().expect("a buffer"));
            let len = write(&session, &buffer, &[1; 60], 1);
            rx.give(buffer.id, len);
            tx.give(sent.id, 0);
            assert!(!rx.publish() && !tx.publish());
            assert_eq!((received(&mut driver, 10).len(), driver.tx_room()), (1, 8));
        }
    }
    everywhere!(polls);
}

#[test]
fn a_driver_that_waits_is_called_for_every_frame_and_never_in_vain() {
    fn waits<R: Ring>(options: &VirtioOptions) {
        const FRAMES: u32 = 2000;
        let (mut driver, session) = attach::<R>(options);
        std::thread::scope(|scope| {
            scope.spawn(|| device(&session, FRAMES, options.event_idx));
            let (mut sent, mut came) = (0, 0);
            let mut deadline = Instant::now() + PATIENCE;
            while came < FRAMES {
                assert!(Instant::now() < deadline, "{came} of {sent} came");
                if sent < FRAMES && driver.tx_push(60, |frame| frame[..4].copy_from_slice(&sent.to_le_bytes())) {
                    driver.tx_flush();
                    sent += 1;
                }
                if sent - came >= 5 || sent == FRAMES {
                    driver.wait(true, PATIENCE).expect("the device is there");
                    let before = came;
                    driver.rx_batch(3, |frame| {
                        assert_eq!(frame[..4], came.to_le_bytes());
                        came += 1;
                    });
                    assert!(came > before, "no frame after the wait");
                    deadline = Instant::now() + PATIENCE;
                }
            }
        });
    }

    /// Returns each frame to its sender. Sleeps while there is no frame.
    fn device(session: &Session, frames: u32, event_idx: bool) {
        let [mut rx, mut tx] = queues(session);
        let mut done = 0;
        while done < frames {
            let Some(sent) = next(session, 1, &mut tx, event_idx) else { panic!("no kick came for frame {done}") };
            let Some(buffer) = next(session, 0, &mut rx, event_idx) else { panic!("no buffer came for frame {done}") };
            let copied = session.guest(buffer.address, sent.len).copy_from(session.guest(sent.address, sent.len));
            assert!(copied && session.guest(buffer.address + 10, 2).write(&[1, 0]));
            tx.give(sent.id, 0);
            rx.give(buffer.id, sent.len);
            if tx.publish() {
                call(session, 1);
            }
            if rx.publish() {
                call(session, 0);
            }
            done += 1;
        }
    }

    fn next(session: &Session, number: usize, queue: &mut Queue<'_>, event_idx: bool) -> Option<Buffer> {
        loop {
            if let Some(buffer) = queue.take() {
                return Some(buffer);
            }
            queue.want_kick(true, event_idx);
            if let Some(buffer) = queue.take() {
                queue.want_kick(false, event_idx);
                return Some(buffer);
            }
            let kick = session.rings[number].kick.as_ref().expect("a descriptor");
            let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            if poll(&mut [PollFd::new(&kick.as_fd(), PollFlags::IN)], Some(&timeout)).expect("poll") == 0 {
                return None;
            }
            kicked(session, number);
        }
    }
    everywhere!(waits);
}

#[test]
fn a_sender_without_room_is_called_when_there_is_some() {
    fn room<R: Ring>(options: &VirtioOptions) {
        let (mut driver, session) = attach::<R>(options);
        let [_, mut tx] = queues(&session);
        while driver.tx_push(60, |frame| frame.fill(0)) {}
        driver.tx_flush();
        let before = Instant::now();
        driver.wait(false, Duration::from_millis(20)).expect("only time passes");
        assert!(before.elapsed() >= Duration::from_millis(20), "the driver did not wait for room");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while let Some(buffer) = tx.take() {
                    tx.give(buffer.id, 0);
                }
                if tx.publish() {
                    call(&session, 1);
                }
            });
            driver.wait(false, PATIENCE).expect("the device is there");
        });
        assert!(before.elapsed() < PATIENCE, "the call did not come");
        assert_eq!(driver.tx_room(), 8);
    }
    everywhere!(room);
}
