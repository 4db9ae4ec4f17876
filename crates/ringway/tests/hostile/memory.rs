//! Changes of a client to its memory file.

use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringway_scenes::{frame, until};
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};
use rustix::io::Errno;

use crate::attacker::{EVIL, PEER};
use crate::scene::{Scene, StopOnDrop};

const RACE: Duration = Duration::from_millis(1500);

#[test]
fn the_memory_file_cannot_be_truncated_grown_or_made_read_only() {
    let scene = Scene::start();
    let evil = scene.attach("evil");
    let (file, bytes) = (evil.port.memory().file(), evil.port.layout().bytes as u64);
    for size in [0, 4096, bytes - 1, bytes + 1, 1 << 40] {
        assert_eq!(ftruncate(file, size), Err(Errno::PERM), "{size}");
    }
    assert_eq!(fallocate(file, FallocateFlags::empty(), bytes, 4096), Err(Errno::PERM));
    assert_eq!(
        fcntl_add_seals(file, SealFlags::WRITE),
        Err(Errno::BUSY),
        "the switch's memory must not become read-only"
    );
    drop(evil);
    scene.end();
}

/// Sends and receives all the time, while `abuse` runs again and again in another thread.
fn under_load(scene: &Scene, from: u64, abuse: impl Fn(std::os::fd::BorrowedFd<'_>, u64, u64) + Sync) {
    let mut peer = scene.attach("peer");
    peer.introduce(PEER);
    let (end, mut lives) = (Instant::now() + RACE, 0);
    while Instant::now() < end {
        lives += 1;
        let mut evil = scene.attach("evil");
        let bytes = evil.port.layout().bytes as u64;
        let from = if from == 0 { 0 } else { evil.port.layout().buffers as u64 };
        evil.introduce(EVIL);
        let file = evil.port.memory().file().try_clone_to_owned().expect("a descriptor");
        let (flowing, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _stop = StopOnDrop(&stop);
            scope.spawn(|| {
                // Indices and buffers no longer have their first values by then.
                until("frames flow", || flowing.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed));
                while !stop.load(Ordering::Relaxed) {
                    abuse(std::os::fd::AsFd::as_fd(&file), from, bytes - from);
                }
            });
            let mut taken = 0;
            while Instant::now() < end && evil.port.ended().is_none() {
                for number in 0..64 {
                    evil.port.tx().push(&frame(PEER, EVIL, number));
                    peer.port.tx().push(&frame(EVIL, PEER, number));
                }
                evil.port.flush();
                peer.port.flush();
                peer.port.rx().drain(512, |_| {});
                taken += evil.port.rx().drain(512, |_| {});
                flowing.store(taken > 1000, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
    }
    println!("{lives} attackers");
    drop(peer);
    until("the attackers are gone", || scene.daemon.port("evil").is_null() && scene.daemon.port("peer").is_null());
    let status = scene.daemon.status();
    for fault in status["faults"].as_array().expect("a list") {
        assert_eq!(fault["port"], "evil", "{fault}");
    }
}

fn punch(file: std::os::fd::BorrowedFd<'_>, from: u64, len: u64) {
    match fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, len) {
        // Not any more once the port has ended: then the memory is sealed.
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => panic!("a hole: {error}"),
    }
}

#[test]
fn punching_holes_into_buffers_while_they_are_copied_harms_nobody() {
    let scene = Scene::start();
    under_load(&scene, 1, punch);
    scene.end();
}

#[test]
fn punching_holes_into_everything_costs_the_client_its_port_at_most() {
    let scene = Scene::start();
    under_load(&scene, 0, punch);
    scene.end();
}

#[test]
fn another_process_that_scribbles_over_the_memory_costs_the_client_its_port_at_most() {
    let scene = Scene::start();
    for _ in 0..5 {
        let evil = scene.attach("evil");
        let target = format!("of=/proc/{}/fd/{}", std::process::id(), evil.port.memory().file().as_raw_fd());
        let mut scribbler = Command::new("dd")
            .args(["if=/dev/urandom", target.as_str(), "bs=64K", "count=34", "conv=notrunc"])
            .stderr(Stdio::null())
            .spawn()
            .expect("dd is installed");
        let mut head = 0;
        while scribbler.try_wait().expect("a child").is_none() {
            // The test uses the ring directly, because the client library would refuse the slots' contents.
            head = (head + 64) % 512;
            evil.publish(head);
            std::thread::yield_now();
        }
        evil.kick();
        scene.bystanders.go_on(200);
        let ended = evil.port.ended().is_some();
        let name = evil.name.clone();
        drop(evil);
        until("the attacker is gone", || scene.daemon.port(&name).is_null());
        let known = ["tx_head_out_of_range", "rx_head_out_of_range", "endless_frame"];
        assert!(!ended || known.iter().any(|reason| scene.faults("evil", reason) > 0));
    }
    scene.end();
}
