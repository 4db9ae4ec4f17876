//! vhost-user ports at their sockets, with the rust-vmm project's front end and with a hostile front end.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_engine::Idle;
use ringway_port_tests::vhost_user::{
    Event, GUEST, LOG_ALL, Lan, MEMORY, PROTOCOL_FEATURES, RING, Raw, VERSION_1, Vm, Watcher, frame, memfd, message,
    settings,
};
use ringway_port_vhost_user::{Role, Settings, State, open};
use ringway_switch::DropReason;
use ringway_testing::random::Random;
use ringway_testing::{until, until_some};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VringConfigData};

/// Sends frames from one machine to the other and checks that they arrive.
#[track_caller]
fn exchange(lan: &mut Lan, from: (&mut Vm, u16), to: (&mut Vm, u16)) {
    let sizes = [60, 61, 64, 128, 1000, 1500, 1514, 2036];
    let frames: Vec<_> = (0..).zip(sizes).map(|(n, len)| frame(to.1, from.1, len, n)).collect();
    to.0.post(frames.len() as u16);
    frames.iter().for_each(|frame| from.0.send(frame));
    assert_eq!(lan.pass(from.1.into()).frames, frames.len() as u64);
    assert_eq!(to.0.receive(), frames);
}

#[test]
fn machines_exchange_frames_through_two_ports() {
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let (mut a, mut b) = (Vm::connect(&lan.socket(0)), Vm::connect(&lan.socket(1)));
    for _ in 0..100 {
        exchange(&mut lan, (&mut a, 0), (&mut b, 1));
        exchange(&mut lan, (&mut b, 1), (&mut a, 0));
    }
    let status = lan.ports[0].as_ref().expect("open").status();
    assert_eq!((status.state, status.queues, status.ring_size), (State::Up, 2, RING));
    assert_eq!(status.features & VERSION_1, VERSION_1);
    assert_eq!(a.front.get_vring_base(1).expect("stopped"), 800);
    assert_eq!(lan.watchers[0].all(), [Event::Connected(true)]);
}

#[test]
fn a_client_port_finds_its_hypervisor_again() {
    let mut lan = Lan::new(&[Role::Client, Role::Server]);
    let mut b = Vm::connect(&lan.socket(1));
    for round in 1..=3 {
        let listener = UnixListener::bind(lan.socket(0)).expect("listening");
        listener.set_nonblocking(true).expect("an option");
        let found = until_some("the port connects", || listener.accept().ok()).0;
        found.set_nonblocking(false).expect("an option");
        let mut a = Vm::from_stream(found);
        exchange(&mut lan, (&mut a, 0), (&mut b, 1));
        drop((a, listener));
        lan.watchers[0].wait(round, |told| *told == Event::Connected(false));
        std::fs::remove_file(lan.socket(0)).expect("removed");
    }
}

#[test]
fn a_machine_goes_on_with_its_rings_where_they_were_after_its_port_died() {
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let (mut a, mut b) = (Vm::connect(&lan.socket(0)), Vm::connect(&lan.socket(1)));
    exchange(&mut lan, (&mut a, 0), (&mut b, 1));
    drop(lan);
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let back = |vm: Vm, index| {
        let mut vm = vm.reconnect(Frontend::connect(lan.socket(index), 4).expect("connected"));
        vm.negotiate(0);
        vm.start();
        vm
    };
    let (mut a, mut b) = (back(a, 0), back(b, 1));
    exchange(&mut lan, (&mut a, 0), (&mut b, 1));
    exchange(&mut lan, (&mut b, 1), (&mut a, 0));
}

