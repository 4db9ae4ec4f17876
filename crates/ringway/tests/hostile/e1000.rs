//! e1000 ports: hypervisors that send invalid messages, and guests that program the device unlike any driver.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringway_memory::Mapping;
use ringway_scenes::{PATIENCE, frame, send, until};
use ringway_testing::file::memfd;
use ringway_testing::random::Random;
use ringway_traffic::e1000::{VfioUser, register as r};
use rustix::fs::ftruncate;

use crate::attacker::PEER;
use crate::scene::{Scene, StopOnDrop};

const NO_REPLY: u32 = 1 << 4;
/// Address and size of the guest's memory.
pub const MEMORY: u64 = 0x10_0000;
pub const BYTES: usize = 1 << 20;
/// Addresses of the rings and the buffers.
pub const BUFFERS: u64 = MEMORY + 0x8_0000;
/// End of packet, insert checksum, report status.
pub const LAST: u8 = 0b1011;
/// The place after the transmit ring of 256 descriptors.
const RECEIVED: u64 = MEMORY + 0x1000;
/// The counter of good packets received. Reading clears it.
const RECEIVED_FRAMES: u32 = 0x4074;
/// The time for which an attacker races with the switch.
pub const RACE: Duration = Duration::from_millis(1500);

/// Returns a configuration of ports `evil0` and so on, alternately 82540EMs and 82574Ls.
pub fn config(ports: usize) -> String {
    let port = |number| {
        let model = ["e1000", "e1000e"][number % 2];
        format!("[port.evil{number}]\nswitch = \"lan0\"\nkind = \"e1000\"\nmodel = \"{model}\"\ncsb = true\n")
    };
    "[switch.lan0]\n".to_owned() + &(0..ports).map(port).collect::<String>()
}

pub fn message(command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let words = [16 + body.len() as u32, flags, 0].map(u32::to_ne_bytes).concat();
    [&7u16.to_ne_bytes()[..], &command.to_ne_bytes(), &words, body].concat()
}

/// Returns the body of an access, with data for a write.
fn access(region: u32, offset: u64, count: u32, data: &[u8]) -> Vec<u8> {
    [&offset.to_ne_bytes()[..], &region.to_ne_bytes(), &count.to_ne_bytes(), data].concat()
}

/// Returns a connection for arbitrary messages.
pub fn raw(scene: &Scene, port: &str) -> UnixStream {
    let socket = UnixStream::connect(scene.daemon.runtime_dir().join(format!("{port}.sock"))).expect("a port listens");
    socket.set_read_timeout(Some(2 * PATIENCE)).expect("a time");
    socket
}

/// Checks that the port ends this connection.
pub fn ends(mut socket: &UnixStream, what: &str) {
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{what}: {error}"),
        _ => {}
    }
}

/// A guest's NIC, programmed directly by the tests.
pub struct Nic {
    pub client: VfioUser,
    memory: Arc<Mapping>,
    pub file: OwnedFd,
}

impl Nic {
    pub fn attach(scene: &Scene, port: &str) -> Nic {
        let path = scene.daemon.runtime_dir().join(format!("{port}.sock"));
        let mut client = VfioUser::connect(&path, PATIENCE).expect("a port listens");
        let file = memfd(BYTES as u64);
        client.map(MEMORY, file.as_fd(), 0, BYTES as u64).expect("the device maps the memory");
        // Enables memory space and bus mastering.
        client.write(7, 4, &[6, 0]).expect("a command");
        let memory = Arc::new(Mapping::shared(file.as_fd(), BYTES).expect("memory"));
        let mut nic = Nic { client, memory, file };
        nic.set(r::CTRL, r::CTRL_SLU | r::CTRL_ASDE);
        nic
    }

    pub fn set(&mut self, register: u32, value: u32) {
        self.client.write(0, register.into(), &value.to_le_bytes()).expect("a register");
    }

    pub fn put(&self, address: u64, bytes: &[u8]) {
        let view = self.memory.view((address - MEMORY) as usize, bytes.len()).expect("inside");
        assert!(view.write(bytes));
    }

