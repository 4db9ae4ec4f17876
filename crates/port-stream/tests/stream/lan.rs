//! A switch of stream ports, whose peers are sockets of this process.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use ringway_port::Role;
use ringway_port_stream::{self as stream, Observer, Stream};
use ringway_switch::{
    CountersReading, DropReason, FloodPolicy, Input, Mac, MacMap, MacTable, Member, Owner, Passed, Port, Switch, Time,
    Workspace, pass,
};
use ringway_testing::PATIENCE;
use ringway_testing::frame::station;

pub use ringway_testing::frame::between as frame;

/// Returns the MAC address of station `n`, which is bound to port `n`.
pub fn mac(n: usize) -> Mac {
    Mac::new(station(n as u32))
}

/// Returns the frame, preceded by its length field.
pub fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes(), frame].concat()
}

/// An event that a port's thread reports.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Connected(bool),
    Fault(&'static str, String),
}

struct Listener(Mutex<Sender<Event>>);

impl Observer for Listener {
    fn connected(&self, on: bool) {
        let _ = self.0.lock().send(Event::Connected(on));
    }
    fn fault(&self, reason: &'static str, detail: String) {
        let _ = self.0.lock().send(Event::Fault(reason, detail));
    }
}

/// The other end of a port.
pub struct Peer {
    pub socket: UnixStream,
    came: Vec<u8>,
}

impl Peer {
    pub fn new(socket: UnixStream) -> Peer {
        socket.set_nonblocking(true).unwrap();
        Peer { socket, came: Vec::new() }
    }

    /// Writes all bytes. The port must read them.
    pub fn write(&mut self, bytes: &[u8]) {
        self.socket.set_nonblocking(false).unwrap();
        self.socket.write_all(bytes).unwrap();
        self.socket.set_nonblocking(true).unwrap();
    }

    pub fn send(&mut self, frame: &[u8]) {
        self.write(&framed(frame));
    }

    /// Reads up to `most` available bytes. Returns the complete frames.
    pub fn receive(&mut self, most: usize) -> Vec<Vec<u8>> {
        let mut left = most;
        let mut buffer = vec![0; 1 << 16];
        while left > 0 {
            let end = left.min(buffer.len());
            match self.socket.read(&mut buffer[..end]) {
                Ok(0) => break,
                Ok(count) => {
                    self.came.extend(&buffer[..count]);
                    left -= count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let mut frames = Vec::new();
        while let Some((prefix, rest)) = self.came.split_first_chunk::<4>() {
            let Some(frame) = rest.get(..u32::from_be_bytes(*prefix) as usize) else { break };
            frames.push(frame.to_vec());
            self.came.drain(..4 + frames.last().unwrap().len());
        }
        frames
    }

    /// Returns true if the port has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        match self.socket.read(&mut [0; 64]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// A port with an input.
pub struct End {
    pub input: Box<dyn Input>,
    pub said: Receiver<Event>,
    pub path: PathBuf,
    pub stream: Option<Stream>,
}

/// A switch of stream ports, with an optional further port at its end.
pub struct Lan {
    switch: Switch,
    pub ends: Vec<End>,
    work: Workspace,
    _dir: tempfile::TempDir,
}

impl Lan {
    pub fn new(roles: &[Role]) -> Lan {
        Lan::with(roles, None)
    }

    pub fn with(roles: &[Role], more: Option<Box<dyn Input>>) -> Lan {
        let dir = tempfile::tempdir().unwrap();
        let (mut ends, mut members) = (Vec::new(), Vec::new());
        for (index, &role) in roles.iter().enumerate() {
            let path = dir.path().join(format!("{index}.sock"));
            let (send, said) = channel();
            let settings = stream::Settings {
                label: format!("lan0:{index}"),
                socket: path.clone(),
                role,
                access: ringway_port::SocketAccess::default(),
            };
            let (sides, stream) = stream::open(&settings, Arc::new(Listener(Mutex::new(send)))).unwrap();
            members.push(member(index, Port::new(settings.label, sides.output, sides.bell)));
            ends.push(End { input: sides.input, said, path, stream: Some(stream) });
        }
        if let Some(input) = more {
            let path = dir.path().join("none");
            let settings = stream::Settings {
                label: "lan0:more".to_owned(),
                socket: path.clone(),
                role: Role::Client,
                access: ringway_port::SocketAccess::default(),
            };
            let (send, said) = channel();
            let (sides, stream) = stream::open(&settings, Arc::new(Listener(Mutex::new(send)))).unwrap();
            members.push(member(roles.len(), Port::new("lan0:more", sides.output, sides.bell)));
            ends.push(End { input, said, path, stream: Some(stream) });
        }
        let forward = Box::new(MacMap::new(&members));
        let table = Arc::new(MacTable::new(64, 64, [1, 2]));
        let switch = Switch::new("lan0", members, table, forward, FloodPolicy::default());
        Lan { switch, ends, work: Workspace::new(256), _dir: dir }
    }

    /// Connects to the listening port `index`.
    pub fn connect(&self, index: usize) -> Peer {
        let peer = Peer::new(UnixStream::connect(&self.ends[index].path).unwrap());
        self.expect(index, &Event::Connected(true));
        peer
    }

    /// Returns two ports with peers.
    pub fn pair() -> (Lan, [Peer; 2]) {
        let lan = Lan::new(&[Role::Server; 2]);
        let peers = [lan.connect(0), lan.connect(1)];
        (lan, peers)
    }

    /// Waits for the next event of the port's thread.
    pub fn expect(&self, index: usize, what: &Event) {
        assert_eq!(&self.next_said(index), what);
    }

    pub fn next_said(&self, index: usize) -> Event {
        self.ends[index].said.recv_timeout(PATIENCE).expect("an event of the port's thread")
    }

    pub fn path(&self, index: usize) -> &Path {
        &self.ends[index].path
    }

    pub fn pass(&mut self, from: usize) -> Passed {
        let member = self.switch.member(from as u16).expect("a port");
        pass(&self.switch, member, &mut *self.ends[from].input, &mut self.work, &Time::at_second(1))
    }

    /// Runs passes until no more frames come.
    pub fn pass_all(&mut self, from: usize) -> u64 {
        let mut frames = 0;
        loop {
            match self.pass(from).frames {
                0 => return frames,
                more => frames += more,
            }
        }
    }

    pub fn counters(&self, port: usize) -> CountersReading {
        self.switch.member(port as u16).expect("a port").port.counters().read()
    }

    pub fn dropped(&self, port: usize, reason: DropReason) -> u64 {
        self.counters(port).dropped(reason)
    }
}

fn member(index: usize, port: Port) -> Member {
    let owner = Owner::new(index as u16, 0);
    Member { macs: vec![mac(index)], ..Member::new(owner, Arc::new(port)) }
}
