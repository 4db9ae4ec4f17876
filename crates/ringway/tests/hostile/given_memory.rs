//! Memory of front ends: files that are truncated, sparse, or have huge pages that are missing.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ringway_memory::Mapping;
use ringway_scenes::{frame, send, until};
use ringway_testing::file::{MoreHugePages, allocated, allocated_by_name, memfd as memory};
use ringway_testing::skip;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::attacker::PEER;
use crate::e1000::{self, Nic};
use crate::front_end::{
    FrontEnd, LEAST, LOG_ALL, SET_INFLIGHT_FD, SET_LOG_BASE, config, must_have_ended, offer, put_frame, words,
};
use crate::scene::Scene;

/// Returns a file of one huge page, or `None` if the kernel has no free huge page.
fn huge_page() -> Option<OwnedFd> {
    let file = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB).ok()?;
    ftruncate(&file, 2 << 20).ok()?;
    Mapping::shared(file.as_fd(), 2 << 20).ok().map(|_| file)
}

#[test]
fn a_ring_that_starts_in_memory_that_is_gone_costs_the_front_end_its_port() {
    let scene = Scene::start_with(&config(3));
    for (number, bytes) in [1 << 20, 1 << 30, 1 << 40].into_iter().enumerate() {
        let port = format!("evil{number}");
        let mut evil = FrontEnd::connect(&scene, &port, 0);
        let file = memory(bytes);
        assert!(evil.share(&file, bytes));
        ftruncate(&file, 0).expect("nothing");
        evil.start();
        must_have_ended(&scene, &port, "memory_lost");
    }
    scene.end();
}

/// If a ring's memory is lost, the reported reason is the memory, not the contents of the ring.
#[test]
fn memory_that_goes_while_frames_flow_is_named_as_the_reason() {
    let scene = Scene::start_with(&config(1));
    for round in 0..6 {
        let before = scene.faults("evil0", "memory_lost");
        let mut evil = FrontEnd::connect(&scene, "evil0", 0);
        let file = memory(1 << 30);
        let own = Mapping::shared(file.as_fd(), LEAST).expect("memory");
        assert!(evil.share(&file, 1 << 30));
        assert!(evil.start());
        let at = put_frame(&own, &frame(PEER, [2, 0xee, 0, 0, 0, 9], 1));
        // The index is far from 0 before it reads as 0.
        let mut sent = 0;
        while sent < 100 + round {
            offer(&own, sent, &[at; 50]);
            sent += 50;
            evil.kick();
            until("the frames are taken", || crate::front_end::used(&own) == sent);
        }
        ftruncate(&file, 0).expect("nothing");
        evil.kick();
        until("the reason is counted", || scene.faults("evil0", "memory_lost") == before + 1);
    }
    let status = scene.daemon.status();
    let others = status["faults"].as_array().expect("a list").iter().filter(|fault| fault["reason"] != "memory_lost");
    assert_eq!(others.count(), 0, "{}", status["faults"]);
    scene.end();
}

#[test]
fn a_large_piece_of_dma_memory_that_is_gone_costs_the_front_end_its_rings() {
    let scene = Scene::start_with(&e1000::config(2));
    for port in ["evil0", "evil1"] {
        let mut nic = Nic::attach(&scene, port);
        let file = memory(1 << 40);
        nic.client.map(1 << 40, file.as_fd(), 0, 1 << 40).expect("the memory is mapped");
        nic.descriptor(0, 1 << 40, 1000, e1000::LAST);
        ftruncate(&file, 0).expect("nothing");
        nic.transmit(e1000::MEMORY, 128, 0, 1);
        until("the ring is stopped", || scene.faults(port, "memory_lost") > 0);
        // Starting the rings again and again allocates no further memory for the lost pages.
        let before = spare_bytes(&scene);
        for round in 0..20 {
            (0..200).for_each(|at| nic.descriptor(at, (1 << 40) + ((round * 200 + at) << 20), 1000, e1000::LAST));
            nic.set(ringway_traffic::e1000::register::TCTL, 0);
            nic.transmit(e1000::MEMORY, 4096, 0, 200);
            scene.bystanders.go_on(200);
        }
        assert!(spare_bytes(&scene) <= before + (1 << 20), "{} bytes after {before}", spare_bytes(&scene));
        drop(nic);
        scene.daemon.until_state(port, "waiting");
    }
    assert_eq!(spare_bytes(&scene), 0);
    scene.end();
}

/// Returns the bytes that the daemon has allocated for lost memory.
fn spare_bytes(scene: &Scene) -> u64 {
    allocated_by_name(&scene.daemon.pid().to_string(), "ringway-spare")
}

