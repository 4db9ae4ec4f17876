//! The netmap dialogue with a real daemon: ports of one family in one memory, shared ports, and what others get.

mod client;

use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use client::{Bound, Netmap, OURS, THEIRS, all_of, connected, open};
use ringway_abi::doorbell::{INDEX, RX_CLIENT, RX_SWITCH, TX_CLIENT, TX_SWITCH, WISH};
use ringway_abi::netmap::{Family, Monitor, PortName, Register, Reply, Request, Rings, Wish};
use ringway_abi::{Slot, slot::NS_BUF_CHANGED};
use ringway_scenes::{Daemon, until};
use ringway_testing::child::Ended;
use ringway_testing::frame::{patterned, station};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send,
    sendmsg, socketpair,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn name(text: &str) -> PortName {
    text.parse().unwrap()
}

fn gone(daemon: &Daemon, port: &str) {
    until(&format!("{port} is gone"), || daemon.port(port).is_null());
}

fn registered(daemon: &Daemon, port: &str) -> (Netmap, Bound) {
    let netmap = open(daemon, OURS);
    let bound = netmap.register(all_of(port));
    (netmap, bound)
}

/// Sends a broadcast, so that the switch learns the port of this station.
fn introduce(from: &Bound, number: u32, to: &Bound) {
    from.send(0, &patterned([0xff; 6], station(number), 60, number));
    assert_eq!(to.receive(0).len(), 60);
}

#[test]
fn a_buffer_that_is_swapped_between_two_ports_of_one_memory_arrives_unchanged() {
    let daemon = Daemon::start("[switch.vale0]\n[switch.vale1]\n");
    let (_a, sender) = registered(&daemon, "vale0:sender");
    let (_b, left) = registered(&daemon, "vale0:left");
    let (_c, right) = registered(&daemon, "vale1:right");
    let (_d, receiver) = registered(&daemon, "vale1:receiver");
    assert_eq!(left.granted.numbers.region, right.granted.numbers.region);
    assert_eq!(left.granted.numbers.region_bytes, right.granted.numbers.region_bytes);
    for number in 0..200 {
        let frame = patterned([0xff; 6], station(1u32), 60 + 7 * number as usize, number);
        sender.send(0, &frame);
        // The forwarder maps the memory once: through `left`, it swaps the buffers of both ports.
        let came = left.wait(0);
        let (from, head) = (Slot::from_word(came.load(Ordering::SeqCst)), number % 64);
        let free = right.tx_slot(0, head);
        let to = Slot::from_word(free.load(Ordering::SeqCst));
        came.store(Slot { buffer: to.buffer, ..from }.to_word(), Ordering::SeqCst);
        free.store(Slot { flags: NS_BUF_CHANGED, ..from }.to_word(), Ordering::SeqCst);
        left.next(0);
        right.publish(0, (head + 1) % 64);
        assert_eq!(receiver.receive(0), frame, "frame {number}");
        right.flushed(0);
    }
}

