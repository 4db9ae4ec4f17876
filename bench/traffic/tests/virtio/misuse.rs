//! If the device breaks the rules, the driver reports an error and stops.

use ringway_traffic::{Endpoint, Packed, Ring, Split, VirtioEndpoint, VirtioOptions};

use crate::backend::Session;
use crate::device::Queue;
use crate::scene::{HEADER, attach, driver_error, queues, received, variants, write};

/// Lets a device misbehave after some traffic. Checks that the driver then reports `wanted` and stops.
fn check_error<R: Ring>(options: &VirtioOptions, wanted: &str, act: impl FnOnce(&Session, [&mut Queue<'_>; 2])) {
    let (mut driver, session) = attach::<R>(options);
    let [mut rx, mut tx] = queues(&session);
    for _ in 0..3 {
        // Frames are under way in each direction, so that the device has buffers.
        assert!(driver.tx_push(60, |frame| frame.fill(1)));
        let buffer = rx.take().expect("a buffer");
        let len = write(&session, &buffer, &[2; 60], 1);
        rx.give(buffer.id, len);
    }
    driver.tx_flush();
    rx.publish();
    assert_eq!(received(&mut driver, 10).len(), 3);
    act(&session, [&mut rx, &mut tx]);
    check_stopped(&mut driver, wanted);
}

fn check_stopped<R: Ring>(driver: &mut VirtioEndpoint<R>, wanted: &str) {
    let mut frames = 0;
    while driver.rx_batch(1, |_| ()) > 0 {
        frames += 1;
        assert!(frames < 100, "the driver receives frames without end");
    }
    driver.tx_room();
    let said = driver_error(driver);
    assert!(said.contains(wanted), "{said}, not {wanted}");
    assert_eq!((driver.tx_room(), driver.rx_batch(10, |_| ())), (0, 0));
    assert!(!driver.tx_push(60, |_| panic!("a stopped driver sends a frame")) && !driver.tx_repeat(&[0; 60]));
    driver.tx_flush();
    assert_eq!(driver_error(driver), said);
}

#[test]
fn a_count_beyond_what_it_had() {
    for options in &variants() {
        check_error::<Split>(options, "it used 17 buffers and had 16", |_, [rx, _]| rx.claim(17));
        check_error::<Split>(options, "it used 4 buffers and had 3", |_, [_, tx]| tx.claim(4));
        check_error::<Split>(options, "it used 65535 buffers", |_, [_, tx]| tx.claim(u16::MAX));
    }
}

fn wrong_buffers<R: Ring>() {
    let each_way = [0, 1];
    for options in &variants() {
        for queue in each_way {
            // The device has 16 of 16 receive buffers and 3 of 8 transmit buffers.
            for id in [16, 200, u16::MAX] {
                let wanted = format!("it gave back buffer {id}, which it does not have");
                check_error::<R>(options, &wanted, |_, queues| {
                    queues[queue].give(id, HEADER + 60);
                    queues[queue].publish();
                });
            }
        }
        if !options.in_order {
            check_error::<R>(options, "it gave back buffer 5, which it does not have", |_, [_, tx]| {
                tx.give(5, 0);
                tx.publish();
            });
            check_error::<R>(options, "it gave back buffer 1, which it does not have", |_, [_, tx]| {
                [1, 0, 1].iter().for_each(|&id| tx.give(id, 0));
                tx.publish();
            });
        }
    }
}

#[test]
fn a_buffer_that_it_does_not_have() {
    wrong_buffers::<Packed>();
    // If buffers are used in order, the driver does not read the used entries of transmit buffers.
    let unordered: Vec<_> = variants().into_iter().filter(|options| !options.in_order).collect();
    for options in &unordered {
        for (queue, id) in [(0, 16), (0, u16::MAX), (1, 5), (1, 200)] {
            let wanted = format!("it gave back buffer {id}, which it does not have");
            check_error::<Split>(options, &wanted, |_, queues| {
                queues[queue].give(id, HEADER + 60);
                queues[queue].publish();
            });
        }
    }
    let in_order = VirtioOptions { in_order: true, ..variants()[0].clone() };
    check_error::<Split>(&in_order, "it gave back buffer 7, which it does not have", |_, [rx, _]| {
        // Names the eighth buffer for a batch of two.
        rx.give_batch(7, HEADER + 60, 2);
        rx.publish();
    });
}

fn wrong_lengths<R: Ring>() {
    for options in &variants() {
        for len in [0, 1, HEADER - 1, HEADER + 193, 1 << 20, u32::MAX] {
            if options.in_order && R::PACKED && len == 0 {
                // The driver then reads the next entries as lengths, too.
                continue;
            }
            let wanted = format!("it wrote {len} bytes into a buffer of 204");
            check_error::<R>(options, &wanted, |_, [rx, _]| {
                let buffer = rx.take().expect("a buffer");
                rx.give(buffer.id, len);
                rx.publish();
            });
        }
    }
}

#[test]
fn more_or_less_bytes_than_possible() {
    wrong_lengths::<Split>();
    wrong_lengths::<Packed>();
}

fn wrong_counts<R: Ring>() {
    for options in variants().iter().filter(|options| options.mergeable) {
        for count in [0, 17, 255] {
            let wanted = format!("it says that a frame takes {count} buffers");
            check_error::<R>(options, &wanted, |session, [rx, _]| {
                let buffer = rx.take().expect("a buffer");
                let len = write(session, &buffer, &[3; 60], count);
                rx.give(buffer.id, len);
                rx.publish();
            });
        }
    }
}

#[test]
fn a_frame_over_no_buffers_or_too_many() {
    wrong_counts::<Split>();
    wrong_counts::<Packed>();
}

/// A device writes arbitrary data into the rings. The driver stays within its memory, and each of its calls returns.
#[test]
fn garbage_in_the_device_s_part_of_the_rings() {
    fn garbage<R: Ring>(options: &VirtioOptions, seed: u64) {
        let (mut driver, session) = attach::<R>(options);
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        for _ in 0..200 {
            for queue in &session.rings {
                let (at, bytes) = if R::PACKED { (queue.descriptors, 16) } else { (queue.device, 8) };
                let place = u64::from(random() % queue.size) * bytes;
                let word = [random().to_le_bytes(), (random() & 0x8080_ffff).to_le_bytes()].concat();
                assert!(session.at(at + place + bytes - 8, 8).write(&word));
            }
            let mut bytes = 0;
            while driver.tx_push(60, |frame| frame.fill(1)) {
                bytes += 1;
                assert!(bytes < 1000, "the driver has room without end");
            }
            driver.tx_flush();
            assert!(driver.rx_batch(1000, |frame| bytes += frame.len()) <= 1000);
        }
    }
    for seed in 0..20 {
        for options in variants() {
            garbage::<Split>(&options, seed);
            garbage::<Packed>(&options, seed);
        }
    }
}
