//! Frames arrive, in every mode of driving the device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringway_testing::until;
use ringway_traffic::{E1000Options, Endpoint, FrameSpec, Limits, PingOptions, PongOptions, Watch, ping, pong};

use crate::scene::{Lan, Lane, PATIENCE, Way, exchange, mac};

#[test]
fn every_frame_arrives_as_it_was_sent_in_every_mode() {
    for way in Way::all() {
        let lan = Lan::of(way.model);
        let options = E1000Options { mode: way.mode, ..E1000Options::default() };
        let mut sent = 0;
        for size in [60, 1514] {
            // A new front end finds the device as after power on.
            let mut lanes = [0, 1].map(|number| Lane::new(&lan, number, size, &options));
            exchange(&mut lanes, 3000);
            sent += 3000;
            for number in [0, 1] {
                // Drivers that poll see a frame before it is counted.
                until("all frames are counted", || lan.counters(number).out_frames >= sent);
                let counters = lan.counters(number);
                assert_eq!((counters.in_frames, counters.out_frames), (sent, sent), "{way:?}");
            }
        }
    }
}

#[test]
fn rings_go_round_and_frames_may_take_several_buffers() {
    for way in Way::all() {
        let lan = Lan::of(way.model);
        // A frame takes four or five buffers, and the ring has few buffers.
        let options = E1000Options {
            mode: way.mode,
            tx_ring: 8,
            rx_ring: 512,
            buffer_size: 256,
            interval: Duration::from_micros(20),
            ..E1000Options::default()
        };
        // A transmit buffer is as long as a receive buffer.
        let sender = E1000Options { buffer_size: 2048, ..options.clone() };
        let mut lanes = [Lane::new(&lan, 0, 1100, &sender), Lane::new(&lan, 1, 250, &options)];
        exchange(&mut lanes, 2000);
    }
}

#[test]
fn drivers_that_sleep_are_woken() {
    for way in Way::all() {
        let lan = Lan::of(way.model);
        let interval = Duration::from_micros(50);
        let options = E1000Options { mode: way.mode, interval, ..E1000Options::default() };
        let (mut near, mut far) = (lan.driver(0, &options), lan.driver(1, &options));
        let spec = FrameSpec { size: 200, source: mac(0), destinations: vec![mac(1)], ..FrameSpec::default() };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let over = &over;
            let options = PongOptions { mac: mac(1), ..PongOptions::default() };
            let pong = scope.spawn(move || pong(&mut far, &options, &mut Watch::none().stop_by(over)));
            let limits = Limits { frames: Some(300), duration: Some(PATIENCE) };
            let options = PingOptions { limits, timeout: PATIENCE, ..PingOptions::default() };
            let pinged = ping(&mut near, &spec, &options, &mut Watch::none());
            over.store(true, Ordering::Relaxed);
            pong.join().unwrap().unwrap();
            assert_eq!(pinged.unwrap().received, 300, "{way:?}: {:?}", lan.said(0));
        });
    }
}

#[test]
fn a_sender_without_room_is_woken_when_there_is_some() {
    for way in Way::all() {
        let lan = Lan::of(way.model);
        let interval = Duration::from_micros(50);
        let options = E1000Options { mode: way.mode, tx_ring: 8, interval, ..E1000Options::default() };
        let mut near = lan.driver(0, &options);
        let mut sent = 0;
        while sent < 2000 {
            if near.tx_push(60, |frame| frame.fill(0xff)) {
                sent += 1;
            } else {
                near.tx_flush();
                let start = Instant::now();
                near.wait(false, PATIENCE).unwrap();
                assert!(start.elapsed() < PATIENCE, "{way:?} after {sent} frames");
            }
        }
    }
}

#[test]
fn only_frames_for_its_address_and_for_all_reach_a_driver_that_wants_no_others() {
    for way in Way::all() {
        let lan = Lan::of(way.model);
        let options = E1000Options { mode: way.mode, promiscuous: false, ..E1000Options::default() };
        let (mut near, mut far) = (lan.driver(0, &options), lan.driver(1, &options));
        assert_eq!((near.mac(), far.mac()), (mac(0), mac(1)));
        let groups = [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], mac(9).0, mac(1).0];
        for to in groups {
            assert!(near.tx_push(60, |frame| {
                frame.fill(0);
                frame[..6].copy_from_slice(&to);
                frame[6..12].copy_from_slice(&mac(0).0);
            }));
        }
        near.tx_flush();
        let mut came = Vec::new();
        // Frames come in order: the last one is the frame for the NIC's own address.
        while came.last() != Some(&mac(1).0) {
            far.wait(true, PATIENCE).unwrap();
            far.rx_batch(9, |frame| came.push(<[u8; 6]>::try_from(&frame[..6]).unwrap()));
            near.tx_flush();
            assert!(!came.is_empty(), "{way:?}");
        }
        assert_eq!(came, [[0xff; 6], mac(1).0], "{way:?}");
    }
}
