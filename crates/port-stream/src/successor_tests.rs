//! A switch that stops anywhere between two calls, and a successor with copies of the same descriptors.

use std::os::fd::{AsFd, OwnedFd};

use ringway_switch::{
    DropReason, FloodPolicy, MAX_FRAME, Mac, MacMap, MacTable, Member, Owner, Port, Switch, Time, Workspace,
    handle_event, pass,
};
use ringway_testing::frame::{between, station};
use ringway_testing::random::Random;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::*;
use crate::framing::PREFIX_BYTES;
use crate::sending::Sending;
use ringway_port::front_end::Connection;

/// The port of the sender, and the port of the receiver.
struct Both {
    switch: Switch,
    inputs: [StreamInput; 2],
    connections: [Arc<SharedConnection>; 2],
    work: Workspace,
}

fn copy(file: impl AsFd) -> OwnedFd {
    fcntl_dupfd_cloexec(file, 3).expect("a descriptor")
}

/// A switch whose ports go on with these sockets, which have this number. What is in `open` is not shut down yet: a process that is killed shuts
/// nothing down.
fn start(lasting: [Lasting; 2], sockets: &[OwnedFd; 2], number: u64, open: &mut Vec<Arc<Connection>>) -> Both {
    let connections = lasting.map(|lasting| Arc::new(SharedConnection::new(lasting).expect("descriptors")));
    for (connection, socket) in connections.iter().zip(sockets) {
        let socket = Arc::new(Connection::from(copy(socket)));
        connection.open(&socket, Some(number)).expect("it goes on");
        // Little room, so that long frames go in parts.
        set_socket_send_buffer_size(&*socket, 64 << 10).expect("an option");
        open.push(socket);
    }
    let members: Vec<Member> = (0..)
        .zip(&connections)
        .map(|(index, connection)| {
            let port = Port::new("port", Box::new(StreamOutput::new(Arc::clone(connection))), Box::new(NoBell));
            let macs = vec![Mac::new(station(index as u32))];
            Member { macs, ..Member::new(Owner::new(index, 0), Arc::new(port)) }
        })
        .collect();
    let (forward, table) = (Box::new(MacMap::new(&members)), Arc::new(MacTable::new(64, 64, [1, 2])));
    let switch = Switch::new("lan0", members, table, forward, FloodPolicy::default());
    let inputs = connections.each_ref().map(|connection| StreamInput::new(Arc::clone(connection)));
    Both { switch, inputs, connections, work: Workspace::new(4) }
}

#[test]
fn a_successor_goes_on_at_the_exact_byte_of_both_directions() {
    for seed in 1..6 {
        let mut random = Random::new(seed);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = || socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
        let ((near, far), (out, reader)) = (pair(), pair());
        let (sockets, mut open) = ([near, out], Vec::new());
        // Who drops memory that it has made seals it.
        let made = [(); 2].map(|()| Lasting::new(true).expect("memory"));
        let mut both = start(made.each_ref().map(Lasting::copy), &sockets, seed, &mut open);
        let (mut bytes, mut next, mut sent, mut lens) = (Vec::new(), 0, 0, Vec::new());
        let (mut came, mut count, mut last) = (Vec::new(), 0, None);
        for step in 0..1500 {
            if bytes.is_empty() {
                let len = match random.below(6) {
                    0 => 30_000 + random.below(35_000),
                    // The kernel takes 16 pages of a pipe at once.
                    1 => 65_533 + random.below(57),
                    _ => 14 + random.below(3000),
                };
                let frame = between(1, 0, len as usize, next);
                bytes = [&(frame.len() as u32).to_be_bytes()[..], &frame].concat();
                lens.push(frame.len());
                (next, sent) = (next + 1, 0);
            }
            match random.below(12) {
                0..=3 => {
                    let most = 1 + random.below(100_000) as usize;
                    let piece = &bytes[sent..][..most.min(bytes.len() - sent)];
                    sent += send(&far, piece, SendFlags::NOSIGNAL).unwrap_or(0);
                    if sent == bytes.len() {
                        (bytes, sent) = (Vec::new(), 0);
                    }
                }
                4 | 5 => {
                    let (from, work) = (both.switch.member(0).expect("a port"), &mut both.work);
                    pass(&both.switch, from, &mut both.inputs[0], work, &Time::at_second(1));
                }
                6 | 7 => _ = both.connections[1].send_on().expect("the reader is there"),
                8..=10 => {
                    let mut space = vec![0; 1 + random.below(40_000) as usize];
                    let got = recv(&reader, &mut space[..], RecvFlags::empty()).map_or(0, |(_, got)| got);
                    came.extend(&space[..got]);
                }
                _ => {
                    let lasting = both.connections.each_ref().map(|connection| connection.lasting.copy());
                    both = start(lasting, &sockets, seed, &mut open);
                    if random.below(2) == 0 {
                        let (from, work) = (both.switch.member(0).expect("a port"), &mut both.work);
                        handle_event(from, &mut both.inputs[0], work, &Time::at_second(1));
                    }
                }
            }
            while let Some((prefix, behind)) = came.split_first_chunk::<PREFIX_BYTES>() {
                let len = u32::from_be_bytes(*prefix) as usize;
                assert!((14..=MAX_FRAME).contains(&len), "seed {seed}, step {step}: a frame of {len} bytes");
                let Some(frame) = behind.get(..len) else { break };
                let number = (last.map_or(0, |last| last + 1)..next)
                    .find(|number| lens[*number as usize] == len && frame == between(1, 0, len, *number))
                    .unwrap_or_else(|| panic!("seed {seed}, step {step}: an altered frame after {last:?}"));
                (last, count) = (Some(number), count + 1);
                came.drain(..PREFIX_BYTES + len);
            }
        }
        assert!(count > 20, "seed {seed}: {count} of {next} frames came");
        // What was sent in part comes to its end.
        let mut is_done = false;
        while !is_done {
            is_done = !both.connections[1].send_on().expect("the reader is there");
            let mut space = vec![0; 1 << 20];
            while let Ok((_, got @ 1..)) = recv(&reader, &mut space[..], RecvFlags::empty()) {
                came.extend(&space[..got]);
            }
        }
        while let Some((prefix, behind)) = came.split_first_chunk::<PREFIX_BYTES>() {
            let len = u32::from_be_bytes(*prefix) as usize;
            assert!(len <= behind.len(), "seed {seed}: the last frame is whole");
            came.drain(..PREFIX_BYTES + len);
        }
        assert!(came.is_empty(), "seed {seed}");
    }
}

