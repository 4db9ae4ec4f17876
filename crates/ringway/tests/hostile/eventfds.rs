//! The wake-up descriptors that a client shares with the switch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringway_abi::attach::Request;
use ringway_abi::doorbell::{RX_CLIENT, WISH};
use ringway_client::Shape;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::attacker::{EVIL, PEER};
use crate::raw::{Raw, Said};
use crate::scene::{Scene, StopOnDrop};
use crate::support::{frame, send, until};

const STORM: Duration = Duration::from_secs(2);

#[test]
fn a_blocking_full_call_descriptor_ends_the_port_and_holds_up_nobody_for_long() {
    let scene = Scene::start();
    let mut peer = scene.attach("peer");
    for _ in 0..3 {
        let evil = scene.attach("evil");
        let call = evil.port.call_fd();
        fcntl_setfl(call, fcntl_getfl(call).expect("flags") - OFlags::NONBLOCK).expect("the flags are shared");
        rustix::io::write(call, &(u64::MAX - 1).to_ne_bytes()).expect("the counter takes this much");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = StopOnDrop(&stop);
            scope.spawn(|| {
                let mut wish = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    // A new wish at any time: a switch that went on granting them would hang each time.
                    wish = wish.wrapping_add(1).max(1);
                    evil.doorbell(RX_CLIENT + WISH).store(wish, Ordering::SeqCst);
                }
            });
            until("the wish stands", || evil.doorbell(RX_CLIENT + WISH).load(Ordering::SeqCst) != 0);
            send(&mut peer.port, &frame([0xff; 6], PEER, 0));
            scene.must_have_ended(&evil, "call_blocked", "the call eventfd was made blocking and filled up");
        });
        scene.bystanders.go_on(500);
    }
    drop(peer);
    scene.end();
}

#[test]
fn a_full_kick_descriptor_keeps_only_its_owner_from_waking_the_switch() {
    let scene = Scene::start();
    let mut evil = scene.attach("evil");
    rustix::io::write(evil.port.kick_fd(), &(u64::MAX - 1).to_ne_bytes()).expect("the counter takes this much");
    evil.introduce(EVIL);
    scene.bystanders.go_on(2000);
    assert_eq!(scene.daemon.port("evil")["state"], "up");
    drop(evil);
    scene.end();
}

#[test]
fn a_storm_of_kicks_takes_no_frames_from_others() {
    let scene = Scene::start();
    let evil = scene.attach("evil");
    let (before, start) = (scene.bystanders.moved(), Instant::now());
    scene.bystanders.go_on(10_000);
    println!("{} frames in {:?} of quiet", scene.bystanders.moved() - before, start.elapsed());
    let (before, start) = (scene.bystanders.moved(), Instant::now());
    while start.elapsed() < STORM {
        evil.kick();
    }
    let during = scene.bystanders.moved() - before;
    scene.bystanders.go_on(1000);
    let kicks = scene.daemon.port("evil")["kicks"].as_u64().expect("a number");
    println!("{during} frames and {kicks} kicks heard in {STORM:?}");
    assert!(during > 0);
    drop(evil);
    scene.end();
}

#[test]
fn a_client_that_closes_its_descriptors_stays_attached_until_its_connection_ends() {
    let scene = Scene::start();
    let mut peer = scene.attach("peer");
    let raw = Raw::connect(&scene.daemon);
    let request = Request { switch: "lan0".into(), port: "evil".into(), shape: Shape::default() };
    assert!(raw.say(&request.encode()));
    match raw.hear() {
        Said::Granted { descriptors } => drop(descriptors),
        other => panic!("should be granted: {other:?}"),
    }
    // Nobody has this memory mapped or these descriptors open but the switch.
    until("the ring is full", || {
        send(&mut peer.port, &frame([0xff; 6], PEER, 0));
        scene.drops("evil", "receiver_full") > 0
    });
    assert_eq!(scene.daemon.port("evil")["out"]["frames"], 511);
    assert_eq!(scene.daemon.port("evil")["state"], "up");
    drop(raw);
    until("the port goes with its connection", || scene.daemon.port("evil").is_null());
    drop(peer);
    scene.end();
}