#[test]
fn two_connections_share_the_rings_of_a_port_and_each_has_its_own_wake_up() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (_peer, peer) = registered(&daemon, "lan0:peer");
    let two = |tx, rx| {
        let mut register = all_of("lan0:a");
        (register.tx, register.rx) = (tx, rx);
        (register.wish.tx_rings, register.wish.rx_rings) = (2, 2);
        register
    };
    let (first, second) = (open(&daemon, OURS), open(&daemon, OURS));
    let zero = first.register(two(Rings::Some(0, 1), Rings::Some(0, 1)));
    let one = second.register(two(Rings::Some(1, 2), Rings::All));
    assert_eq!((zero.granted.tx.clone(), zero.granted.rx.clone()), (0..1, 0..1));
    assert_eq!((one.granted.tx.clone(), one.granted.rx.clone()), (1..2, 0..2));
    assert_eq!(zero.granted.base, one.granted.base, "it is one port");
    assert_ne!(zero.granted.interface, one.granted.interface, "each has its own netmap_if");
    assert_eq!(daemon.status()["ports"].as_array().unwrap().len(), 2);
    for (ring, bound) in [(0, &zero), (1, &one)] {
        bound.send(ring, &patterned([0xff; 6], station(7u32), 100, ring.into()));
        assert_eq!(peer.receive(0), patterned([0xff; 6], station(7u32), 100, ring.into()));
    }
    // Both wait for frames of ring 1, which only the second has.
    let ring = (0..64u32)
        .find(|&flow| {
            peer.send(0, &patterned(station(7u32), station(8 + flow), 100, flow));
            until("a frame has come", || daemon.port("a")["out"]["frames"].as_u64() == Some(u64::from(flow) + 1));
            one.doorbell(1)[RX_SWITCH + INDEX].load(Ordering::SeqCst) == 1
        })
        .expect("a flow goes to ring 1");
    one.doorbell(1)[RX_CLIENT + WISH].store(1, Ordering::SeqCst);
    peer.send(0, &patterned(station(7u32), station(8 + ring), 100, 0));
    until("the second registration is woken", || ringway_testing::file::take_count(&one.call) > 0);
    assert_eq!(ringway_testing::file::take_count(&zero.call), 0, "the first does not have this ring");
    // The port stays until its last registration ends.
    drop(first);
    one.send(1, &patterned([0xff; 6], station(7u32), 80, 9));
    assert_eq!(peer.receive(0).len(), 80);
    drop(second);
    gone(&daemon, "a");
}

#[test]
fn an_independent_program_finds_a_port_in_use_and_another_memory() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (_connection, ours) = registered(&daemon, "lan0:a");
    let other = open(&daemon, THEIRS);
    let (errno, text) = other.refused(&Request::Register(all_of("lan0:a")));
    assert_eq!(errno, Errno::BUSY);
    assert!(text.contains("another program has lan0:a"), "{text}");
    let mut in_ours = all_of("lan0:b");
    in_ours.region = ours.granted.numbers.region;
    let (errno, text) = other.refused(&Request::Register(in_ours));
    assert_eq!(errno, Errno::INVAL, "{text}");
    // The connection is as good as before.
    let theirs = other.register(all_of("lan0:b"));
    assert_ne!(theirs.granted.numbers.region, ours.granted.numbers.region);
    let inode = |bound: &Bound| rustix::fs::fstat(bound.memory.file()).unwrap().st_ino;
    assert_ne!(inode(&theirs), inode(&ours), "each family has its own memory");
    assert!(daemon.attach("lan0:a").is_err(), "a client of the other protocol does not get it either");
    let plain = daemon.attach("lan0:plain").unwrap();
    assert_eq!(open(&daemon, OURS).refused(&Request::Register(all_of("lan0:plain"))).0, Errno::BUSY);
    drop(plain);
}

#[test]
fn exclusive_rings_and_rings_that_a_port_does_not_have_are_refused() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (first, second) = (open(&daemon, OURS), open(&daemon, OURS));
    let mut register = all_of("lan0:a");
    register.exclusive = true;
    first.register(register.clone());
    assert_eq!(second.refused(&Request::Register(all_of("lan0:a"))).0, Errno::BUSY);
    assert_eq!(first.refused(&Request::Register(all_of("lan0:b"))).0, Errno::BUSY, "one registration a connection");
    let mut far = all_of("lan0:c");
    far.tx = Rings::Some(0, 2);
    assert_eq!(second.refused(&Request::Register(far)).0, Errno::INVAL);
    assert!(daemon.port("c").is_null(), "a port that could not be bound is not made");
    drop(first);
    gone(&daemon, "a");
    second.register(register);
}