#[test]
fn how_far_an_unknown_predecessor_was_is_not_guessed() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, _far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    let lasting = Lasting::new(true).expect("memory");
    assert!(!lasting.begin(7, &near).expect("a new connection"));
    assert!(lasting.copy().begin(7, &near).expect("the same"));
    assert!(Lasting::new(true).expect("memory").begin(7, &near).is_err(), "other memory");
    assert!(lasting.begin(8, &near).is_err(), "another connection");
    let (next, _far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    assert!(!lasting.begin(8, &next).expect("a new connection"));
}

#[test]
fn the_count_of_received_bytes_goes_on_when_it_begins_anew() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    let lasting = Lasting::new(true).expect("memory");
    assert!(!lasting.begin(7, &near).expect("a new connection"));
    let mut place = lasting.place(7, near.as_fd()).expect("a place");
    let mut total = 0;
    for step in 0..40 {
        // As if as many bytes more had been received and taken as one call may bring before the count begins anew.
        let skipped = place.credit - lasting::CYCLE - 50;
        ringway_port::front_end::set_peek_offset(&near, place.credit - skipped).expect("an offset");
        (place.credit, place.origin, total) =
            (place.credit - skipped, place.origin + skipped as u64, total + skipped as u64);
        lasting.note_taken(place.taken());
        lasting.note_origin(place.origin);
        for _ in 0..3 {
            assert_eq!(send(&far, &[step; 40], SendFlags::NOSIGNAL), Ok(40));
            assert_eq!(recv(&near, &mut [0; 40][..], RecvFlags::empty()).map(|(_, count)| count), Ok(40));
            let left = lasting.place(7, near.as_fd()).expect("a place");
            assert_eq!((left.start, left.end), (place.start, place.end + 40), "before it is noted");
            place.received(40, near.as_fd());
            assert_eq!(lasting.place(7, near.as_fd()), Some(place));
            total += 40;
        }
        place.origin += 120;
        (place.start, place.end) = (0, 0);
        lasting.note_taken(place.taken());
        lasting.note_origin(place.origin);
        assert_eq!(lasting.place(7, near.as_fd()).expect("a place").taken(), total);
    }
}

#[test]
fn a_frame_that_the_pipe_has_no_room_for_is_dropped_by_its_name_and_the_others_go_out() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = || socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    let ((near, far), (out, reader)) = (pair(), pair());
    let lasting = [(); 2].map(|()| Lasting::new(true).expect("memory"));
    rustix::pipe::fcntl_setpipe_size(&lasting[1].pipe.write, 4096).expect("a smaller pipe");
    let mut open = Vec::new();
    let sockets = [near, out];
    let mut both = start(lasting.each_ref().map(Lasting::copy), &sockets, 7, &mut open);
    set_socket_send_buffer_size(&far, 4 << 20).expect("an option");
    let lens = [100, 40_000, 200, 65_000, 300];
    for (number, len) in (0..).zip(lens) {
        let frame = between(1, 0, len, number);
        let bytes = [&(len as u32).to_be_bytes()[..], &frame].concat();
        assert_eq!(send(&far, &bytes, SendFlags::NOSIGNAL), Ok(bytes.len()));
    }
    let mut came: Vec<u8> = Vec::new();
    ringway_testing::until("all are sent or dropped", || {
        let (from, work) = (both.switch.member(0).expect("a port"), &mut both.work);
        pass(&both.switch, from, &mut both.inputs[0], work, &Time::at_second(1));
        let mut space = vec![0; 1 << 20];
        let got = recv(&reader, &mut space[..], RecvFlags::empty()).map_or(0, |(_, got)| got);
        came.extend(&space[..got]);
        let counters = both.switch.member(1).expect("a port").port.counters().read();
        let dropped: Vec<_> = counters.drops().filter(|(_, count)| *count > 0).collect();
        dropped == [(DropReason::ReceiverTooSmall, 2)] && counters.out_frames == 3
    });
    let wanted = [(0, 100), (2, 200), (4, 300)]
        .map(|(number, len)| [&(len as u32).to_be_bytes()[..], &between(1, 0, len, number)].concat());
    assert_eq!(came, wanted.concat());
}

#[test]
fn what_is_no_frame_in_the_pipe_is_not_gone_on_with() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for (long, is_possible) in
        [(1, false), (PREFIX_BYTES, false), (PREFIX_BYTES + 14, true), (PREFIX_BYTES + MAX_FRAME + 1, false)]
    {
        let (near, _far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
        let lasting = Lasting::new(true).expect("memory");
        lasting.note_long(long);
        let mut sending = Sending::new(Arc::new(lasting));
        let begun = sending.begin(Arc::new(Connection::from(copy(&near))), true);
        assert_eq!(begun.is_ok(), is_possible, "{long}");
        if is_possible {
            assert_eq!(sending.send_on().ok(), Some(false));
        }
    }
}