    pub fn get(&mut self, register: u32) -> u32 {
        let mut bytes = [0; 4];
        self.client.read(0, register.into(), &mut bytes).expect("a register");
        u32::from_le_bytes(bytes)
    }

    /// Returns a word of the shared memory.
    pub fn word(&self, address: u64) -> &AtomicU32 {
        let view = self.memory.view((address - MEMORY) as usize, 4).expect("inside");
        &view.words32().expect("aligned")[0]
    }

    /// Writes a descriptor of any kind into the ring at the memory's beginning.
    pub fn words(&self, number: u64, words: [u64; 2]) {
        self.put(MEMORY + 16 * number, &words.map(u64::to_le_bytes).concat());
    }

    /// Writes a legacy descriptor into the ring at the memory's beginning.
    pub fn descriptor(&self, number: u64, address: u64, len: u16, command: u8) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..10].copy_from_slice(&len.to_le_bytes());
        bytes[11] = command;
        self.put(MEMORY + 16 * number, &bytes);
    }

    pub fn transmit(&mut self, base: u64, bytes: u32, head: u32, tail: u32) {
        self.ring([r::TDBAL, r::TDBAH, r::TDLEN, r::TDH], base, bytes, head);
        self.set(r::TCTL, r::TCTL_EN | r::TCTL_PSP);
        self.set(r::TDT, tail);
    }

    pub fn receive(&mut self, base: u64, bytes: u32, head: u32, tail: u32) {
        self.ring([r::RDBAL, r::RDBAH, r::RDLEN, r::RDH], base, bytes, head);
        self.set(r::RCTL, r::RCTL_EN | r::RCTL_UPE | r::RCTL_MPE | r::RCTL_BAM);
        self.set(r::RDT, tail);
    }

    fn ring(&mut self, registers: [u32; 4], base: u64, bytes: u32, head: u32) {
        for (register, value) in registers.into_iter().zip([base as u32, (base >> 32) as u32, bytes, head]) {
            self.set(register, value);
        }
    }
}

