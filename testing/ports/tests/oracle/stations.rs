//! Ports of all kinds, and their clients.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use ringway_abi::Shape;
use ringway_abi::offload::{Offload, PREFIX_BYTES};
use ringway_port_tests::support::Client;
use ringway_port_tests::vhost_user::{Vm, Watcher};
use ringway_port_vhost_user::{self as vhost_user, Role, VhostUser};
use ringway_switch::{Input, Port};
use vhost::vhost_user::Frontend;
use {ringway_port_process as process, ringway_port_stream as stream};

use crate::e1000;

/// A frame and its offload header.
pub type ReceivedFrame = (Vec<u8>, Option<Offload>);

/// A port's client.
pub trait Station {
    /// Queues a frame. A client without offloads sends the frame unchanged.
    fn send(&mut self, frame: &[u8], offload: Option<&Offload>);
    /// Returns the received frames.
    fn receive(&mut self) -> Vec<ReceivedFrame>;
    /// The port's side.
    fn input(&mut self) -> &mut dyn Input;
}

/// The kind of a port.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Process {
        offload: bool,
    },
    /// Feature bits of the offloads that the guest accepts.
    VhostUser {
        features: u64,
    },
    Stream,
    /// An 82540EM, whose driver asks for checksums and segmentation by context descriptors.
    E1000,
}

/// virtio's feature bits of the offloads that a guest may use as sender and as receiver.
pub const CSUM: u64 = 1;
pub const SENDS: u64 = CSUM | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 56;
pub const GUEST_CSUM: u64 = 2;
pub const TAKES: u64 = 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 54 | 1 << 55;

/// Opens a port of that kind with a client.
pub fn open(kind: Kind, index: u16, folder: &Path) -> (Port, Box<dyn Station>) {
    let (label, socket) = (format!("lan0:p{index}"), folder.join(format!("{index}.sock")));
    match kind {
        Kind::Process { offload } => {
            let shape = Shape {
                tx_rings: 1,
                rx_rings: 1,
                tx_slots: 128,
                rx_slots: 512,
                buffer_size: 2112,
                extra_buffers: 0,
                offload,
            };
            let (sides, ends) = process::open(&label, shape, u32::from(index)).expect("a port");
            let client = Client { ends, input: sides.input, tx_head: vec![0], rx_head: vec![0] };
            (Port::new(label, sides.output, sides.bell), Box::new(Program { client, offload }))
        }
        Kind::VhostUser { features } => {
            let settings = vhost_user::Settings {
                offload: true,
                ..ringway_port_tests::vhost_user::settings(&socket, Role::Server)
            };
            let (sides, port) = vhost_user::open(&settings, Arc::<Watcher>::default()).expect("a port");
            let mut vm = Vm::new(Frontend::connect(&socket, 4).expect("connected"));
            vm.negotiate(features);
            vm.start();
            vm.post(200);
            (Port::new(label, sides.output, sides.bell), Box::new(Guest { vm, input: sides.input, _port: port }))
        }
        Kind::E1000 => e1000::open(label, &socket, index),
        Kind::Stream => {
            let settings = stream::Settings {
                label: label.clone(),
                socket: socket.clone(),
                role: Role::Server,
                access: ringway_port::SocketAccess::default(),
            };
            let observer = Arc::new(Connected::default());
            let (sides, port) = stream::open(&settings, Arc::clone(&observer) as _).expect("a port");
            let socket = UnixStream::connect(&socket).expect("connected");
            socket.set_nonblocking(true).expect("an option");
            observer.wait();
            let peer = Peer { socket, came: Vec::new(), input: sides.input, _port: port };
            (Port::new(label, sides.output, sides.bell), Box::new(peer))
        }
    }
}

struct Program {
    client: Client,
    offload: bool,
}

impl Station for Program {
    fn send(&mut self, frame: &[u8], offload: Option<&Offload>) {
        match self.offload {
            true => self.client.send(&[&Offload::encode(offload)[..], &[0; 2], frame].concat()),
            false => self.client.send(frame),
        }
    }

    fn receive(&mut self) -> Vec<ReceivedFrame> {
        let split = |bytes: Vec<u8>| if self.offload { headed(&bytes) } else { (bytes, None) };
        self.client.receive(0).into_iter().map(split).collect()
    }

    fn input(&mut self) -> &mut dyn Input {
        &mut *self.client.input
    }
}

/// Splits a received buffer into the frame and its offload header.
fn headed(bytes: &[u8]) -> ReceivedFrame {
    let (header, frame) = bytes.split_at(PREFIX_BYTES);
    let header = header.first_chunk().expect("a header");
    (frame.to_vec(), Offload::decode(header).expect("a valid header"))
}

struct Guest {
    vm: Vm,
    input: Box<dyn Input>,
    _port: VhostUser,
}

impl Station for Guest {
    fn send(&mut self, frame: &[u8], offload: Option<&Offload>) {
        let mut header = [0; 12];
        header[..10].copy_from_slice(&Offload::encode(offload));
        self.vm.send_behind(&header, frame);
    }

    fn receive(&mut self) -> Vec<ReceivedFrame> {
        let frames = self.vm.receive_with_headers().iter().map(|bytes| headed(bytes)).collect();
        self.vm.post(200 - self.vm.posted());
        frames
    }

    fn input(&mut self) -> &mut dyn Input {
        &mut *self.input
    }
}

/// Records that a peer has connected.
#[derive(Default)]
struct Connected(parking_lot::Mutex<bool>, parking_lot::Condvar);

impl Connected {
    fn wait(&self) {
        let mut on = self.0.lock();
        let _ = self.1.wait_while_for(&mut on, |on| !*on, ringway_port_tests::vhost_user::PATIENCE);
        assert!(*on, "the port does not see its peer");
    }
}

impl stream::Observer for Connected {
    fn connected(&self, on: bool) {
        *self.0.lock() = on;
        self.1.notify_all();
    }

    fn fault(&self, _: &'static str, _: String) {}
}

struct Peer {
    socket: UnixStream,
    came: Vec<u8>,
    input: Box<dyn Input>,
    _port: stream::Stream,
}

impl Station for Peer {
    fn send(&mut self, frame: &[u8], _: Option<&Offload>) {
        let bytes = [&(frame.len() as u32).to_be_bytes(), frame].concat();
        self.socket.write_all(&bytes).expect("room in the socket");
    }

    fn receive(&mut self) -> Vec<ReceivedFrame> {
        let mut buffer = [0; 1 << 16];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.came.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let mut frames = Vec::new();
        while let Some((prefix, rest)) = self.came.split_first_chunk::<4>() {
            let Some(frame) = rest.get(..u32::from_be_bytes(*prefix) as usize) else { break };
            frames.push((frame.to_vec(), None));
            self.came.drain(..4 + frames[frames.len() - 1].0.len());
        }
        frames
    }

    fn input(&mut self) -> &mut dyn Input {
        &mut *self.input
    }
}
