//! Memory that clients bring for their buffers: files that are not what they should be, and memory that goes.

use std::os::fd::{AsFd, OwnedFd};

use ringway_abi::attach::{MEMORY, REQUEST_BYTES, Request};
use ringway_abi::{External, Slot};
use ringway_client::{ExternalMemory, Port, Shape};
use ringway_memory::can_limit_holes;
use ringway_scenes::{frame, until};
use ringway_testing::file::{directory, memfd};
use ringway_testing::skip;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};

use crate::attacker::{Attacker, EVIL, PEER, Side};
use crate::raw::{Raw, Said};
use crate::scene::Scene;

/// Bytes of the memories.
const BYTES: u64 = 32 << 20;

fn request(bytes: u64) -> [u8; REQUEST_BYTES] {
    let external = Some(External { bytes, unit: 64, first: 2 });
    Request { switch: "lan0".into(), port: "evil".into(), shape: Shape::default(), external }.encode()
}

/// Returns a memfd with these seals.
fn sealed(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("evil", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
    ftruncate(&file, bytes).expect("a size");
    fcntl_add_seals(&file, seals).expect("sealed");
    file
}

/// Returns a connection whose client may send its memory now. It asks again while the switch still closes earlier connections
/// of this process: the switch takes no further files from a process with too many unclosed ones.
fn asked(scene: &Scene, bytes: u64) -> Raw {
    let mut asked = None;
    until("the switch asks for the memory", || {
        let raw = Raw::connect(&scene.daemon);
        assert!(raw.say(&request(bytes)));
        match raw.next_answer() {
            Said::SendMemory => asked = Some(raw),
            Said::Refused(why) if why.contains("are still being closed") => {}
            other => panic!("the switch does not ask for the memory: {other:?}"),
        }
        asked.is_some()
    });
    asked.expect("just made")
}

/// Attaches "evil" with a memory of this program. Returns it, the memory's file and an area of the rest of the memory.
fn attach(scene: &Scene, bytes: u64, area: usize) -> (Attacker, OwnedFd, ringway_client::Area) {
    let file = sealed(bytes, SealFlags::SHRINK);
    let mut memory = ExternalMemory::from_file(file.try_clone().expect("a descriptor"), 64).expect("mapped");
    let socket = scene.daemon.socket("attach.sock");
    let (port, _) = Port::attach_with_memory(socket, "lan0:evil", Shape::default(), &mut memory).expect("attached");
    let area = memory.take(area).expect("room");
    (Attacker { name: "evil".to_owned(), port }, file, area)
}

#[test]
fn a_file_that_cannot_be_a_clients_memory_is_refused_with_the_reason() {
    let scene = Scene::start();
    let folder = directory();
    let disk = std::fs::File::create_new(folder.path().join("memory")).expect("a file");
    disk.set_len(BYTES).expect("a size");
    let pipe = rustix::pipe::pipe().expect("a pipe").0;
    let mut files = vec![
        (disk.into(), "not a memfd", "a file of a disk"),
        (pipe, "not a memfd", "a pipe"),
        (std::fs::File::open("/proc/self/maps").expect("procfs").into(), "not a memfd", "procfs"),
        (sealed(BYTES, SealFlags::empty()), "not sealed against shrinking", "no seal"),
        (sealed(BYTES, SealFlags::GROW), "not sealed against shrinking", "another seal"),
        (memfd(BYTES), "not sealed against shrinking", "a memfd as it is made"),
        (sealed(BYTES - 1, SealFlags::SHRINK), "has 33554431 bytes, and the request says 33554432", "too short"),
        (sealed(0, SealFlags::SHRINK), "has 0 bytes", "empty"),
        (sealed(BYTES, SealFlags::SHRINK | SealFlags::WRITE), "sealed against writing", "read only"),
    ];
    if let Ok(file) = tempfile::tempfile_in("/dev/shm") {
        file.set_len(BYTES).expect("a size");
        files.push((file.into(), "not sealed against shrinking", "a file of tmpfs"));
    }
    for (file, words, why) in &files {
        let raw = asked(&scene, BYTES);
        assert!(raw.say_with(&MEMORY, &[file.as_fd()]), "{why}");
        raw.must_be_refused(words, why);
    }
    let good = sealed(BYTES, SealFlags::SHRINK);
    let raw = asked(&scene, BYTES);
    assert!(raw.say(&MEMORY));
    raw.must_be_refused("0 descriptors came", "no descriptor");
    let raw = asked(&scene, BYTES);
    assert!(raw.say_with(&MEMORY, &[good.as_fd(), good.as_fd()]));
    raw.must_be_refused("2 descriptors came", "two descriptors");
    for message in [&b"RW"[..], b"RWmemory!", b"something", &request(BYTES)] {
        let raw = asked(&scene, BYTES);
        assert!(raw.say_with(message, &[good.as_fd()]));
        raw.must_be_refused("the message for it must come", "another message");
    }
    for (bytes, words) in [
        (1 << 10, "bytes 1024 is not possible: the buffers of all slots must fit"),
        (u64::MAX, "bytes 18446744073709551615 is not possible"),
        (65 << 20, "[attach] max_memory allows 64MiB"),
    ] {
        let raw = Raw::connect(&scene.daemon);
        assert!(raw.say(&request(bytes)));
        raw.must_be_refused(words, "the size");
    }
    // After all of them, a good memory is taken.
    let raw = asked(&scene, BYTES);
    assert!(raw.say_with(&MEMORY, &[good.as_fd()]));
    assert!(matches!(raw.next_answer(), Said::Granted { .. }));
    assert_eq!(ftruncate(&good, 0), Err(rustix::io::Errno::PERM), "the memory cannot shrink");
    drop((raw, good, files));
    until("the port is gone", || scene.daemon.port("evil").is_null());
    scene.end();
}

#[test]
fn a_client_that_does_not_send_its_memory_or_sends_more_costs_nobody_anything() {
    let scene = Scene::start();
    let file = sealed(BYTES, SealFlags::SHRINK);
    let silent: Vec<Raw> = (0..100).map(|_| asked(&scene, BYTES)).collect();
    for raw in &silent {
        match raw.next_answer() {
            Said::Refused(why) => assert!(why.contains("too many clients") || why.contains("no memory came"), "{why}"),
            other => panic!("a silent client was not refused: {other:?}"),
        }
    }
    drop(silent);
    // Messages with files that nobody reads.
    let raw = asked(&scene, BYTES);
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    assert!(raw.say_with(&MEMORY, &[file.as_fd()]));
    // The switch may refuse files again by now.
    let _ = (0..3).all(|_| raw.say_with(b"more", &[write.as_fd()]));
    until("the port is there", || !scene.daemon.port("evil").is_null());
    drop((raw, write));
    until("the port is gone", || scene.daemon.port("evil").is_null());
    assert_eq!(rustix::io::read(&read, &mut [0; 1]), Ok(0), "all copies of the file are closed");
    drop((read, file));
    scene.end();
}

#[test]
fn slots_that_name_no_place_of_the_memory_cost_their_frames_only() {
    let scene = Scene::start();
    let (mut evil, file, mut area) = attach(&scene, BYTES, 1 << 20);
    let mut peer = scene.attach("peer");
    peer.introduce(PEER);
    evil.receive_from(PEER);
    let layout = *evil.port.layout();
    let last = layout.buffer_count - 1;
    let sent = frame(PEER, EVIL, 1);
    area[..sent.len()].copy_from_slice(&sent);
    let place = (area.offset() / 64) as u32;
    let mut head = 0;
    let mut send = |evil: &Attacker, buffer, len| {
        evil.set_slot(Side::Tx, head, Slot { buffer, len, flags: 0 });
        head = (head + 1) % layout.shape.tx_slots;
        evil.publish(head);
    };
    for buffer in [0, 1, last + 1, last + 2, u32::MAX] {
        send(&evil, buffer, 60);
    }
    send(&evil, last, layout.shape.buffer_size as u16 + 1);
    send(&evil, place, 0);
    send(&evil, place, sent.len() as u16);
    assert_eq!(peer.receive_from(EVIL), sent);
    assert_eq!((scene.drops("evil", "bad_buffer"), scene.drops("evil", "bad_length")), (5, 2));
    // The memory's last place is zero bytes: a frame, with a source that is no address.
    send(&evil, last, layout.shape.buffer_size as u16);
    until("the last place is read", || scene.drops("evil", "bad_source") == 1);
    drop((evil, peer, area, file));
    until("the port is gone", || scene.daemon.port("evil").is_null());
    scene.end();
}

#[test]
fn holes_that_are_punched_while_frames_are_sent_from_them_cost_the_port_only() {
    if !can_limit_holes() {
        return skip::note("needs userfaultfd");
    }
    let scene = Scene::start();
    let (mut evil, file, area) = attach(&scene, BYTES, 16 << 20);
    let punch = || {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, how, area.offset() as u64, area.len() as u64).expect("holes");
    };
    // Each frame is in a hole, whose read allocates a page. Such pages may have 64 MiB within an hour.
    let (mut at, mut said) = (0, None);
    until("the port is ended for its holes", || {
        while evil.port.tx().push_from(&area, at..at + 60) {
            at = (at + 4096) % area.len();
            if at == 0 {
                punch();
            }
        }
        evil.port.flush();
        said = evil.port.ended();
        said.is_some()
    });
    assert!(said.as_ref().is_some_and(|said| said.contains("did not exist when they were needed")), "{said:?}");
    until("the fault is counted", || scene.faults("evil", "memory_holes") == 1);
    drop((evil, area, file));
    scene.end();
}