#[test]
fn what_is_no_message_costs_a_hypervisor_its_connection() {
    let scene = Scene::start_with(&config(2));
    let cases: [(&str, Vec<u8>); 14] = [
        ("nothing but zeroes", vec![0; 64]),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("a count of 4 GiB", message(10, 0, &access(0, 0, u32::MAX, &[0; 4]))),
        ("a size of 4 GiB", [&7u16.to_ne_bytes()[..], &[10, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]].concat()),
        ("a size of 0", [&7u16.to_ne_bytes()[..], &[10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat()),
        ("a reply", message(13, 1, &[])),
        ("a write cut short", message(10, 0, &access(0, 0, 8, &[0; 4]))),
        ("a posted write cut short", message(10, NO_REPLY, &access(0, 0, 8, &[0; 4]))),
        ("a map cut short", message(2, 0, &[0; 31])),
        ("interrupts cut short", message(8, 0, &[0; 19])),
        ("writes without number", message(15, 0, &[0; 7])),
        ("2^64 writes", message(15, NO_REPLY, &[255; 8])),
        ("a region query cut short", message(5, 0, &[0; 8])),
        ("longer than the longest message", message(1, 0, &[b' '; 8193])),
    ];
    for (what, bytes) in &cases {
        let mut evil = raw(&scene, "evil0");
        evil.write_all(&message(1, 0, b"\0\0\0\0{}\0")).expect("a version");
        let mut answer = [0; 16];
        evil.read_exact(&mut answer).expect(what);
        // The port may have ended the connection already.
        let _ = evil.write_all(bytes);
        ends(&evil, what);
        scene.daemon.until_state("evil0", "waiting");
    }
    // The port's state is its own thread's; its faults are noted by the control thread, later.
    until(&format!("each fault is counted: {}", scene.daemon.status()["faults"]), || {
        scene.faults("evil0", "bad_message") == cases.len()
    });
    // Without a version at first, and with an unknown version.
    for (bytes, reason) in [(message(13, 0, &[]), "out_of_order"), (message(1, 0, b"\x05\0\0\0{}\0"), "bad_message")] {
        let before = scene.faults("evil1", reason);
        let mut evil = raw(&scene, "evil1");
        evil.write_all(&bytes).expect("a message");
        ends(&evil, reason);
        until(reason, || scene.faults("evil1", reason) == before + 1);
    }
    scene.end();
}

#[test]
fn a_hypervisor_that_stops_in_the_middle_keeps_nobody_out_for_long() {
    let scene = Scene::start_with(&config(2));
    let mut slow = raw(&scene, "evil0");
    slow.write_all(&message(1, 0, b"\0\0\0\0{}\0")[..20]).expect("a part");
    // This hypervisor asks and never reads.
    let mut deaf = raw(&scene, "evil1");
    deaf.write_all(&message(1, 0, b"\0\0\0\0{}\0")).expect("a version");
    deaf.set_nonblocking(true).expect("an option");
    let question = message(9, 0, &access(7, 0, 256, &[]));
    // It asks, in whole messages, until the answers have filled the connection.
    let mut left: &[u8] = &[];
    until("the second connection is ended", || {
        for _ in 0..1000 {
            if left.is_empty() {
                left = &question;
            }
            match deaf.write(left) {
                Ok(count) => left = &left[count..],
                Err(_) => break,
            }
        }
        scene.faults("evil1", "replies_unread") == 1
    });
    until("the first connection is ended", || scene.faults("evil0", "message_too_slow") == 1);
    drop((slow, deaf));
    for port in ["evil0", "evil1"] {
        until_waiting(&scene, port);
        drop(Nic::attach(&scene, port));
        until_waiting(&scene, port);
    }
    scene.end();
}

#[test]
fn registers_take_whatever_is_written_wherever() {
    let mut scene = Scene::start_with(&config(2));
    for port in ["evil0", "evil1"] {
        let mut nic = Nic::attach(&scene, port);
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        let mut next = move || random.bits();
        for _ in 0..20_000 {
            let (region, offset, size, value) = (next() % 9, next() % (144 << 10), next() % 9 + 1, next());
            let region = if region < 6 { 0 } else { region as u32 - 5 };
            let offset = if next() % 2 == 0 { offset % 0x6000 } else { offset };
            // Some values are addresses in the guest's memory.
            let value = if next() % 4 == 0 { MEMORY + value % BYTES as u64 } else { value };
            let data = &value.to_le_bytes()[..(size as usize).min(8)];
            match next() % 4 {
                0 => drop(nic.client.write(region, offset, data)),
                1 => drop(nic.client.read(region, offset, &mut vec![0; size as usize])),
                _ => nic.client.post(region, offset & !3, value as u32).expect("the port stays"),
            }
        }
        assert_eq!(scene.daemon.port(port)["state"].as_str().map(|state| state == "waiting"), Some(false));
        nic.client.reset().expect("the device answers");
        let mut ids = [0; 4];
        nic.client.read(7, 0, &mut ids).expect("the device answers");
        assert_eq!(ids[..2], [0x86, 0x80]);
        drop(nic);
        until_waiting(&scene, port);
    }
    scene.allow_for_the_first_round(8 << 10);
    scene.end();
}

#[test]
fn rings_that_no_driver_makes_stop_by_name() {
    type Make = fn(&mut Nic);
    let end = MEMORY + BYTES as u64;
    assert_eq!(end, 0x20_0000);
    let cases: [(&str, Make); 13] = [
        ("ring_bad_length", |nic| nic.transmit(MEMORY, 0, 0, 1)),
        ("ring_tail_out_of_range", |nic| nic.transmit(MEMORY, 128, 0, 8)),
        ("ring_tail_out_of_range", |nic| nic.transmit(MEMORY, 128, 0, 0xffff)),
        ("ring_head_out_of_range", |nic| nic.transmit(MEMORY, 128, 9, 1)),
        ("ring_bad_base", |nic| nic.transmit(0xdead_0000, 128, 0, 1)),
        ("ring_bad_base", |nic| nic.transmit(0x20_0000 - 64, 128, 0, 1)),
        ("ring_bad_base", |nic| nic.transmit(u64::MAX - 127, 256, 0, 1)),
        ("ring_bad_base", |nic| nic.transmit(MEMORY + 0x1000, 0xf_ff80, 0, 1)),
        ("ring_bad_address", |nic| {
            nic.descriptor(0, 0xdead_0000, 60, LAST);
            nic.transmit(MEMORY, 128, 0, 1);
        }),
        ("ring_bad_address", |nic| {
            nic.descriptor(0, u64::MAX - 7, 60, LAST);
            nic.transmit(MEMORY, 128, 0, 1);
        }),
        ("ring_bad_address", |nic| {
            nic.descriptor(0, 0x20_0000 - 59, 60, LAST);
            nic.transmit(MEMORY, 128, 0, 1);
        }),
        ("ring_endless_frame", |nic| {
            (0..4096).for_each(|number| nic.descriptor(number, BUFFERS, 1, 0));
            nic.transmit(MEMORY, 4096 * 16, 0, 4095);
        }),
        ("memory_lost", |nic| {
            nic.descriptor(0, BUFFERS, 1000, LAST);
            ftruncate(&nic.file, 0).expect("a shorter file");
            nic.transmit(MEMORY, 128, 0, 1);
        }),
    ];
    let mut scene = Scene::start_with(&config(cases.len()));
    let nics: Vec<Nic> = (0..)
        .zip(&cases)
        .map(|(number, (reason, make))| {
            let port = format!("evil{number}");
            let mut nic = Nic::attach(&scene, &port);
            make(&mut nic);
            until(&format!("{port} is stopped: {reason}"), || scene.faults(&port, reason) > 0);
            nic
        })
        .collect();
    scene.bystanders.go_on(2000);
    drop(nics);
    for number in 0..cases.len() {
        scene.daemon.until_state(&format!("evil{number}"), "waiting");
    }
    scene.allow_for_the_first_round(8 << 10);
    scene.end();
}

#[test]
fn buffers_that_are_nowhere_stop_a_receive_ring() {
    let scene = Scene::start_with(&config(2));
    let mut peer = scene.attach("peer");
    for (port, address) in [("evil0", 0xdead_0000), ("evil1", u64::MAX - 100)] {
        let mut nic = Nic::attach(&scene, port);
        (0..8).for_each(|number| nic.descriptor(number, address, 0, 0));
        nic.receive(MEMORY, 128, 0, 7);
        until("the ring is stopped", || {
            send(&mut peer.port, &frame([0xff; 6], PEER, 1));
            scene.faults(port, "ring_bad_address") > 0
        });
        drop(nic);
        until_waiting(&scene, port);
    }
    drop(peer);
    scene.end();
}

#[test]
fn descriptors_and_memory_that_change_under_way_harm_nobody_else() {
    let mut scene = Scene::start_with(&config(2));
    let mut peer = scene.attach("peer");
    let has_moved = |port: &str| {
        let status = scene.daemon.port(port);
        ["in", "out"].iter().all(|way| status[way]["frames"].as_u64() > Some(0))
    };
    for port in ["evil0", "evil1"] {
        let mut nic = Nic::attach(&scene, port);
        nic.put(BUFFERS, &frame(PEER, [2, 0xee, 0, 0, 0, 9], 1));
        let stop = AtomicBool::new(false);
        let _end = StopOnDrop(&stop);
        let memory = Arc::clone(&nic.memory);
        let whole = memory.whole();
        std::thread::scope(|threads| {
            let _end = StopOnDrop(&stop);
            // Addresses, lengths and commands change all the time: valid ones, invalid ones, and mixtures.
            threads.spawn(|| {
                let mut number = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    // Most descriptors can give a frame.
                    let address = match number >> 57 {
                        0 => 0xdead_0000,
                        1 => MEMORY + BYTES as u64 - 8,
                        _ => BUFFERS,
                    };
                    let command = if number >> 54 & 7 == 0 { number >> 40 & 0x2f } else { u64::from(LAST) };
                    let words = [address, u64::from(number as u16 >> 5) | command << 24];
                    let at = (number >> 33) as usize % 512 * 16;
                    let bytes = words.map(u64::to_le_bytes).concat();
                    assert!(whole.sub(at, 16).is_some_and(|view| view.write(&bytes)));
                }
            });
            let until = Instant::now() + RACE;
            let mut tail = 0;
            while Instant::now() < until || !has_moved(port) {
                assert!(Instant::now() < until + PATIENCE, "{port} does not send and receive");
                nic.receive(RECEIVED, 256 * 16, 0, 200);
                nic.transmit(MEMORY, 256 * 16, 0, 0);
                for _ in 0..20 {
                    tail = (tail + 37) % 256;
                    nic.client.post(0, r::TDT.into(), tail).expect("the port stays");
                    send(&mut peer.port, &frame([0xff; 6], PEER, 1));
                }
                nic.client.unmap(MEMORY, BYTES as u64).expect("the memory is unmapped");
                nic.client.map(MEMORY, nic.file.as_fd(), 0, BYTES as u64).expect("the memory is mapped");
                nic.set(r::TCTL, 0);
                nic.set(r::RCTL, 0);
            }
        });
        assert_ne!(scene.daemon.port(port)["state"], "waiting", "the connection stays");
        drop(nic);
        until_waiting(&scene, port);
    }
    drop(peer);
    scene.allow_for_the_first_round(8 << 10);
    scene.end();
}

#[test]
fn what_comes_back_by_itself_keeps_nobody_waiting() {
    let mut scene = Scene::start_with(&config(2));
    for port in ["evil0", "evil1"] {
        let mut nic = Nic::attach(&scene, port);
        nic.put(BUFFERS, &frame([0xff; 6], [2, 0xee, 0, 0, 0, 9], 1));
        const LOOPBACK: u32 = 3 << 6;
        // Both rings are at the same place, so each received frame becomes a frame to send.
        let begin = |nic: &mut Nic| {
            (0..256).for_each(|number| nic.descriptor(number, BUFFERS, 1000, LAST));
            nic.receive(MEMORY, 256 * 16, 0, 255);
            nic.set(r::RCTL, r::RCTL_EN | r::RCTL_UPE | r::RCTL_MPE | r::RCTL_BAM | LOOPBACK);
            nic.transmit(MEMORY, 256 * 16, 0, 255);
        };
        if port == "evil0" {
            // The status block overlaps the ring, and then lies outside memory.
            nic.receive(MEMORY, 256 * 16, 0, 255);
            nic.set(r::CSBAH, 0);
            nic.set(r::CSBAL, MEMORY as u32);
            until("the status block is refused", || scene.faults(port, "csb_overlaps_ring") > 0);
            nic.set(r::CSBAL, 0xdead_0000);
        }
        begin(&mut nic);
        let until = Instant::now() + RACE;
        let (mut tail, mut came_back) = (0, 0);
        // Runs until there was a storm, also on a slow machine.
        while Instant::now() < until || came_back <= 1000 {
            assert!(Instant::now() < until + PATIENCE, "{came_back} frames came back: no storm");
            tail = (tail + 101) % 256;
            nic.set(r::TDT, tail);
            nic.set(r::RDT, (tail + 255) % 256);
            let now = nic.get(RECEIVED_FRAMES);
            came_back += now;
            if now == 0 {
                // A received frame has overwritten a descriptor, so that it no longer sends a frame.
                nic.set(r::TCTL, 0);
                nic.set(r::RCTL, 0);
                begin(&mut nic);
            }
        }
        scene.bystanders.go_on(2000);
        drop(nic);
        until_waiting(&scene, port);
    }
    scene.allow_for_the_first_round(8 << 10);
    scene.end();
}

pub fn until_waiting(scene: &Scene, port: &str) {
    scene.daemon.until_state(port, "waiting");
}
