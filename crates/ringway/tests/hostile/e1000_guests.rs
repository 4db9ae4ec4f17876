//! Guests that program an e1000 against its manual, and hypervisors that pass useless descriptors and memory.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringway_scenes::{PATIENCE, frame, receive, send, until};
use ringway_traffic::e1000::{IRQ_INTX, IRQ_MSI, register as r};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::attacker::PEER;
use crate::e1000::{BUFFERS, BYTES, LAST, MEMORY, Nic, config, ends, message, raw, until_waiting};
use crate::scene::Scene;

/// Bits of a transmit descriptor's second word: end of packet and checksum, context, and data with segmentation.
const END: u64 = 3 << 24;
const CONTEXT: u64 = 1 << 29;
const DATA: u64 = 1 << 29 | 1 << 20;
const CUT: u64 = 1 << 26;
const OWN: [u8; 6] = [2, 0xee, 0, 0, 0, 9];

/// Returns a guest's frame of IPv4 and TCP.
fn segments() -> Vec<u8> {
    let mut bytes = vec![0; 0x1_0000];
    bytes[..6].copy_from_slice(&PEER);
    bytes[6..12].copy_from_slice(&OWN);
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    (bytes[23], bytes[46]) = (6, 0x50);
    bytes
}

#[test]
fn contexts_that_make_no_sense_cost_their_frame_and_nothing_else() {
    let scene = Scene::start_with(&config(2));
    let mut peer = scene.attach("peer");
    send(&mut peer.port, &frame([0xff; 6], PEER, 1));
    for port in ["evil0", "evil1"] {
        let mut nic = Nic::attach(&scene, port);
        nic.put(BUFFERS, &segments());
        let (mut number, mut frames) = (0, 0);
        for headers in [0, 13, 54, 55, 124, 125, 255u64] {
            for (segment, payload, transport) in
                [(0, 100, 34), (1, 0xf_ffff, 34), (0xffff, 0, 34), (1460, 1460, 0), (1460, 0xf_ffff, 255), (9, 9, 34)]
            {
                let places = 14 | 24 << 8 | 33 << 16 | transport << 32 | (transport + 16) << 40 | 0xffff << 48;
                let flags = if number % 3 == 0 { 4 } else { 7u64 };
                nic.words(number, [places, payload | flags << 24 | CONTEXT | headers << 40 | segment << 48]);
                for len in [14, 54, 1514, 0xffff] {
                    nic.words(number + 1, [BUFFERS, len | END | DATA | CUT]);
                    (number, frames) = (number + 1, frames + 1);
                }
                number += 1;
            }
        }
        // Checksums beyond the frame, by legacy descriptors and by that context.
        for place in 0..=255 {
            nic.words(number, [BUFFERS, 60 | END | 1 << 26 | place << 16 | (255 - place) << 40]);
            nic.words(number + 1, [place | place << 8 | place << 32 | (255 - place) << 40, CONTEXT | 54 << 40]);
            nic.words(number + 2, [BUFFERS, (60 + place) | END | DATA | 3 << 40]);
            (number, frames) = (number + 3, frames + 2);
        }
        nic.put(BUFFERS + 0x2_0000, &frame(PEER, OWN, 7));
        nic.descriptor(number, BUFFERS + 0x2_0000, 60, LAST);
        let tail = number as u32;
        nic.transmit(MEMORY, 2048 * 16, 0, tail);
        until("the device has used all descriptors", || nic.get(r::TDH) == tail);
        while receive(&mut peer.port, Duration::ZERO).is_some() {}
        nic.set(r::TDT, tail + 1);
        let came = receive(&mut peer.port, PATIENCE).expect("the valid frame arrives");
        assert_eq!(came, frame(PEER, OWN, 7));
        assert!(scene.drops(port, "bad_offload") > 40, "{}", scene.daemon.port(port));
        let counted = |port: &serde_json::Value| -> u64 {
            let drops = port["drops"].as_object().expect("a list").values().filter_map(serde_json::Value::as_u64);
            port["in"]["frames"].as_u64().unwrap_or(0) + drops.sum::<u64>()
        };
        until("each frame is counted", || counted(&scene.daemon.port(port)) > frames);
        drop(nic);
        until_waiting(&scene, port);
    }
    no_faults(&scene);
    drop(peer);
    scene.end();
}

/// Checks that no port was retired. A port whose descriptors take long may be marked as slow, depending on the machine.
fn no_faults(scene: &Scene) {
    let status = scene.daemon.status();
    let faults = status["faults"].as_array().expect("a list");
    assert!(faults.iter().all(|fault| fault["reason"] == "slow_client"), "{faults:?}");
}

/// Laps of a ring in which there is always work.
const LAPS: u32 = 10;

