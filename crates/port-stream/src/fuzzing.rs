//! Two peers driven by a fuzzer: one writes anything in pieces of any size, and connects again when it lost its connection;
//! the other reads at any speed. The second receives frames of the first, complete and in order.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringway_keeper::Link;
use ringway_port::front_end::Connection;
use ringway_switch::{
    FloodPolicy, Input, MAX_FRAME, Mac, MacMap, MacTable, Member, Owner, Port, Switch, Time, Workspace, handle_event,
    pass,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::NoBell;
use super::connection::SharedConnection;
use super::framing::{MOST_BYTES, PREFIX_BYTES};
use super::input::StreamInput;
use super::lasting::Lasting;
use super::output::StreamOutput;

const SHORTEST: usize = 14;

/// Opens a connection on the shared one. Returns it and the peer's end.
fn connected(connection: &SharedConnection) -> (Arc<Connection>, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    let near = Arc::new(Connection::from(near));
    connection.open(&near, None).expect("an epoll descriptor");
    (near, far)
}

/// Extracts from the written bytes the frames that the switch accepts.
#[derive(Default)]
struct Oracle {
    bytes: Vec<u8>,
    frames: Vec<Vec<u8>>,
}

impl Oracle {
    fn written(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let mut rest = &self.bytes[..];
        while let Some((prefix, behind)) = rest.split_first_chunk::<PREFIX_BYTES>() {
            let length = u32::from_be_bytes(*prefix) as usize;
            let Some(frame) = behind.get(..length).filter(|_| length <= MOST_BYTES) else { break };
            if (SHORTEST..=MAX_FRAME).contains(&length) {
                self.frames.push(frame.to_vec());
            }
            rest = &behind[length..];
        }
        self.bytes = rest.to_vec();
    }
}

/// The receiving peer.
struct Reader {
    socket: OwnedFd,
    came: Vec<u8>,
    frames: usize,
    /// How many of the sent frames were received or skipped.
    seen: usize,
}

impl Reader {
    /// Reads up to `most` bytes. Returns true if there were any.
    fn read(&mut self, most: usize, oracle: &Oracle) -> bool {
        let mut buffer = vec![0; most];
        let Ok((_, count)) = recv(&self.socket, &mut buffer[..], RecvFlags::empty()) else { return false };
        self.came.extend(&buffer[..count]);
        while let Some((prefix, behind)) = self.came.split_first_chunk::<PREFIX_BYTES>() {
            let Some(frame) = behind.get(..u32::from_be_bytes(*prefix) as usize) else { break };
            let place = oracle.frames[self.seen..].iter().position(|sent| sent == frame);
            self.seen += 1 + place.expect("a frame that was sent, in its turn");
            self.frames += 1;
            self.came.drain(..PREFIX_BYTES + frame.len());
        }
        count > 0
    }
}

/// Runs the fuzzer's input.
pub fn streams(data: &[u8]) {
    let connections = [(); 2].map(|()| {
        let lasting = Lasting::open(&Link::default(), "stream/port.sock", "lan0:port").expect("memory");
        Arc::new(SharedConnection::new(lasting).expect("descriptors"))
    });
    let members: Vec<Member> = (0..)
        .zip(&connections)
        .map(|(index, connection)| {
            let port = Port::new("port", Box::new(StreamOutput::new(Arc::clone(connection))), Box::new(NoBell));
            let owner = Owner::new(index, 0);
            Member { macs: vec![Mac::new([2, 0, 0, 0, 0, index as u8])], ..Member::new(owner, Arc::new(port)) }
        })
        .collect();
    let out = Arc::clone(&members[1].port);
    let (forward, table) = (Box::new(MacMap::new(&members)), Arc::new(MacTable::new(64, 64, [1, 2])));
    let switch = Switch::new("lan0", members, table, forward, FloodPolicy::default());
    let mut input: Box<dyn Input> = Box::new(StreamInput::new(Arc::clone(&connections[0])));
    let mut back = StreamInput::new(Arc::clone(&connections[1]));
    let mut work = Workspace::new(16);
    let (mut near, mut far) = connected(&connections[0]);
    let (_reader_near, socket) = connected(&connections[1]);
    let mut reader = Reader { socket, came: Vec::new(), frames: 0, seen: 0 };
    let mut oracle = Oracle::default();
    let from = switch.member(0).expect("a port");
    let mut bytes = data.iter().copied();
    while let Some(what) = bytes.next() {
        let number = usize::from(bytes.next().unwrap_or_default());
        match what % 8 {
            // A frame to the reader, a part of one, or any bytes.
            kind @ 0..=3 => {
                let mut wanted: Vec<u8> = match kind {
                    0 | 1 => {
                        let len = SHORTEST + number * [1, 257][usize::from(kind)];
                        let mut frame = vec![what ^ number as u8; len];
                        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0]);
                        (len as u32).to_be_bytes().into_iter().chain(frame).collect()
                    }
                    2 => ((number as u32) << (what / 8)).to_be_bytes().to_vec(),
                    _ => bytes.by_ref().take(number).collect(),
                };
                wanted.truncate(wanted.len().saturating_sub(usize::from(what >= 240) * number));
                if let Ok(count) = send(&far, &wanted, SendFlags::NOSIGNAL) {
                    oracle.written(&wanted[..count]);
                }
            }
            4 | 5 => {
                pass(&switch, from, &mut *input, &mut work, &Time::at_second(1));
            }
            6 => {
                reader.read(1 + number * 16, &oracle);
            }
            // The work of the ports' threads.
            _ => {
                connections[1].send_on().expect("the reader is there");
                if connections[0].ended().is_some() || number == 255 {
                    connections[0].close(&near);
                    (near, far) = connected(&connections[0]);
                    oracle.bytes.clear();
                }
            }
        }
    }
    // All frames that count as delivered arrive.
    loop {
        let more = connections[1].send_on().expect("the reader is there");
        if !reader.read(1 << 16, &oracle) && !more {
            break;
        }
    }
    assert!(reader.came.is_empty(), "the last frame is whole");
    handle_event(switch.member(1).expect("a port"), &mut back, &mut work, &Time::at_second(1));
    assert_eq!(out.counters().read().out_frames, reader.frames as u64);
}