#[test]
fn one_front_end_at_a_time_and_the_next_when_it_has_gone() {
    let lan = Lan::new(&[Role::Server]);
    let first = Vm::connect(&lan.socket(0));
    for _ in 0..3 {
        assert!(Raw::connect(&lan.socket(0)).ended(), "a second front end is refused");
    }
    assert_eq!(first.front.get_features().expect("alive") & VERSION_1, VERSION_1);
    drop(first);
    Vm::connect(&lan.socket(0));
    lan.watchers[0].wait(2, |told| *told == Event::Connected(false));
    assert!(lan.watchers[0].all().iter().all(|told| matches!(told, Event::Connected(_))));
}

#[test]
fn a_socket_of_the_dead_is_replaced_and_one_of_the_living_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("vm.sock");
    let watcher = Arc::new(Watcher::default());
    let open = || open(&settings(&path, Role::Server), Arc::clone(&watcher) as _);
    drop(UnixListener::bind(&path).expect("bound"));
    let (_sides, port) = open().expect("a dead socket is replaced");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    let error = open().err().expect("the address is in use").to_string();
    assert!(error.contains("vm.sock"), "{error}");
    drop(port);
    until("the socket is removed with its port", || !path.exists());
    std::fs::write(&path, "precious").expect("written");
    let error = open().err().expect("not a socket").to_string();
    assert!(error.contains("not a socket"), "{error}");
    assert_eq!(std::fs::read(&path).expect("there"), b"precious");
}

#[test]
fn a_port_that_is_removed_lets_go_of_its_front_end_at_once() {
    let mut lan = Lan::new(&[Role::Server, Role::Client]);
    let _vm = Vm::connect(&lan.socket(0));
    let second = UnixListener::bind(lan.socket(1)).expect("listening");
    let raw = [Raw(second.accept().expect("accepted").0), Raw::connect(&lan.socket(0))];
    // No time ends these connections: their front ends have sent no part of a message.
    lan.ports.clear();
    assert!(raw.iter().all(Raw::ended));
    until("the port's own socket is removed", || !lan.socket(0).exists());
    assert!(lan.socket(1).exists(), "only the port's own socket is removed");
    let is_fault = |told: &Event| matches!(told, Event::Fault(..));
    assert!(!lan.watchers.iter().any(|watcher| watcher.all().iter().any(is_fault)));
}

#[test]
fn messages_that_are_none_end_the_connection_by_name() {
    let lan = Lan::new(&[Role::Server]);
    let header = |request: u32, flags: u32, size: u32| [request, flags, size].map(u32::to_ne_bytes).concat();
    let wrong = [
        (header(1, 0, 0), "version 0"),
        (header(1, 5, 0), "reply flag"),
        (header(5, 1, u32::MAX), "4294967295 bytes"),
        (header(5, 1, 1 << 20), "1048576 bytes"),
        (header(2, 1, 0), "SET_FEATURES has 0 bytes where 8 are right"),
        ([header(12, 1, 8), vec![0; 8]].concat(), "SET_VRING_KICK comes with 0 file descriptors where 1 is right"),
        ([header(12, 1, 8), vec![0, 0, 0xff, 0xff, 0, 0, 0, 0]].concat(), "SET_VRING_KICK with 0xffff0000"),
        ([header(13, 1, 8), vec![0, 0, 0xff, 0xff, 0, 0, 0, 0]].concat(), "SET_VRING_CALL with 0xffff0000"),
        (b"GET / HTTP/1.1\r\n".to_vec(), "version"),
    ];
    for (times, (bytes, right)) in (1..).zip(wrong) {
        let raw = Raw::connect(&lan.socket(0));
        raw.say(&bytes, &[]).expect("sent");
        let text = lan.watchers[0].fault(times, "bad_message");
        assert!(text.contains(right), "{text}");
        assert!(raw.ended());
    }
    Vm::connect(&lan.socket(0));
}