#[test]
fn a_descriptor_that_was_passed_to_another_process_recalls_its_registration() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (connection, before) = registered(&daemon, "lan0:a");
    let (_peer, peer) = registered(&daemon, "lan0:peer");
    assert_eq!(open(&daemon, OURS).refused(&Request::Recall).0, Errno::NXIO);
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("two sockets");
    let descriptors = [std::os::fd::AsFd::as_fd(&connection.socket)];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&near, &[std::io::IoSlice::new(&[1])], &mut ancillary, SendFlags::empty()).expect("sent");
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = rustix::net::RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut into = [std::io::IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(&far, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC).expect("received");
    let received = ancillary.drain().find_map(|part| match part {
        rustix::net::RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    drop(connection);
    let passed = Netmap { socket: received.expect("a descriptor") };
    let after = passed.granted(&Request::Recall);
    assert_eq!(after.granted, before.granted);
    after.send(0, &patterned([0xff; 6], station(1u32), 90, 3));
    assert_eq!(peer.receive(0), patterned([0xff; 6], station(1u32), 90, 3));
    drop(passed);
    gone(&daemon, "a");
}

#[test]
fn the_port_of_a_killed_process_goes_and_its_name_is_free() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (connection, _bound) = registered(&daemon, "lan0:a");
    // The process has the only descriptor.
    let process = Command::new("sleep").arg("1000").stdin(Stdio::from(connection.socket)).spawn();
    let mut process = Ended(process.unwrap());
    assert_eq!(daemon.port("a")["state"], "up");
    process.kill().unwrap();
    process.wait().unwrap();
    gone(&daemon, "a");
    registered(&daemon, "lan0:a");
}

#[test]
fn slots_that_name_any_number_break_only_their_own_port() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (_evil, evil) = registered(&daemon, "lan0:evil");
    let (_a, a) = registered(&daemon, "lan0:a");
    let (_b, b) = registered(&daemon, "lan0:b");
    introduce(&a, 1, &b);
    introduce(&b, 2, &a);
    let numbers = [0, 1, evil.granted.buffer_count, evil.granted.buffer_count + 1, u32::MAX];
    for (slot, buffer) in (0..).zip(numbers) {
        let bad = Slot { buffer, len: 60, flags: 0 }.to_word();
        evil.tx_slot(0, slot).store(bad, Ordering::SeqCst);
        (0..64).for_each(|slot| evil.rx_slot(0, slot).store(bad, Ordering::SeqCst));
    }
    evil.publish(0, numbers.len() as u32);
    evil.flushed(0);
    until("the bad slots are counted", || daemon.port("evil")["drops"]["bad_buffer"].as_u64() >= Some(5));
    for number in 0..100 {
        let frame = patterned(station(2u32), station(1u32), 200, number);
        a.send(0, &frame);
        assert_eq!(b.receive(0), frame);
    }
    // A head that is no slot ends the port that wrote it, and tells its client why.
    evil.publish(0, 64);
    gone(&daemon, "evil");
    match _evil.end() {
        Some(Reply::Refused { errno, text }) => {
            assert_eq!(Errno::from_raw_os_error(errno.into()), Errno::NXIO);
            assert!(text.contains("head 64 is not a slot"), "{text}");
        }
        other => panic!("{other:?} does not say why"),
    }
    a.send(0, &patterned(station(2u32), station(1u32), 200, 1));
    assert_eq!(b.receive(0).len(), 200);
}

/// Both ends of a pipe: of one family, or of two.
fn pipe(daemon: &Daemon, families: [Family; 2]) -> [(Netmap, Bound); 2] {
    [("lan0:a{1", families[0]), ("lan0:a}1", families[1])].map(|(end, family)| {
        let netmap = open(daemon, family);
        let bound = netmap.register(all_of(end));
        (netmap, bound)
    })
}

#[test]
fn a_pipe_carries_any_bytes_in_order_and_stops_a_sender_whose_receiver_is_full() {
    for families in [[OURS, OURS], [OURS, THEIRS]] {
        let daemon = Daemon::start("[switch.lan0]\n");
        let [(_m, master), (_s, slave)] = pipe(&daemon, families);
        for round in 0..3 {
            // 63 slots are free; the receiver takes nothing before all are sent.
            for number in 0..63u8 {
                master.send(0, &vec![number; 1 + usize::from(number) * 33]);
            }
            until("all frames have come", || {
                let bell = slave.doorbell(0);
                let tail = bell[RX_SWITCH + INDEX].load(Ordering::SeqCst);
                (tail + 64 - bell[RX_CLIENT + INDEX].load(Ordering::SeqCst)) % 64 == 63
            });
            let tail = || master.doorbell(0)[TX_SWITCH + INDEX].load(Ordering::SeqCst);
            let head = || master.doorbell(0)[TX_CLIENT + INDEX].load(Ordering::SeqCst);
            assert_eq!(tail(), head(), "the sender has no slot left");
            for number in 0..63u8 {
                assert_eq!(slave.receive(0), vec![number; 1 + usize::from(number) * 33], "round {round}");
            }
            slave.kick();
            master.flushed(0);
        }
        let ends = [daemon.port("a{1"), daemon.port("a}1")];
        assert_eq!((&ends[0]["in"]["frames"], &ends[1]["out"]["frames"]), (&189.into(), &189.into()), "{ends:?}");
        assert!(ends.iter().all(|end| end["drops"] == serde_json::json!({})), "{ends:?}");
    }
}

