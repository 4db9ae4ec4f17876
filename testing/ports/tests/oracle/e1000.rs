//! An e1000 port, and a driver with arbitrary requests in its descriptors.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringway_abi::offload::{Gso, Offload};
use ringway_memory::Mapping;
use ringway_port_e1000::vfio_user::Observer;
use ringway_port_e1000::{self as e1000, E1000, Model, RECEIVE_BUFFER, Settings};
use ringway_port_tests::vhost_user::{PATIENCE, memfd};
use ringway_switch::{Input, Port};
use ringway_traffic::e1000::{VfioUser, register as r};

use crate::stations::{ReceivedFrame, Station};

/// Address of the guest's memory on the bus, and places of the rings and buffers in it.
const MEMORY: u64 = 0x10_0000;
const BYTES: usize = 2 << 20;
const RINGS: [usize; 2] = [0, 0x1_0000];
const BUFFERS: [usize; 2] = [0x4_0000, 0x10_0000];
const BUFFER: usize = 2048;
const SLOTS: usize = 256;

/// Bits of a transmit descriptor's second word.
const CONTEXT: u64 = 1 << 29;
const DATA: u64 = 1 << 29 | 1 << 20;
const LAST: u64 = 3 << 24;
const TSE: u64 = 1 << 26;
const IXSM: u64 = 1 << 40;
const TXSM: u64 = 1 << 41;
/// Bits of a received frame's status.
const DONE: u8 = 1;
const END: u8 = 2;

struct Silent;

impl Observer for Silent {
    fn connected(&self, _: bool) {}
    fn fault(&self, _: &'static str, _: String) {}
    fn refused(&self, _: &'static str, _: String) {}
}

struct Nic {
    client: VfioUser,
    memory: Mapping,
    /// The next descriptor of each ring.
    sent: usize,
    received: usize,
    input: Box<dyn Input>,
    _port: E1000,
}

/// Opens an e1000 port and a driver whose rings are started.
pub fn open(label: String, socket: &Path, index: u16) -> (Port, Box<dyn Station>) {
    let settings = Settings {
        label: label.clone(),
        socket: socket.to_owned(),
        access: ringway_port::SocketAccess::default(),
        model: Model::E1000,
        mac: [2, 0, 0, 0, 0, index as u8],
        link: true,
        mapped: false,
        csb: false,
        completion_delay: Duration::ZERO,
        receive_buffer: RECEIVE_BUFFER,
        memory: ringway_memory::Limits::PORT,
    };
    let (sides, port) = e1000::open(&settings, Arc::new(Silent)).expect("a port");
    let mut client = VfioUser::connect(socket, PATIENCE).expect("connected");
    let file = memfd(BYTES);
    client.map(MEMORY, file.as_fd(), 0, BYTES as u64).expect("the device maps the memory");
    // Enables memory space and bus mastering.
    client.write(7, 4, &[6, 0]).expect("a command");
    let memory = Mapping::shared(file.as_fd(), BYTES).expect("mapped");
    let mut nic = Nic { client, memory, sent: 0, received: 0, input: sides.input, _port: port };
    nic.set(r::CTRL, r::CTRL_SLU | r::CTRL_ASDE);
    for slot in 0..SLOTS {
        nic.put(RINGS[1] + 16 * slot, &[MEMORY + (BUFFERS[1] + slot * BUFFER) as u64, 0]);
    }
    let rings = [[r::TDBAL, r::TDBAH, r::TDLEN, r::TDH], [r::RDBAL, r::RDBAH, r::RDLEN, r::RDH]];
    for (registers, place) in rings.into_iter().zip(RINGS) {
        let values = [MEMORY as u32 + place as u32, 0, 16 * SLOTS as u32, 0];
        registers.into_iter().zip(values).for_each(|(register, value)| nic.set(register, value));
    }
    nic.set(r::TCTL, r::TCTL_EN | r::TCTL_PSP);
    nic.set(r::RCTL, r::RCTL_EN | r::RCTL_UPE | r::RCTL_MPE | r::RCTL_BAM | r::RCTL_LPE | r::RCTL_SECRC);
    nic.set(r::RDT, SLOTS as u32 - 1);
    (Port::new(label, sides.output, sides.bell), Box::new(nic))
}

impl Nic {
    fn set(&mut self, register: u32, value: u32) {
        self.client.write(0, register.into(), &value.to_le_bytes()).expect("a register");
    }

    fn put(&self, at: usize, words: &[u64; 2]) {
        let bytes = words.map(u64::to_le_bytes);
        assert!(self.memory.view(at, 16).expect("inside").write(bytes.as_flattened()));
    }

    fn describe(&mut self, words: [u64; 2]) {
        self.put(RINGS[0] + 16 * self.sent, &words);
        self.sent = (self.sent + 1) % SLOTS;
    }
}

impl Station for Nic {
    fn send(&mut self, frame: &[u8], offload: Option<&Offload>) {
        let mut flags = LAST | DATA | frame.len() as u64;
        if let Some(offload) = offload {
            let start = u64::from(offload.csum_start) & 0xff;
            let field = (start + u64::from(offload.csum_offset)) & 0xff;
            let tcp = offload.csum_offset == 16;
            let v4 = frame.get(12..14) == Some(&[8, 0]);
            let places = match offload.gso {
                Gso::None => start << 32 | field << 40 | start | field << 8,
                _ => 14 | 24 << 8 | start.saturating_sub(1) << 16 | start << 32 | field << 40,
            };
            let header = start + if tcp { 20 } else { 8 };
            let payload = (frame.len() as u64).saturating_sub(header);
            let sizes = payload | u64::from(tcp) << 24 | u64::from(v4) << 25 | (header & 0xff) << 40;
            let cut = if offload.gso == Gso::None { 0 } else { TSE };
            self.describe([places, sizes | u64::from(offload.gso_size) << 48 | CONTEXT | cut]);
            let ip = if offload.csum_offset % 4 == 1 { IXSM } else { 0 };
            flags |= cut | TXSM | ip;
        }
        let buffer = BUFFERS[0] + self.sent * BUFFER;
        assert!(self.memory.view(buffer, frame.len()).expect("inside").write(frame));
        self.describe([MEMORY + buffer as u64, flags]);
        let tail = self.sent as u32;
        self.set(r::TDT, tail);
    }

    fn receive(&mut self) -> Vec<ReceivedFrame> {
        let (mut frames, mut whole) = (Vec::new(), Vec::new());
        let first = self.received;
        loop {
            let at = RINGS[1] + 16 * self.received;
            let mut descriptor = [0; 16];
            assert!(self.memory.view(at, 16).expect("inside").read(&mut descriptor));
            if descriptor[12] & DONE == 0 {
                break;
            }
            let mut part = vec![0; u16::from_le_bytes([descriptor[8], descriptor[9]]).into()];
            let buffer = BUFFERS[1] + self.received * BUFFER;
            assert!(self.memory.view(buffer, part.len()).expect("inside").read(&mut part));
            whole.extend(part);
            if descriptor[12] & END != 0 {
                frames.push((std::mem::take(&mut whole), None));
            }
            self.put(at, &[MEMORY + buffer as u64, 0]);
            self.received = (self.received + 1) % SLOTS;
        }
        if self.received != first {
            let tail = (self.received + SLOTS - 1) % SLOTS;
            self.set(r::RDT, tail as u32);
        }
        frames
    }

    fn input(&mut self) -> &mut dyn Input {
        &mut *self.input
    }
}