#[test]
fn half_a_message_costs_nobody_else_anything_and_ends_in_time() {
    let mut lan = Lan::new(&[Role::Server, Role::Server, Role::Server]);
    let slow = [Raw::connect(&lan.socket(2)), Raw::connect(&lan.socket(2))];
    slow[0].say(&[1, 0, 0], &[]).expect("sent");
    let (mut a, mut b) = (Vm::connect(&lan.socket(0)), Vm::connect(&lan.socket(1)));
    until("the half message has ended its connection", || {
        exchange(&mut lan, (&mut a, 0), (&mut b, 1));
        lan.watchers[2].all().len() >= 2
    });
    lan.watchers[2].fault(1, "message_too_slow");
}

#[test]
fn a_message_may_come_byte_by_byte() {
    let lan = Lan::new(&[Role::Server]);
    let bytes = [2u32, 1, 8, (VERSION_1 | PROTOCOL_FEATURES) as u32, 1].map(u32::to_ne_bytes);
    let mut connections = 0;
    // A message has five seconds. A machine that holds this test up for longer has it try again.
    until("a message comes byte by byte", || {
        connections += 1;
        let (since, mut raw) = (Instant::now(), Raw::connect(&lan.socket(0)));
        let is_sent = bytes.as_flattened().iter().all(|byte| raw.0.write_all(&[*byte]).is_ok());
        let is_answered = is_sent && raw.tell(1, &[], &[]) && raw.0.read_exact(&mut [0; 20]).is_ok();
        if is_answered {
            let status = lan.ports[0].as_ref().expect("open").status();
            assert_eq!(status.features, VERSION_1 | PROTOCOL_FEATURES & u64::from(u32::MAX));
        } else {
            lan.watchers[0].fault(connections, "message_too_slow");
            assert!(since.elapsed() >= Duration::from_secs(5));
            lan.watchers[0].wait(connections, |told| *told == Event::Connected(false));
        }
        is_answered
    });
}

#[test]
fn a_front_end_that_asks_and_does_not_listen_is_let_go() {
    let lan = Lan::new(&[Role::Server]);
    let raw = Raw::connect(&lan.socket(0));
    raw.0.set_nonblocking(true).expect("nonblocking");
    let question = [1u32, 1, 0].map(u32::to_ne_bytes);
    until("the port reports an event", || {
        let _ = raw.say(question.as_flattened(), &[]);
        lan.watchers[0].all().len() >= 2
    });
    lan.watchers[0].fault(1, "replies_unread");
}

#[test]
fn more_descriptors_than_any_message_has_are_refused() {
    let lan = Lan::new(&[Role::Server]);
    let files: Vec<OwnedFd> = (0..100).map(|_| memfd(1)).collect();
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let raw = Raw::connect(&lan.socket(0));
    // SET_MEM_TABLE
    raw.tell(5, &[0; 8], &files);
    lan.watchers[0].fault(1, "too_many_descriptors");
    // GET_FEATURES
    for (before, count) in [(2, 64), (3, 100)] {
        let raw = Raw::connect(&lan.socket(0));
        raw.tell(1, &[], &files[..count]);
        lan.watchers[0].fault(before, "bad_message");
    }
}

#[test]
fn a_broken_ring_costs_its_port_the_connection_and_the_front_end_is_told_why() {
    let mut lan = Lan::new(&[Role::Server, Role::Server, Role::Server]);
    let (mut a, mut b) = (Vm::connect(&lan.socket(0)), Vm::connect(&lan.socket(1)));
    for times in 1..=3 {
        let hostile = Vm::connect(&lan.socket(2));
        exchange(&mut lan, (&mut a, 0), (&mut b, 1));
        hostile.set_available(1, RING + 1);
        lan.pass(2);
        let text = lan.watchers[2].fault(times, "ring_index_jump");
        assert!(text.contains("queue 1") && text.contains("257"), "{text}");
        lan.watchers[2].wait(times, |told| *told == Event::Connected(false));
        until("the error descriptor is written", || hostile.error.read().is_ok());
        exchange(&mut lan, (&mut b, 1), (&mut a, 0));
    }
    let mut good = Vm::connect(&lan.socket(2));
    exchange(&mut lan, (&mut good, 2), (&mut a, 0));
}