#[test]
fn an_end_with_wrong_positions_ends_alone_and_another_takes_its_place() {
    for families in [[OURS, OURS], [OURS, THEIRS]] {
        for line in [TX_CLIENT, RX_CLIENT] {
            let daemon = Daemon::start("[switch.lan0]\n");
            let [(_m, master), (evil, bound)] = pipe(&daemon, families);
            master.send(0, b"waits");
            bound.wait(0);
            for slot in 0..64 {
                bound.rx_slot(0, slot).store(u64::MAX, Ordering::SeqCst);
            }
            // Beyond the slots that the client has, and within the ring.
            bound.doorbell(0)[line + INDEX].store(if line == TX_CLIENT { 64 } else { 2 }, Ordering::SeqCst);
            bound.kick();
            match evil.end() {
                Some(Reply::Refused { text, .. }) => assert!(text.contains("head"), "{text}"),
                other => panic!("{other:?} does not say why"),
            }
            gone(&daemon, "a}1");
            assert_eq!(daemon.port("a{1")["state"], "up");
            if families[1] == THEIRS {
                let next = open(&daemon, THEIRS);
                let slave = next.register(all_of("lan0:a}1"));
                assert_eq!(slave.receive(0), b"waits", "what was not returned comes to the next");
                slave.send(0, b"answer");
                assert_eq!(master.receive(0), b"answer");
            }
        }
    }
}

#[test]
fn slots_of_a_pipe_that_name_no_buffer_arrive_empty_and_are_counted() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let [(_m, master), (_s, slave)] = pipe(&daemon, [OURS, THEIRS]);
    for (slot, buffer) in (0..).zip([0, 1, u32::MAX]) {
        master.tx_slot(0, slot).store(Slot { buffer, len: 60, flags: 0 }.to_word(), Ordering::SeqCst);
    }
    master.publish(0, 3);
    for _ in 0..3 {
        assert_eq!(slave.receive(0), b"");
    }
    slave.rx_slot(0, 3).store(Slot { buffer: 0, len: 0, flags: 0 }.to_word(), Ordering::SeqCst);
    master.send(0, b"lost");
    assert_eq!(Slot::from_word(slave.wait(0).load(Ordering::SeqCst)).len, 0);
    slave.next(0);
    master.send(0, b"good");
    assert_eq!(slave.receive(0), b"good");
    until("they are counted", || {
        let bad = |end: &str| daemon.port(end)["drops"]["bad_buffer"].as_u64();
        bad("a{1") == Some(3) && bad("a}1") == Some(1)
    });
}

#[test]
fn ends_of_a_pipe_belong_to_families_and_go_with_their_last_registrations() {
    let daemon = Daemon::start("[attach]\ncreate = \"ports\"\n[switch.lan0]\n");
    let [(m, master), (s, slave)] = pipe(&daemon, [OURS, THEIRS]);
    assert_ne!(master.granted.numbers.region, slave.granted.numbers.region);
    assert_eq!(open(&daemon, THEIRS).refused(&Request::Register(all_of("lan0:a{1"))).0, Errno::BUSY);
    assert_eq!(open(&daemon, OURS).refused(&Request::Register(all_of("lan9:a{1"))).0, Errno::NXIO);
    let second = open(&daemon, OURS);
    let same = second.register(all_of("lan0:a{1"));
    drop(m);
    same.send(0, b"from the second");
    assert_eq!(slave.receive(0), b"from the second");
    // A process of the sender is gone: what it has published arrives.
    same.send(0, b"last");
    drop(second);
    gone(&daemon, "a{1");
    assert_eq!(slave.receive(0), b"last");
    drop(s);
    gone(&daemon, "a}1");
    let [(_m, master), (_s, slave)] = pipe(&daemon, [OURS, OURS]);
    assert_eq!(master.granted.numbers.region, slave.granted.numbers.region, "a new pipe in one memory");
    let number = Slot::from_word(master.tx_slot(0, 0).load(Ordering::SeqCst)).buffer;
    master.send(0, b"swapped");
    assert_eq!(Slot::from_word(slave.wait(0).load(Ordering::SeqCst)).buffer, number, "the same buffer, not a copy");
}