#[test]
fn descriptors_without_end_that_are_no_frames_keep_nobody_waiting() {
    type Make = fn(u64) -> [u64; 2];
    let kinds: [(&str, Make); 6] = [
        ("contexts", |_| [14, CONTEXT | 54 << 40]),
        ("descriptors of no type", |_| [BUFFERS, 60 | END | 1 << 29 | 7 << 20]),
        ("frames of 0 bytes", |_| [BUFFERS, END]),
        ("frames of a byte", |_| [BUFFERS, 1 | END]),
        ("frames of a thousand pieces", |number| {
            [BUFFERS + number % 1000, 1 | if number % 1000 == 999 { END } else { 0 }]
        }),
        ("frames longer than the longest", |number| {
            [BUFFERS, 0xf_000 | DATA | if number % 500 == 499 { END } else { 0 }]
        }),
    ];
    let mut scene = Scene::start_with(&config(1));
    let mut peer = scene.attach("peer");
    send(&mut peer.port, &frame([0xff; 6], PEER, 1));
    for (kind, make) in kinds {
        let mut nic = Nic::attach(&scene, "evil0");
        nic.put(BUFFERS, &segments());
        let block = BUFFERS + 0x4_0000;
        (0..4000).for_each(|number| nic.words(number, make(number)));
        nic.set(r::CSBAH, 0);
        nic.set(r::CSBAL, block as u32);
        nic.word(block + 12).store(1, Ordering::Relaxed);
        nic.transmit(MEMORY, 4000 * 16, 0, 0);
        // The tail is always just behind the head, so that the device always has work.
        let (deadline, mut laps, mut before) = (Instant::now() + PATIENCE, 0, 0);
        while laps < LAPS {
            assert!(Instant::now() < deadline, "{laps} laps of {kind}");
            let head = nic.word(block + 64).load(Ordering::Acquire);
            let tail = (head + 3999) % 4000;
            nic.word(block).store(tail, Ordering::Release);
            if nic.word(block + 68).load(Ordering::Relaxed) != 0 {
                nic.set(r::TDT, tail);
            }
            laps += u32::from(head < before);
            before = head;
        }
        scene.bystanders.go_on(2000);
        assert_ne!(scene.daemon.port("evil0")["state"], "waiting", "{kind}");
        drop(nic);
        until_waiting(&scene, "evil0");
    }
    no_faults(&scene);
    drop(peer);
    scene.allow_for_the_first_round(8 << 10);
    scene.end();
}

#[test]
fn receive_rings_that_no_driver_makes_stop_by_name() {
    type Make = fn(&mut Nic);
    let cases: [(&str, Make); 6] = [
        ("ring_bad_length", |nic| nic.receive(MEMORY, 0, 0, 1)),
        ("ring_head_out_of_range", |nic| nic.receive(MEMORY, 128, 8, 1)),
        ("ring_tail_out_of_range", |nic| nic.receive(MEMORY, 128, 0, 8)),
        ("ring_bad_base", |nic| nic.receive(0xdead_0000, 128, 0, 1)),
        ("ring_bad_base", |nic| nic.receive(u64::MAX - 127, 256, 0, 1)),
        ("memory_lost", |nic| {
            (0..8).for_each(|number| nic.descriptor(number, BUFFERS, 0, 0));
            nic.receive(MEMORY, 128, 0, 7);
            ftruncate(&nic.file, 0).expect("a shorter file");
        }),
    ];
    let mut scene = Scene::start_with(&config(cases.len()));
    let mut peer = scene.attach("peer");
    let nics: Vec<Nic> = (0..)
        .zip(&cases)
        .map(|(number, (reason, make))| {
            let port = format!("evil{number}");
            let mut nic = Nic::attach(&scene, &port);
            make(&mut nic);
            until(&format!("{port} is stopped: {reason}"), || {
                send(&mut peer.port, &frame([0xff; 6], PEER, 1));
                scene.faults(&port, reason) > 0
            });
            nic
        })
        .collect();
    scene.bystanders.go_on(2000);
    drop(nics);
    (0..cases.len()).for_each(|number| until_waiting(&scene, &format!("evil{number}")));
    drop(peer);
    scene.allow_for_the_first_round(8 << 10);
    scene.end();
}

#[test]
fn the_device_s_own_memory_is_nothing_to_work_on() {
    const WINDOW: u64 = 0x8000_0000;
    let scene = Scene::start_with(&config(4));
    let mut peer = scene.attach("peer");
    // The window of the registers as a mapping without a file, as QEMU sends it.
    for port in ["evil0", "evil1"] {
        let mut nic = Nic::attach(&scene, port);
        let map =
            [[32, 3].map(u32::to_ne_bytes).concat(), [0, WINDOW, 0x2_0000].map(u64::to_ne_bytes).concat()].concat();
        let mut socket = nic.client.connection();
        socket.write_all(&message(2, 0, &map)).expect("a message");
        let mut answer = [0; 16];
        socket.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[8] & 0x20, 0, "the mapping is accepted");
        nic.descriptor(0, WINDOW + u64::from(r::TDBAL), 60, LAST);
        nic.transmit(MEMORY, 128, 0, 1);
        until("the ring is stopped", || scene.faults(port, "ring_bad_address") > 0);
        drop(nic);
        until_waiting(&scene, port);
    }
    // The window's file mapped as guest memory: rings and buffers overlap the registers of the rings.
    let mut nic = Nic::attach(&scene, "evil3");
    let (file, start) = nic.client.region(0).expect("registers").file.expect("the registers of rings can be mapped");
    nic.client.map(WINDOW, file.as_fd(), start + 0x2000, 0x2000).expect("the file can be mapped as memory");
    for (ring, buffer) in [(WINDOW + 0x1800, BUFFERS), (MEMORY, WINDOW + 0x1800), (WINDOW + 0x800, WINDOW + 0x808)] {
        (0..256).for_each(|number| nic.descriptor(number, buffer, 1024, LAST));
        nic.transmit(ring, 128, 0, 7);
        nic.receive(ring, 128, 0, 7);
        (0..64).for_each(|_| send(&mut peer.port, &frame([0xff; 6], PEER, 1)));
        scene.bystanders.go_on(200);
    }
    nic.client.reset().expect("the device answers");
    assert_eq!([r::TDBAL, r::RDBAL, r::TDT].map(|register| nic.get(register)), [0; 3]);
    drop((nic, file));
    until_waiting(&scene, "evil3");
    drop(peer);
    scene.end();
}

