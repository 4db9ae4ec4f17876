//! The attach protocol: clients that send nothing, too much, or garbage.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use ringway_abi::attach::{REQUEST_BYTES, Request};
use ringway_client::{Port, Shape};
use ringway_scenes::{until, until_some};

use crate::raw::{MOST_DESCRIPTORS, Raw, Said};
use crate::scene::Scene;

/// The place of the name in a request.
const NAME_AT: usize = 28;

fn request(name: &str) -> [u8; REQUEST_BYTES] {
    Request { switch: "lan0".into(), port: name.into(), shape: Shape::default(), external: None }.encode()
}

/// Returns a request with these bytes as the name.
fn named(name: &[u8]) -> [u8; REQUEST_BYTES] {
    let mut bytes = request("x");
    bytes[NAME_AT..].fill(0);
    bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
    bytes
}

fn shaped(change: impl FnOnce(&mut Shape)) -> Vec<u8> {
    let mut shape = Shape::default();
    change(&mut shape);
    Request { switch: "lan0".into(), port: "x".into(), shape, external: None }.encode().to_vec()
}

/// Connects, and says this. Connects again if this test stood still in between for longer than the switch waits for a request.
fn said(scene: &Scene, message: &[u8]) -> Raw {
    until_some("the switch hears the message in time", || {
        let raw = Raw::connect(&scene.daemon);
        (raw.say(message) && !raw.hears("no request came within")).then_some(raw)
    })
}

#[test]
fn whatever_is_no_request_is_refused_with_the_reason() {
    let scene = Scene::start();
    let with = |at: usize, bytes: &[u8]| {
        let mut message = request("x").to_vec();
        message[at..at + bytes.len()].copy_from_slice(bytes);
        message
    };
    let long = [b'x'; 66];
    let biggest = |s: &mut Shape| {
        *s = Shape {
            tx_rings: 16,
            rx_rings: 16,
            tx_slots: 32768,
            rx_slots: 32768,
            buffer_size: 65472,
            extra_buffers: 65536,
            offload: false,
        };
    };
    for (message, words) in [
        (request("x")[..64].to_vec(), "message of 64 bytes: a request has 128"),
        (vec![0], "message of 1 bytes"),
        (request("x")[..127].to_vec(), "message of 127 bytes"),
        ([request("x"), request("x")].concat(), "message of 129 bytes"),
        (vec![0x77; 100_000], "message of 129 bytes"),
        (with(0, b"HTTP"), "not the attach protocol"),
        (with(4, &[2, 0]), "attach protocol version 2: this side speaks 1"),
        (with(6, &[4]), "reserved bytes"),
        (with(127, &[1]), "reserved bytes"),
        (named(b"").to_vec(), "port name \"\": give SWITCH:PORT"),
        (named(b"lan0").to_vec(), "give SWITCH:PORT"),
        (named(b"lan0:").to_vec(), "give SWITCH:PORT"),
        (named(b":x").to_vec(), "give SWITCH:PORT"),
        (named(b"a:b:c").to_vec(), "give SWITCH:PORT"),
        (named(b"lan0:..").to_vec(), "\"..\" is not a name"),
        (named(b"..:x").to_vec(), "\"..\" is not a name"),
        (named(b"lan0:a/b").to_vec(), "give SWITCH:PORT"),
        (named(b"lan0:a b").to_vec(), "give SWITCH:PORT"),
        (named(b"lan0:\xff\xfe").to_vec(), "give SWITCH:PORT"),
        (named(b"lan0:x\0y").to_vec(), "give SWITCH:PORT"),
        (named(&long).to_vec(), "give SWITCH:PORT"),
        (named(&[b"lan0:", &long[..33]].concat()).to_vec(), "give SWITCH:PORT"),
        (shaped(|s| s.tx_rings = 0), "tx_rings 0 is not possible: 1 to 16"),
        (shaped(|s| s.rx_rings = 17), "rx_rings 17 is not possible"),
        (shaped(|s| s.tx_slots = 0), "tx_slots 0 is not possible: 4 to 32768"),
        (shaped(|s| s.rx_slots = u32::MAX), "rx_slots 4294967295 is not possible"),
        (shaped(|s| s.buffer_size = 0), "buffer_size 0 is not possible"),
        (shaped(|s| s.buffer_size = 2048 + 1), "buffer_size 2049 is not possible: 128 to 65472, a multiple of 64"),
        (shaped(|s| s.buffer_size = u32::MAX), "buffer_size 4294967295 is not possible"),
        (shaped(|s| s.extra_buffers = u32::MAX), "extra_buffers 4294967295 is not possible"),
        (shaped(biggest), "[attach] max_memory allows 64MiB"),
    ] {
        said(&scene, &message).must_be_refused(words, words);
    }
    assert!(scene.daemon.port("x").is_null());
    scene.end();
}