#[test]
fn an_administrator_can_close_an_end_of_a_pipe_and_hears_that_nothing_else_works_on_it() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let [(m, master), (_s, slave)] = pipe(&daemon, [OURS, THEIRS]);
    let fails = |args: &[&str], wanted: &str| {
        let said = daemon.ringway(args);
        assert!(said.code != Some(0) && said.err.contains(wanted), "{args:?}: {}", said.err);
    };
    let no_keys = "lan0:a{1 is an end of a pipe, which has no keys, limits and captures: only \"port del\" works on it";
    fails(&["port", "set", "lan0:a{1", "ingress.rate=1Mbit"], no_keys);
    fails(&["capture", "lan0:a{1", "-w", "/dev/null"], no_keys);
    fails(&["port", "enable", "a{1"], no_keys);
    fails(
        &["port", "add", "a{2", "switch=lan0", "kind=process"],
        "\"a{2\" is an end of a pipe: the program that opens it makes it",
    );
    fails(&["port", "del", "a{2"], "there is no port \"a{2\"");
    let interfaces = daemon.ok(&["extcap", "--extcap-interfaces"]);
    assert!(!interfaces.contains("lan0:a"), "what cannot be captured is not offered: {interfaces}");
    master.send(0, b"before");
    assert!(daemon.ok(&["port", "del", "a{1"]).contains("closed lan0:a{1"));
    match m.end() {
        Some(Reply::Refused { text, .. }) => assert!(text.contains("the end of the pipe was deleted"), "{text}"),
        other => panic!("{other:?}"),
    }
    gone(&daemon, "a{1");
    assert_eq!(slave.receive(0), b"before");
    // The other end waits for the next program, as after any other end of the first.
    let again = open(&daemon, OURS);
    let next = again.register(all_of("lan0:a{1"));
    next.send(0, b"after");
    assert_eq!(slave.receive(0), b"after");
}

#[test]
fn ports_beyond_the_pool_and_the_limits_are_refused_and_room_comes_back() {
    let daemon = Daemon::start("[attach]\nmax_region = \"2MiB\"\n[switch.lan0]\n");
    let mut all = Vec::new();
    let refused = loop {
        let netmap = open(&daemon, OURS);
        netmap.say(&Request::Register(all_of(&format!("lan0:p{}", all.len()))).encode());
        match netmap.next().expect("an answer").0 {
            Reply::Granted(_) => all.push(netmap),
            other => break other,
        }
        assert!(all.len() < 100, "2 MiB are never full");
    };
    assert!(all.len() > 1, "{refused:?} after {} ports", all.len());
    let Reply::Refused { errno, text } = refused else { panic!("{refused:?}") };
    assert_eq!(Errno::from_raw_os_error(errno.into()), Errno::NOMEM, "{text}");
    let count = all.len();
    all.clear();
    for number in 0..count {
        let netmap = open(&daemon, OURS);
        netmap.register(all_of(&format!("lan0:again{number}")));
        all.push(netmap);
    }
    // Another family has a memory of its own.
    open(&daemon, THEIRS).register(all_of("lan0:other"));
    let mut huge = all_of("lan0:huge");
    huge.wish.tx_slots = 4096;
    let (errno, text) = open(&daemon, Family([3; 16])).refused(&Request::Register(huge));
    assert_eq!(errno, Errno::NOMEM, "{text}");
    assert!(text.contains("2097152 are allowed"), "{text}");
}