#[test]
fn a_log_or_notes_in_a_huge_page_that_is_gone_cost_the_front_end_its_port_at_most() {
    let scene = Scene::start_with(&config(2));
    let more = MoreHugePages::ask_for(2);
    for (port, request, body) in [
        ("evil0", SET_LOG_BASE, words(&[4096, 0])),
        ("evil1", SET_INFLIGHT_FD, [words(&[4096, 0]), [2u16, 256].map(u16::to_ne_bytes).concat()].concat()),
    ] {
        let Some(page) = huge_page() else {
            skip::note("needs a huge page of 2 MiB (vm.nr_hugepages)");
            break;
        };
        let mut evil = FrontEnd::connect(&scene, port, LOG_ALL);
        let file = memory(LEAST as u64);
        let own = Mapping::shared(file.as_fd(), LEAST).expect("memory");
        assert!(evil.share(&file, LEAST as u64));
        let at = put_frame(&own, &frame(PEER, [2, 0xee, 0, 0, 0, 9], 1));
        let taken = match request {
            SET_LOG_BASE => evil.ask_for_answer(request, &body, &[page.as_fd()]),
            _ => evil.ask(request, &body, &[page.as_fd()]),
        };
        assert!(taken, "{port}");
        ftruncate(&page, 0).expect("nothing");
        offer(&own, 0, &[at; 50]);
        evil.start();
        evil.kick();
        until("frames are taken, or the port has a fault", || {
            crate::front_end::used(&own) == 50 || scene.faults(port, "memory_lost") > 0
        });
        drop(evil);
        scene.daemon.until_state(port, "waiting");
    }
    drop(more);
    scene.end();
}

const TIB: u64 = 1 << 40;

#[test]
fn more_address_space_than_a_port_may_have_is_refused_by_name() {
    let scene = Scene::start_with(&(config(2) + "[port.nic]\nswitch = \"lan0\"\nkind = \"e1000\"\n"));
    // Uses the whole address space of a process, with all gaps filled.
    let sizes = [85 * TIB, 21 * TIB, 5 * TIB, TIB, TIB / 4, TIB / 16];
    let files: Vec<OwnedFd> = sizes.iter().map(|&bytes| memory(bytes)).collect();
    let places: Vec<u64> = (0..6).map(|number| number * 128 * TIB).collect();
    let evil = FrontEnd::connect(&scene, "evil0", 0);
    let regions: Vec<_> = (0..6).map(|at| (files[at].as_fd(), places[at], sizes[at], 0)).collect();
    assert!(!evil.share_all(&regions));
    for &region in &regions {
        let fits = region.2 <= 2 * TIB;
        assert_eq!(evil.share_all(&[region]), fits, "{:#x} bytes", region.2);
    }
    until("the reason is counted", || scene.faults("evil0", "memory_limit") > 0);
    let file = memory(4 * TIB);
    let mut nic = Nic::attach(&scene, "nic");
    assert!(nic.client.map(4 * TIB, file.as_fd(), 0, 4 * TIB).is_err());
    until("the reason is counted", || scene.faults("nic", "memory_limit") > 0);
    nic.client.map(4 * TIB, file.as_fd(), 0, TIB).expect("room");
    assert_eq!(scene.daemon.port("nic")["memory"]["mapped"], TIB + e1000::BYTES as u64);
    assert_eq!(scene.daemon.port("nic")["memory"]["size"], 2 * TIB);
    // Other ports are made and removed meanwhile.
    drop(scene.attach("other"));
    until("the other port is gone", || scene.daemon.port("other").is_null());
    drop((evil, nic));
    for port in ["evil0", "nic"] {
        scene.daemon.until_state(port, "waiting");
        until("nothing is mapped", || {
            ["mapped", "mappings"].iter().all(|count| scene.daemon.port(port)["memory"][count] == 0)
        });
    }
    scene.end();
}

#[test]
fn all_ports_together_may_have_no_more_than_the_total_and_what_goes_is_free_again() {
    let scene = Scene::start_with(&(config(3) + "[memory]\nsize = \"5TiB\"\nmappings = 4\n"));
    let files: Vec<OwnedFd> = (0..4).map(|_| memory(2 * TIB)).collect();
    let connect = |number: usize| FrontEnd::connect(&scene, &format!("evil{number}"), 0);
    let evil: Vec<FrontEnd> = (0..3).map(connect).collect();
    assert!(evil[0].share(&files[0], 2 * TIB));
    assert!(evil[1].share(&files[1], 2 * TIB));
    assert!(!evil[2].share(&files[2], 2 * TIB), "5 TiB in all");
    until("the reason is counted", || scene.faults("evil2", "memory_limit") > 0);
    let small: Vec<_> = (0..3).map(|number| (files[2].as_fd(), number << 30, 1 << 30, number << 30)).collect();
    assert!(!evil[2].share_all(&small), "4 mappings in all");
    assert!(evil[2].share_all(&small[..2]));
    drop(evil);
    (0..3).for_each(|number| scene.daemon.until_state(&format!("evil{number}"), "waiting"));
    let again = connect(2);
    assert!(again.share(&files[2], 2 * TIB));
    drop(again);
    scene.end();
}