#[test]
fn the_largest_port_that_is_allowed_works() {
    let scene = Scene::start();
    let shape = Shape { tx_rings: 16, rx_rings: 16, buffer_size: 3712, extra_buffers: 1000, ..Shape::default() };
    let large = scene.attach_as("large", shape);
    assert!(large.port.layout().bytes > 60 << 20);
    drop(large);
    until("the port is gone", || scene.daemon.port("large").is_null());
    scene.end();
}

#[test]
fn descriptors_sent_to_the_switch_are_refused_or_closed() {
    let scene = Scene::start();
    let file = std::fs::File::open("/dev/null").expect("a file");
    for count in [1, 3, MOST_DESCRIPTORS] {
        let descriptors: Vec<BorrowedFd<'_>> = (0..count).map(|_| file.as_fd()).collect();
        // Descriptors with a request, with garbage, and from a client that is already attached.
        let raw = Raw::connect(&scene.daemon);
        if !raw.say_with(&request("x"), &descriptors) {
            // The kernel refuses the descriptors (SO_PASSRIGHTS, Linux 6.16). The connection stays.
            assert!(raw.say(b"garbage"));
            raw.must_be_refused("message of 7 bytes", "garbage");
            continue;
        }
        assert!(matches!(raw.next_answer(), Said::Granted { .. }), "descriptors are ignored");
        assert!(raw.say_with(b"more", &descriptors));
        raw.must_be_refused("an attached client has nothing more to say", "a second message");
        until("the port is gone", || scene.daemon.port("x").is_null());
        let raw = Raw::connect(&scene.daemon);
        assert!(raw.say_with(b"garbage", &descriptors));
        raw.must_be_refused("message of 7 bytes", "garbage");
    }
    scene.end();
}

#[test]
fn clients_that_never_speak_are_dropped_and_keep_nobody_out() {
    let scene = Scene::start();
    let start = Instant::now();
    // More clients than may be in the dialogue at once.
    let silent: Vec<Raw> = (0..200).map(|_| Raw::connect(&scene.daemon)).collect();
    drop(Port::attach(scene.daemon.runtime_dir().join("attach.sock"), "lan0:x", Shape::default()).expect("a port"));
    for (number, raw) in silent.iter().enumerate() {
        match raw.next_answer() {
            Said::Refused(why) => {
                assert!(why.contains("too many clients") || why.contains("no request came within"), "{why}");
            }
            other => panic!("client {number} was not refused: {other:?}"),
        }
        assert!(matches!(raw.next_answer(), Said::Closed));
    }
    assert!(start.elapsed() >= Duration::from_secs(2), "the last clients were ended before their timeout");
    drop(silent);
    scene.end();
}

#[test]
fn a_name_in_use_is_refused_and_its_owner_lives() {
    let scene = Scene::start();
    let first = scene.attach("x");
    for _ in 0..100 {
        said(&scene, &request("x")).must_be_refused("lan0:x is in use: attach to another name", "the same name twice");
    }
    assert_eq!(first.port.ended(), None);
    assert_eq!(scene.daemon.port("x")["state"], "up");
    drop(first);
    until("the name is free", || scene.daemon.port("x").is_null());
    scene.end();
}

#[test]
fn a_client_that_does_not_read_its_answer_holds_nothing_up() {
    let scene = Scene::start();
    for round in 0..200 {
        let raw = Raw::connect(&scene.daemon);
        let message = if round % 2 == 0 { vec![0; 5] } else { request("x").to_vec() };
        assert!(raw.say(&message));
        drop(raw);
    }
    until("the client's port is gone", || scene.daemon.port("x").is_null());
    scene.end();
}