#[test]
fn a_status_block_that_cannot_be_is_refused_by_name_and_one_that_goes_is_missed_by_nobody() {
    type Make = fn(&mut Nic);
    let cases: [(&str, Make); 5] = [
        ("csb_bad_address", |nic| nic.set(r::CSBAL, 0xdead_0000)),
        ("csb_bad_address", |nic| nic.set(r::CSBAL, MEMORY as u32 + BYTES as u32 - 4092)),
        ("csb_bad_address", |nic| {
            nic.set(r::CSBAH, u32::MAX);
            nic.set(r::CSBAL, u32::MAX - 4);
        }),
        ("csb_overlaps_ring", |nic| {
            nic.transmit(MEMORY, 128, 0, 0);
            nic.set(r::CSBAL, MEMORY as u32);
        }),
        ("csb_overlaps_ring", |nic| {
            nic.set(r::CSBAL, MEMORY as u32 + 64);
            nic.transmit(MEMORY, 128, 0, 1);
        }),
    ];
    let scene = Scene::start_with(&config(10));
    for (number, (reason, make)) in (0..).step_by(2).zip(cases) {
        let port = format!("evil{number}");
        let mut nic = Nic::attach(&scene, &port);
        make(&mut nic);
        until(&format!("{port} is told: {reason}"), || scene.faults(&port, reason) > 0);
        drop(nic);
        until_waiting(&scene, &port);
    }
    let mut nic = Nic::attach(&scene, "evil0");
    let block = BUFFERS + 0x4_0000;
    nic.set(r::CSBAL, block as u32);
    nic.word(block + 12).store(1, Ordering::Relaxed);
    nic.put(BUFFERS, &frame(PEER, OWN, 1));
    (0..8).for_each(|number| nic.descriptor(number, BUFFERS, 60, LAST));
    nic.transmit(MEMORY, 128, 0, 0);
    for _ in 0..200 {
        nic.word(block).store(5, Ordering::Release);
        nic.client.post(0, r::TDT.into(), 5).expect("the port stays");
        nic.client.unmap(MEMORY, BYTES as u64).expect("the memory is unmapped");
        nic.client.map(MEMORY, nic.file.as_fd(), 0, BYTES as u64).expect("the memory is mapped");
        nic.set(r::TCTL, 0);
        nic.transmit(MEMORY, 128, 0, 0);
    }
    drop(nic);
    until_waiting(&scene, "evil0");
    scene.end();
}

#[test]
fn descriptors_of_the_wrong_kind_are_refused_and_closed() {
    let scene = Scene::start_with(&config(1));
    let memory = memfd_create("short", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&memory, 4096).expect("memory");
    let open = |path: &str| OwnedFd::from(File::open(path).expect(path));
    let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
    let wrong = [pipe, open("/dev/zero"), open("/proc/self/maps"), open("/"), memory];
    for _ in 0..20 {
        let mut nic = Nic::attach(&scene, "evil0");
        for file in &wrong {
            let refused = nic.client.map(0x8000_0000, file.as_fd(), 0, 1 << 20);
            assert!(refused.is_err(), "no memory of that size: {file:?}");
            for kind in [IRQ_INTX, IRQ_MSI] {
                assert!(nic.client.trigger(kind, 0, &[file.as_fd()]).is_err(), "no eventfd: {file:?}");
            }
        }
        nic.client.unmap(0x8000_0000, 1 << 20).expect_err("no mapping is there");
        drop(nic);
        until_waiting(&scene, "evil0");
    }
    // Descriptors with messages that have none, and more descriptors than any message has.
    for (count, reason) in [(1, "bad_message"), (17, "too_many_descriptors")] {
        let mut evil = raw(&scene, "evil0");
        evil.write_all(&message(1, 0, b"\0\0\0\0{}\0")).expect("a version");
        evil.read_exact(&mut [0; 16]).expect("an answer");
        let files: Vec<BorrowedFd<'_>> = (0..count).map(|_| wrong[4].as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(17))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&files)));
        let bytes = message(13, 0, &[]);
        sendmsg(&evil, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL).expect("a message");
        ends(&evil, reason);
        until(reason, || scene.faults("evil0", reason) > 0);
    }
    scene.end();
}