#[test]
fn ends_of_pipes_that_are_closed_give_their_room_to_ends_that_are_opened_at_once() {
    let daemon = Daemon::start("[attach]\nmax_region = \"4MiB\"\n[switch.lan0]\n");
    let keeper = open(&daemon, OURS);
    keeper.register(all_of("lan0:keeps-the-memory"));
    let end = |round: usize, number: usize| {
        let netmap = open(&daemon, OURS);
        netmap.say(&Request::Register(all_of(&format!("lan0:a{{{round}x{number}"))).encode());
        match netmap.next().expect("an answer").0 {
            Reply::Granted(_) => Ok(netmap),
            other => Err(Box::new(other)),
        }
    };
    let mut all: Vec<Netmap> = (0..100).map_while(|number| end(0, number).ok()).collect();
    let count = all.len();
    assert!(count > 1 && count < 100, "{count} ends fill the memory");
    for round in 1..30 {
        all.clear();
        all = (0..count)
            .map(|number| end(round, number).unwrap_or_else(|other| panic!("round {round}: {other:?}")))
            .collect();
    }
}

#[test]
fn the_limit_of_memory_counts_the_buffers_that_a_port_gets() {
    let daemon = Daemon::start("[attach]\nmax_memory = \"1MiB\"\nmax_region = \"64MiB\"\n[switch.lan0]\n");
    let large = |name: &str| {
        let mut large = all_of(name);
        large.wish = Wish { tx_slots: 4, rx_slots: 4, buffer_size: 65_472, ..Wish::default() };
        large
    };
    let first = open(&daemon, OURS);
    first.register(large("lan0:large"));
    // Of the same memory, and so with large buffers: 128 of them are 8 MiB.
    for name in ["lan0:b", "lan0:b{1"] {
        let (errno, text) = open(&daemon, OURS).refused(&Request::Register(all_of(name)));
        assert!(errno == Errno::NOMEM && text.contains("[attach] max_memory allows 1MiB"), "{name}: {text}");
        let wish = all_of(name).wish;
        let (errno, text) = open(&daemon, OURS).refused(&Request::Info(self::name(name), wish));
        assert!(errno == Errno::NOMEM && text.contains("[attach] max_memory allows 1MiB"), "{name}: {text}");
        open(&daemon, THEIRS).register(all_of(name));
    }
}

#[test]
fn numbers_and_lists_need_no_registration() {
    let daemon = Daemon::start("[attach]\ncreate = \"ports\"\n[switch.lan0]\n[switch.lan1]\n");
    let asker = open(&daemon, OURS);
    let wish = Wish { tx_rings: 2, ..Wish::default() };
    let Reply::Info(numbers) = asker.ask(&Request::Info(name("lan0:a"), wish)) else { panic!("no numbers") };
    assert_eq!((numbers.shape.tx_rings, numbers.shape.tx_slots, numbers.region), (2, 1024, 0));
    let (_connection, bound) = registered(&daemon, "lan0:a");
    let Reply::Info(numbers) = asker.ask(&Request::Info(name("lan0:a"), wish)) else { panic!("no numbers") };
    assert_eq!(numbers, bound.granted.numbers, "a port that exists has its own numbers");
    let (errno, text) = asker.refused(&Request::Info(name("lan9:a"), wish));
    assert_eq!(errno, Errno::NXIO, "{text}");
    assert_eq!(asker.refused(&Request::Register(all_of("lan9:a"))).0, Errno::NXIO);
    let _other = registered(&daemon, "lan1:b");
    let listed = |number| match asker.ask(&Request::List(number)) {
        Reply::Listed { name, switch_index, port_index } => Some((name.to_string(), switch_index, port_index)),
        Reply::Refused { errno, .. } if Errno::from_raw_os_error(errno.into()) == Errno::NOENT => None,
        other => panic!("{other:?}"),
    };
    let all: Vec<_> = (0..).map_while(listed).collect();
    assert_eq!(all, [("lan0:a".to_owned(), 0, 0), ("lan1:b".to_owned(), 1, 0)]);
}