#[test]
fn a_client_port_waits_longer_after_each_fault() {
    let lan = Lan::new(&[Role::Client]);
    let listener = UnixListener::bind(lan.socket(0)).expect("listening");
    let (mut last, mut least) = (None, Duration::ZERO);
    for times in 1..=3 {
        let hostile = listener.accept().expect("accepted").0;
        let came = lan.watchers[0].wait(times, |told| *told == Event::Connected(true));
        if let Some(last) = last {
            let waited = came.duration_since(last);
            // A busy machine may connect later.
            assert!(waited >= least, "{waited:?} before connection {times}");
        }
        Raw(hostile).say(&[0xff; 12], &[]).expect("sent");
        let fault = lan.watchers[0].wait(times, |told| matches!(told, Event::Fault(..)));
        let gone = lan.watchers[0].wait(times, |told| *told == Event::Connected(false));
        // After a connection that has lasted for ten seconds, on a machine that held this test up, the waits begin anew.
        let is_in_a_row = last.is_some_and(|last| gone.duration_since(last) < Duration::from_secs(10));
        least = Duration::from_secs(if is_in_a_row { 2 } else { 1 });
        last = Some(fault);
    }
}

#[test]
fn a_refused_request_is_answered_and_the_session_goes_on() {
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let (mut a, mut b) = (Vm::connect(&lan.socket(0)), Vm::connect(&lan.socket(1)));
    assert!(a.front.set_vring_num(2, 3).is_err());
    let mut overlapping = a.region();
    overlapping.guest_phys_addr += 4096;
    assert!(a.front.add_mem_region(&overlapping).is_err());
    lan.watchers[0].wait(1, |told| matches!(told, Event::Refused("ring_size", _)));
    exchange(&mut lan, (&mut a, 0), (&mut b, 1));
    assert_eq!(lan.watchers[0].all().len(), 2, "the refusal is reported once per connection");
}

#[test]
fn a_refusal_is_named_also_when_the_front_end_does_not_wait_for_it() {
    let lan = Lan::new(&[Role::Server]);
    for times in 1..=3 {
        let raw = Raw::connect(&lan.socket(0));
        let number = |request: u32, number: u64| message(request, &number.to_ne_bytes());
        let mut refused = number(8, 2 | 3 << 32);
        refused[4] |= 8;
        let all = [number(16, 1 << 3), number(2, VERSION_1 | PROTOCOL_FEATURES), refused].concat();
        raw.say(&all, &[]).expect("sent");
        drop(raw);
        lan.watchers[0].wait(times, |told| *told == Event::Connected(false));
        let named = |told: &&Event| matches!(told, Event::Refused("ring_size", _));
        assert_eq!(lan.watchers[0].all().iter().filter(named).count(), times);
    }
}

#[test]
fn what_is_no_frame_costs_that_frame_and_not_the_connection() {
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let (mut a, mut b) = (Vm::connect(&lan.socket(0)), Vm::connect(&lan.socket(1)));
    // Shorter than a header, shorter than a frame, and a checksum and segmentation that were not negotiated.
    for (header, len) in [(0, 0), (1, 0), (11, 0), (12, 0), (12, 13)] {
        a.send_behind(&[0; 12][..header], &frame(1, 0, 60, 1)[..len]);
    }
    for flags in [[1, 0], [0, 1], [1, 0x40]] {
        a.send_behind(&[&flags[..], &[0; 10]].concat(), &frame(1, 0, 60, 1));
    }
    lan.pass(0);
    let dropped = |reason| lan.switch.member(0).expect("a port").port.counters().read().dropped(reason);
    assert_eq!((dropped(DropReason::Runt), dropped(DropReason::BadOffload)), (5, 3));
    assert_eq!(a.sent_and_used(), (8, 8), "all chains are used");
    exchange(&mut lan, (&mut a, 0), (&mut b, 1));
    assert_eq!(lan.watchers[0].all(), [Event::Connected(true)]);
}