/// The old and the new memory table together would exceed the limit.
#[test]
fn memory_that_goes_makes_room_for_what_comes_in_its_place() {
    let scene = Scene::start_with(&(config(1) + "[port.nic]\nswitch = \"lan0\"\nkind = \"e1000\"\n"));
    let files = [memory(2 * TIB), memory(2 * TIB)];
    let front_end = FrontEnd::connect(&scene, "evil0", 0);
    for file in files.iter().cycle().take(6) {
        assert!(front_end.share(file, 2 * TIB));
        // Sharing equal regions again changes nothing.
        assert!(front_end.share(file, 2 * TIB));
    }
    let halves = [(files[0].as_fd(), 0, TIB, 0), (files[0].as_fd(), TIB, TIB, TIB)];
    assert!(front_end.share_all(&halves));
    drop(front_end);
    let mut nic = Nic::attach(&scene, "nic");
    let most = 2 * TIB - e1000::BYTES as u64;
    for file in files.iter().cycle().take(6) {
        nic.client.map(4 * TIB, file.as_fd(), 0, most).expect("room");
        nic.client.unmap(4 * TIB, most).expect("the mapping exists");
    }
    drop(nic);
    for port in ["evil0", "nic"] {
        scene.daemon.until_state(port, "waiting");
    }
    scene.end();
}

/// A front end that sends frames from unwritten memory loses its connection before the daemon allocates much memory.
#[test]
fn frames_from_holes_make_no_more_memory_than_a_bound() {
    const GIB: u64 = 1 << 30;
    if !ringway_memory::can_limit_holes() {
        skip!("needs userfaultfd(2)");
    }
    let scene = Scene::start_with(&config(2));
    for (port, most) in [("evil0", 64 << 20), ("evil1", 64 << 20)] {
        let file = memory(64 * GIB);
        let own = Mapping::shared(file.as_fd(), LEAST).expect("memory");
        // A front end that connects again does not get more memory.
        for life in 0..3 {
            let before = scene.faults(port, "memory_holes");
            let mut evil = FrontEnd::connect(&scene, port, 0);
            assert!(evil.share(&file, 64 * GIB));
            offer(&own, 0, &[]);
            assert!(own.view(0x2000, 8).expect("the used ring").write(&[0; 8]));
            assert!(evil.start());
            let (mut sent, mut at) = (0u16, (1 + life) * 8 * GIB);
            until("the connection is ended", || {
                // Runs many rounds for each read of the status, because a read takes long.
                let patience = Instant::now() + Duration::from_millis(500);
                while Instant::now() < patience {
                    if crate::front_end::used(&own) == sent {
                        let frames: Vec<(u64, u32)> = (0..64).map(|number| (at + (number << 16), 60_000)).collect();
                        offer(&own, sent, &frames);
                        (sent, at) = (sent.wrapping_add(64), at + (64 << 16));
                        evil.kick();
                    }
                    std::thread::yield_now();
                }
                scene.faults(port, "memory_holes") > before
            });
        }
        // Allows a few more pages for the time until the limit takes effect.
        let made = allocated(&file);
        assert!(made <= most + (4 << 20), "{made} bytes");
        let filled = scene.daemon.port(port)["memory"]["filled"].as_u64().expect("a number");
        assert!(filled <= most + (4 << 20) && filled > most / 2, "{filled} bytes");
        scene.daemon.until_state(port, "waiting");
    }
    scene.end();
}

/// Frames to buffers in untouched memory allocate at most the configured limit.
#[test]
fn frames_into_holes_make_no_more_memory_than_the_bound_that_is_set() {
    let bound = 8u64 << 20;
    if !ringway_memory::can_limit_holes() {
        skip!("needs userfaultfd(2)");
    }
    let nic = "[port.nic]\nswitch = \"lan0\"\nkind = \"e1000\"\nmemory = { holes = \"8MiB\" }\n";
    let scene = Scene::start_with(&("[switch.lan0]\n".to_owned() + nic));
    let mut peer = scene.attach("peer");
    let mut nic = Nic::attach(&scene, "nic");
    let file = memory(1 << 40);
    nic.client.map(1 << 40, file.as_fd(), 0, 1 << 40).expect("the memory is mapped");
    // Each descriptor has new pages each time.
    let mut number = 0;
    let mut fill = |nic: &Nic| {
        (0..256).for_each(|at| nic.descriptor(at, (1 << 40) + ((number + at) << 12), 0, 0));
        number += 256;
    };
    fill(&nic);
    nic.receive(e1000::MEMORY, 4096, 0, 255);
    let mut tail = 255;
    until("the ring is stopped", || {
        (0..200).for_each(|number| send(&mut peer.port, &frame([0xff; 6], PEER, number)));
        let head = nic.get(ringway_traffic::e1000::register::RDH);
        if head == tail {
            fill(&nic);
            tail = (tail + 255) % 256;
            nic.set(ringway_traffic::e1000::register::RDT, tail);
        }
        scene.faults("nic", "memory_holes") > 0
    });
    assert!(allocated(&file) <= bound + (4 << 20), "{} bytes", allocated(&file));
    drop((nic, peer));
    scene.daemon.until_state("nic", "waiting");
    scene.end();
}
