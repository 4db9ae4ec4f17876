//! The switch dies, and is upgraded, under connections of stream ports. No peer here connects twice: each checks every byte that comes.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringway_scenes::{Daemon, PATIENCE, until, whole};
use ringway_testing::random::Random;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::process::{Pid, Signal, kill_process};

/// Number of kills and of upgrades, in short and as a whole.
const KILLS: [usize; 2] = [8, 30];
const UPGRADES: [usize; 2] = [2, 10];
/// Frames that have to arrive everywhere between two of them.
const BETWEEN: u64 = 500;
/// Longest frame.
const LONGEST: u64 = 65_589;
/// Frames longer than this go in parts when there is little room: the kernel takes 16 pages of a pipe at once.
const WHOLE: u64 = 65_532;
/// Send buffer of a peer: frames longer than half of it go in parts.
const SEND_BUFFER: usize = 8 << 10;

/// The frame with this number from this peer, after its length: its own length and each of its bytes depend on the number.
fn framed(from: u8, number: u64) -> Vec<u8> {
    let mut random = Random::new(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let len = match random.below(6) {
        0 => 33_000 + random.below(LONGEST - 33_000),
        1 => WHOLE + 1 + random.below(LONGEST - WHOLE),
        2 => 1514,
        _ => 22 + random.below(300),
    };
    let mut frame = (len as u32).to_be_bytes().to_vec();
    frame.extend([0xff; 6]);
    frame.extend([2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    let end = 4 + len as usize;
    while frame.len() < end {
        frame.extend(random.bits().to_ne_bytes());
    }
    frame.truncate(end);
    frame
}

/// Sends frames until it is told to end, in pieces of any size. The last one is whole.
fn send(from: u8, mut socket: UnixStream, ends: &AtomicBool) -> UnixStream {
    set_socket_send_buffer_size(&socket, SEND_BUFFER).unwrap();
    let mut random = Random::new(7);
    let mut number = 1;
    while !ends.load(Ordering::Relaxed) {
        let bytes: Vec<u8> = (number..number + 10).flat_map(|number| framed(from, number)).collect();
        number += 10;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(1 + random.below(20_000) as usize));
            socket.write_all(piece).expect("the connection goes on");
            rest = behind;
        }
    }
    socket
}

/// Receives frames until it is told to end and the last one is whole, and checks them. They come in turn, some not at all.
fn receive(from: u8, mut socket: UnixStream, came: &AtomicU64, ends: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (mut random, mut bytes, mut last) = (Random::new(9), Vec::new(), 0);
    let mut space = vec![0; 100_000];
    let mut is_quiet = false;
    while !(ends.load(Ordering::Relaxed) && is_quiet && bytes.is_empty()) {
        let most = 1 + random.below(space.len() as u64) as usize;
        match socket.read(&mut space[..most]) {
            Ok(0) => panic!("the connection ended after frame {last}"),
            Ok(count) => bytes.extend(&space[..count]),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => is_quiet = true,
            Err(why) => panic!("{why} after frame {last}"),
        }
        let mut at = 0;
        while let Some(prefix) = bytes.get(at..at + 4) {
            let len = u32::from_be_bytes(prefix.try_into().unwrap());
            assert!((22..=LONGEST as u32).contains(&len), "no length after frame {last}: {len}");
            let Some(frame) = bytes.get(at + 4..at + 4 + len as usize) else { break };
            let number = u64::from_be_bytes(frame[14..22].try_into().unwrap());
            assert!(number > last, "frame {number} after {last}: twice, or out of order");
            assert!(
                bytes[at..][..4 + len as usize] == framed(from, number),
                "frame {number}, after {last}, was altered"
            );
            (last, at) = (number, at + 4 + frame.len());
            came.fetch_add(1, Ordering::Relaxed);
        }
        bytes.drain(..at);
    }
}

#[test]
fn a_stream_goes_on_at_the_exact_byte_in_both_directions_when_the_switch_is_killed_or_upgraded() {
    let port = |name: &str, role: &str| {
        format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"stream\"\nrole = \"{role}\"\nsocket = \"{name}.sock\"\n")
    };
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}{}", port("a", "server"), port("b", "client")));
    let listener = UnixListener::bind(daemon.socket("b.sock")).unwrap();
    let sockets = [UnixStream::connect(daemon.socket("a.sock")).unwrap(), listener.accept().unwrap().0];
    ["a", "b"].iter().for_each(|port| daemon.until_state(port, "up"));
    let (came, ends) = ([AtomicU64::new(0), AtomicU64::new(0)], [AtomicBool::new(false), AtomicBool::new(false)]);
    std::thread::scope(|scope| {
        let mut peers = Vec::new();
        for ((own, socket), came) in (0..).zip(&sockets).zip(&came) {
            let [sends, receives] = [(); 2].map(|()| socket.try_clone().unwrap());
            let [sending, receiving] = &ends;
            peers.push(scope.spawn(move || drop(send(own, sends, sending))));
            peers.push(scope.spawn(move || receive(1 - own, receives, came, receiving)));
        }
        let goes_on = || {
            let before = came.each_ref().map(|came| came.load(Ordering::Relaxed));
            let has_come =
                || came.iter().zip(before).all(|(now, before)| now.load(Ordering::Relaxed) > before + BETWEEN);
            until("frames come", || peers.iter().any(|peer| peer.is_finished()) || has_come());
            assert!(has_come(), "a peer lost its connection");
        };
        for _ in 0..whole(KILLS[0], KILLS[1]) {
            goes_on();
            let switch = Pid::from_raw(daemon.pid().cast_signed()).unwrap();
            kill_process(switch, Signal::KILL).unwrap();
            until("another switch is started", || daemon.pid().cast_signed() != switch.as_raw_pid());
        }
        for _ in 0..whole(UPGRADES[0], UPGRADES[1]) {
            goes_on();
            daemon.ok(&["upgrade"]);
        }
        goes_on();
        ends[0].store(true, Ordering::Relaxed);
        until("all is sent", || peers.iter().step_by(2).all(|peer| peer.is_finished()));
        ends[1].store(true, Ordering::Relaxed);
        peers.into_iter().for_each(|peer| peer.join().expect("no panic"));
    });
    let status = daemon.status();
    assert!(status["faults"].as_array().is_none_or(Vec::is_empty), "{}", daemon.ok(&["status"]));
    // Each end of a connection is noticed by the last switch, and others connect.
    drop((sockets, listener));
    ["a", "b"].iter().for_each(|port| daemon.until_state(port, "waiting"));
    let mut again = UnixStream::connect(daemon.socket("a.sock")).unwrap();
    daemon.until_state("a", "up");
    again.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut other = daemon.attach("lan0:c").expect("a port");
    until("there is room", || other.tx().push(&framed(2, 1)[4..][..60]));
    other.flush();
    let mut first = [0; 64];
    again.read_exact(&mut first).expect("a frame");
    assert_eq!(first[..4], 60_u32.to_be_bytes(), "it begins with a length");
}