#[test]
fn memory_can_come_and_go_while_frames_flow() {
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let (mut a, mut b) = (Vm::connect(&lan.socket(0)), Vm::connect(&lan.socket(1)));
    assert_eq!(a.front.get_max_mem_slots().expect("slots"), 64);
    let file = memfd(1 << 20);
    let mut more = a.region();
    (more.guest_phys_addr, more.userspace_addr) = (GUEST + MEMORY as u64, 0x10_0000);
    (more.memory_size, more.mmap_handle) = (1 << 20, file.as_raw_fd());
    for _ in 0..20 {
        a.front.add_mem_region(&more).expect("added");
        exchange(&mut lan, (&mut a, 0), (&mut b, 1));
        a.front.remove_mem_region(&more).expect("removed");
        // The ring continues if no other region comes for a while.
        let wanted = frame(1, 0, 60, 7);
        b.post(1);
        a.send(&wanted);
        until("the ring continues", || lan.pass(0).frames > 0);
        assert_eq!(b.receive(), [wanted]);
        // Removes and adds all memory, with that of the rings.
        let whole = a.region();
        a.front.remove_mem_region(&whole).expect("removed");
        a.front.add_mem_region(&whole).expect("added");
        a.front.set_features(VERSION_1 | PROTOCOL_FEATURES).expect("settled");
        exchange(&mut lan, (&mut a, 0), (&mut b, 1));
    }
}

#[test]
fn written_pages_are_logged_for_a_migration() {
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let (mut a, mut b) = (Vm::connect(&lan.socket(0)), Vm::connect(&lan.socket(1)));
    let size = (GUEST as usize + MEMORY) >> 15;
    let log = memfd(size);
    let region = VhostUserDirtyLogRegion { mmap_size: size as u64, mmap_offset: 0, mmap_handle: log.as_raw_fd() };
    b.front.set_log_base(0, Some(region)).expect("a log");
    b.front.set_features(VERSION_1 | PROTOCOL_FEATURES | LOG_ALL).expect("logging");
    for queue in 0..2 {
        let used = GUEST + ((queue as u64) << 16) + 0x8000;
        b.front
            .set_vring_addr(queue, &VringConfigData { flags: 1, log_addr: Some(used), ..b.config(queue) })
            .expect("logging");
    }
    exchange(&mut lan, (&mut a, 0), (&mut b, 1));
    let mut bits = vec![0; size];
    rustix::io::pread(&log, &mut bits, 0).expect("readable");
    let marked = |guest: u64| bits[(guest >> 15) as usize] >> (guest >> 12 & 7) & 1 == 1;
    assert!(marked(GUEST + 0x8000), "the used ring");
    assert!(marked(GUEST + (1 << 20)), "the first receive buffer");
    assert!(!marked(GUEST + (2 << 20)) && !marked(GUEST), "no other page");
}

#[test]
fn a_front_end_keeps_what_was_in_flight() {
    let lan = Lan::new(&[Role::Server]);
    let mut vm = Vm::connect(&lan.socket(0));
    let wanted = VhostUserInflight::new(0, 0, 4, RING);
    let (given, file) = vm.front.get_inflight_fd(&wanted).expect("memory");
    assert!(given.mmap_size >= 4096);
    let seals = rustix::fs::fcntl_get_seals(&file).expect("a memfd");
    assert!(seals.contains(rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW));
    vm.front.set_inflight_fd(&given, file.as_raw_fd()).expect("taken");
    vm.front.reset_device().expect("reset");
    vm.front.reset_owner().expect("ignored");
}