#[test]
fn a_persistent_port_is_made_attached_detached_and_deleted() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let netmap = open(&daemon, OURS);
    let v0 = || "v0".to_owned();
    let errno = |request: Request| netmap.refused(&request).0;
    assert_eq!(errno(Request::Attach(name("lan0:v0"))), Errno::NXIO);
    assert_eq!(errno(Request::Delete(v0())), Errno::NXIO);
    assert_eq!(netmap.ask(&Request::New(v0())), Reply::Done);
    assert_eq!(errno(Request::New(v0())), Errno::EXIST);
    assert_eq!(errno(Request::Detach(name("lan0:v0"))), Errno::NXIO);
    assert_eq!(netmap.ask(&Request::Attach(name("lan0:v0"))), Reply::Done);
    assert_eq!(errno(Request::Attach(name("lan0:v0"))), Errno::BUSY);
    assert_eq!(errno(Request::Delete(v0())), Errno::BUSY);
    assert!(matches!(netmap.ask(&Request::List(0)), Reply::Listed { name: listed, .. } if listed == name("lan0:v0")));
    let user = open(&daemon, OURS);
    user.register(all_of("lan0:v0"));
    assert_eq!(errno(Request::Detach(name("lan0:v0"))), Errno::BUSY);
    drop(user);
    gone(&daemon, "v0");
    assert_eq!(netmap.ask(&Request::Detach(name("lan0:v0"))), Reply::Done);
    assert_eq!(netmap.ask(&Request::Delete(v0())), Reply::Done);
}

#[test]
fn a_persistent_port_of_one_switch_refuses_nobody_on_others() {
    let daemon = Daemon::start("[switch.lan0]\n[switch.lan1]\n");
    let netmap = open(&daemon, OURS);
    assert_eq!(netmap.ask(&Request::New("v0".to_owned())), Reply::Done);
    assert_eq!(netmap.ask(&Request::Attach(name("lan0:v0"))), Reply::Done);
    let other = open(&daemon, THEIRS);
    other.register(all_of("lan1:v0"));
    let (here, there) = (open(&daemon, OURS), name("lan0:v0"));
    here.register(all_of(&there.to_string()));
}

#[test]
fn one_program_does_not_get_all_names_of_persistent_ports() {
    let daemon = Daemon::start("[attach]\nmax_ports = 16\n[switch.lan0]\n");
    let netmap = open(&daemon, OURS);
    let made = (0..16).take_while(|number| netmap.ask(&Request::New(format!("v{number}"))) == Reply::Done).count();
    assert_eq!(made, 4);
    assert_eq!(netmap.refused(&Request::New("more".to_owned())).0, Errno::NOMEM);
}

#[test]
fn messages_that_are_none_end_their_own_connection_only() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (_connection, bound) = registered(&daemon, "lan0:a");
    let (_peer, peer) = registered(&daemon, "lan0:peer");
    let mut with_byte = Request::Recall.encode();
    with_byte[100] = 1;
    for message in [&with_byte[..], &with_byte[..50], b"x", &[0xff; 128]] {
        let evil = open(&daemon, OURS);
        evil.register(all_of("lan0:evil"));
        evil.say(message);
        assert!(matches!(evil.end(), Some(Reply::Refused { .. })));
        gone(&daemon, "evil");
    }
    let early = connected(&daemon);
    early.say(&Request::Recall.encode());
    assert!(matches!(early.end(), Some(Reply::Refused { .. })), "the first message is Open");
    // A name or a number that is wrong is refused, and the connection lives on.
    let mut wrong = Request::Register(all_of("lan0:evil")).encode();
    wrong[40] = b'/';
    let evil = open(&daemon, OURS);
    evil.say(&wrong);
    assert!(matches!(evil.next(), Some((Reply::Refused { errno: 22, .. }, _))));
    bound.send(0, &patterned([0xff; 6], station(1u32), 60, 1));
    assert_eq!(peer.receive(0).len(), 60);
}