/// Sends numbered frames from one peer until one has come to the other. Neither connects again.
fn goes_on([from, to]: [&mut UnixStream; 2], what: &str) {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let (mut first, mut came, mut space) = (None, Vec::new(), vec![0; 1 << 16]);
    [&*from, &*to].iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    until(what, || {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let sent =
            [&64_u32.to_be_bytes()[..], &[0xff; 6], &[2, 0, 0, 0, 0, 9, 0x88, 0xb5], &number.to_be_bytes(), &[0; 42]];
        match from.write(&sent.concat()) {
            Ok(68) => _ = first.get_or_insert(number),
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            other => panic!("{what}: {other:?}"),
        }
        match to.read(&mut space) {
            Ok(0) => panic!("{what}: the connection has ended"),
            Ok(count) => came.extend(&space[..count]),
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            Err(why) => panic!("{what}: {why}"),
        }
        let frames = came.as_chunks::<68>().0;
        frames.iter().any(|frame| u64::from_be_bytes(frame[18..26].try_into().unwrap()) >= first.unwrap_or(u64::MAX))
    });
    // Whole frames only: all that was sent for this.
    until("the last one has come", || {
        let count = to.read(&mut space).unwrap_or(0);
        came.extend(&space[..count]);
        came.len().is_multiple_of(68)
    });
}

#[test]
fn a_stream_whose_port_was_moved_and_renamed_goes_on_when_the_switch_is_killed() {
    let port = |name: &str, switch: &str, socket: &str, role: &str| {
        format!("[port.{name}]\nswitch = \"{switch}\"\nkind = \"stream\"\nrole = \"{role}\"\nsocket = \"{socket}\"\n")
    };
    let config = |names: [&str; 2], switch: &str| {
        let ports = [port(names[0], switch, "a.sock", "server"), port(names[1], switch, "b.sock", "client")];
        format!("[switch.lan0]\n[switch.lan1]\n{}", ports.concat())
    };
    let daemon = Daemon::start(&config(["a", "b"], "lan0"));
    let listener = UnixListener::bind(daemon.socket("b.sock")).unwrap();
    let mut a = UnixStream::connect(daemon.socket("a.sock")).unwrap();
    let mut b = listener.accept().unwrap().0;
    for (names, switch) in [(["a", "b"], "lan1"), (["c", "d"], "lan1"), (["b", "a"], "lan0")] {
        daemon.reload(&config(names, switch));
        until("the ports have moved", || names.iter().all(|name| daemon.port(name)["switch"] == switch));
        names.iter().for_each(|port| daemon.until_state(port, "up"));
        goes_on([&mut a, &mut b], "frames come before the kill");
        daemon.kill_switch();
        goes_on([&mut a, &mut b], "frames come after it");
        goes_on([&mut b, &mut a], "in both directions");
        names.iter().for_each(|port| daemon.until_state(port, "up"));
    }
}