#[test]
fn a_transmit_ring_is_reset_and_resized_again_and_again_while_frames_flow() {
    const RING_RESET: u64 = 1 << 40;
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let _engine = lan.run(Idle::Sleep);
    let mut vms = [0, 1].map(|number| {
        let mut vm = Vm::new(Frontend::connect(lan.socket(number), 4).expect("connected"));
        vm.negotiate(RING_RESET);
        vm.start();
        vm
    });
    let [a, b] = &mut vms;
    let (mut random, mut next) = (Random::new(7), [0u32; 2]);
    for round in 0..300 {
        let count = 1 + random.below(40) as u32;
        let frames: Vec<_> = (0..count).map(|n| frame(1, 0, 60, next[0] + n)).collect();
        let others: Vec<_> = (0..count).map(|n| frame(0, 1, 60, next[1] + n)).collect();
        next = next.map(|next| next + count);
        a.post(count as u16);
        b.post((count as u16).saturating_sub(b.posted()));
        let before = b.sent_and_used().0;
        frames.iter().zip(&others).for_each(|(frame, other)| {
            a.send(frame);
            b.send(other);
        });
        b.kick_from(before, false);
        a.kick_from(0, false);
        // Of the frames that the guest sends, some are taken before the reset. The guest has the others back.
        let taken = a.reset_transmit(if round % 2 == 0 { 64 } else { RING }).into();
        assert_eq!(b.receive_some(taken), frames[..taken], "round {round}");
        assert_eq!(a.receive_some(others.len()), others, "round {round}: the other ring goes on");
    }
    assert!(b.receive().is_empty(), "no frame comes twice");
    let drops = lan.watchers.iter().flat_map(|watcher| watcher.all());
    assert!(drops.into_iter().all(|event| event == Event::Connected(true)));
}

#[test]
fn a_front_end_reads_the_configuration_space() {
    let mut lan = Lan::new(&[Role::Server]);
    lan.ports[0] = None;
    let wanted = Settings { mac: Some([2, 0, 0, 0, 0, 1]), mtu: Some(9000), ..settings(&lan.socket(0), Role::Server) };
    let (_sides, _port) = open(&wanted, Arc::new(Watcher::default())).expect("a port");
    let mut vm = Vm::connect(&lan.socket(0));
    let read = |vm: &mut Vm, offset, size: u32| {
        vm.front.get_config(offset, size, VhostUserConfigFlags::empty(), &vec![0; size as usize])
    };
    let (range, bytes) = read(&mut vm, 0, 12).expect("the space");
    assert_eq!({ range.size }, 12);
    assert_eq!(bytes, [2, 0, 0, 0, 0, 1, 1, 0, 2, 0, 0x28, 0x23]);
    vm.front.set_config(0, VhostUserConfigFlags::WRITABLE, &[2, 0, 0, 0, 0, 7]).expect("a legacy driver's address");
    assert_eq!(read(&mut vm, 5, 2).expect("the space").1, [1, 1]);
    vm.front.set_config(250, VhostUserConfigFlags::WRITABLE, &[0; 7]).expect_err("outside");
    drop(vm);
    // The front end above does not understand the answer to a range that does not exist (vhost-user, VHOST_USER_GET_CONFIG).
    let mut raw = Raw::connect(&lan.socket(0));
    let beyond = [[0, 257, 0].map(u32::to_ne_bytes).as_flattened(), &[0; 257]].concat();
    assert!(raw.tell(24, &beyond, &[]));
    let mut answer = [0; 12];
    raw.0.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer.as_chunks().0, [24, 5, 0].map(u32::to_ne_bytes));
}

#[test]
fn who_connects_and_leaves_at_once_costs_little() {
    let lan = Lan::new(&[Role::Server]);
    let since = Instant::now();
    for _ in 0..200 {
        drop(UnixStream::connect(lan.socket(0)));
    }
    Vm::connect(&lan.socket(0));
    let connections = lan.watchers[0].all().iter().filter(|told| **told == Event::Connected(true)).count() as u32;
    let most = 2 + since.elapsed().as_millis() as u32 / 10;
    assert!(connections <= most, "{connections} connections in {:?}", since.elapsed());
}