/// Returns true if a message is there.
fn is_answered(netmap: &Netmap) -> bool {
    let mut wait = [PollFd::new(&netmap.socket, PollFlags::IN)];
    poll(&mut wait, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}

#[test]
fn the_next_request_is_read_when_the_last_answer_was_read() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (deaf, _bound) = registered(&daemon, "lan0:deaf");
    let recall = Request::Recall.encode();
    let requests =
        (0..10_000).take_while(|_| send(&deaf.socket, &recall, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok());
    let requests = requests.count();
    assert!(requests < 10_000, "the switch has left the requests in the socket");
    // Others are served, and its own answers all come when it reads them.
    let (_other, _bound) = registered(&daemon, "lan0:other");
    for _ in 0..requests {
        assert!(matches!(deaf.next(), Some((Reply::Granted(_), descriptors)) if descriptors.len() == 3));
    }
    assert!(matches!(deaf.ask(&Request::Recall), Reply::Granted(_)));
}

#[test]
fn a_registration_with_many_extra_buffers_holds_up_no_other_client() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (large, small) = (open(&daemon, OURS), open(&daemon, THEIRS));
    large.say(&Request::Register(Register { extra_buffers: 65_536, ..all_of("lan0:large") }).encode());
    small.register(all_of("lan0:small"));
    assert!(!is_answered(&large), "the other one was served first");
    let Some((Reply::Granted(granted), _)) = large.next() else { panic!("it is granted") };
    assert!(granted.extra_buffers > 60_000, "{granted:?}");
}

#[test]
fn frames_have_the_header_that_each_port_asked_for() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let ports = [0u8, 10, 12].map(|header| {
        let mut register = all_of(&format!("lan0:h{header}"));
        register.wish.header = header;
        let netmap = open(&daemon, OURS);
        let bound = netmap.register(register);
        (netmap, bound, usize::from(header))
    });
    for (number, (_, sender, before)) in (0..).zip(&ports) {
        for len in [60, 700, 3000, 4000] {
            let frame = patterned([0xff; 6], station(number), len, number);
            sender.send_long(0, &[&vec![0; *before][..], &frame].concat());
            for (_, receiver, before) in
                ports.iter().filter(|(other, ..)| !std::ptr::eq(other, &ports[number as usize].0))
            {
                let came = receiver.receive_long(0);
                assert!(came[..*before].iter().all(|&byte| byte == 0), "nothing is left to be done");
                assert_eq!(came[*before..], frame, "{len} bytes after {before}");
            }
        }
    }
}

#[test]
fn connections_may_be_silent_and_their_number_is_bounded() {
    /// Most connections of one process.
    const MOST: usize = 256;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
    let daemon = Daemon::start("[switch.lan0]\n");
    let silent = open(&daemon, OURS);
    let early = connected(&daemon);
    match rustix::net::recv(&early.socket, &mut [0; 256][..], RecvFlags::empty()) {
        Ok((_, len)) => assert!(len > 0, "a connection without a first message is told that its time is over"),
        Err(error) => panic!("{error}"),
    }
    let mut others: Vec<Netmap> = (1..MOST).map(|_| open(&daemon, OURS)).collect();
    let late = connected(&daemon);
    late.say(&Request::Open(OURS).encode());
    match late.end() {
        Some(Reply::Refused { errno, text }) => {
            assert_eq!(Errno::from_raw_os_error(errno.into()), Errno::NFILE);
            assert!(text.contains("256 netmap connections of this process are open"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    silent.register(all_of("lan0:a"));
    others.pop();
    until("a connection is free again", || {
        let next = connected(&daemon);
        next.say(&Request::Open(OURS).encode());
        matches!(next.next(), Some((Reply::Done, _)))
    });
}

#[test]
fn a_port_that_an_administrator_removes_ends_all_its_registrations() {
    let daemon = Daemon::start("[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let (first, _bound) = registered(&daemon, "lan0:a");
    let (second, _same) = registered(&daemon, "lan0:a");
    daemon.ok(&["port", "del", "a"]);
    for connection in [first, second] {
        match connection.end() {
            Some(Reply::Refused { text, .. }) => assert!(text.contains("the port was removed"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_monitor_ends_with_its_port() {
    let daemon = Daemon::start("[attach]\nmonitors = true\n[switch.lan0]\n");
    let (port, _bound) = registered(&daemon, "lan0:a");
    let monitor = open(&daemon, THEIRS);
    monitor.register(Register { monitor: Monitor { sent: true, received: true }, ..all_of("lan0:a") });
    drop(port);
    match monitor.end() {
        Some(Reply::Refused { errno, text }) => {
            assert_eq!(Errno::from_raw_os_error(errno.into()), Errno::NXIO);
            assert!(text.contains("the monitored port lan0:a has gone"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    gone(&daemon, "monitor0");
}
