//! A client of the netmap dialogue that does what the protocol says, or something else.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_abi::attach::{REPLY_BYTES, REPLY_FDS};
use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_CLIENT, RX_SWITCH, TX_CLIENT, TX_SWITCH};
use ringway_abi::layout::netmap_ring;
use ringway_abi::netmap::{Family, Granted, Register, Reply, Request, Rings, Wish};
use ringway_abi::slot::{NS_MOREFRAG, SLOT_BYTES};
use ringway_abi::{Layout, Slot};
use ringway_memory::SharedMemory;
use ringway_scenes::{Daemon, PATIENCE, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recvmsg, send, socket_with,
};

/// The family of most of a test's connections.
pub const OURS: Family = Family([1; 16]);
/// Another family.
pub const THEIRS: Family = Family([2; 16]);

/// A connection.
pub struct Netmap {
    pub socket: OwnedFd,
}

/// What a registration was granted.
pub struct Bound {
    pub granted: Granted,
    pub layout: Layout,
    pub memory: SharedMemory,
    pub kick: OwnedFd,
    pub call: OwnedFd,
}

/// Returns a connection without any message.
pub fn connected(daemon: &Daemon) -> Netmap {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(daemon.socket("attach.sock")).unwrap()).unwrap();
    Netmap { socket }
}

/// Returns an open connection of a family.
pub fn open(daemon: &Daemon, family: Family) -> Netmap {
    let netmap = connected(daemon);
    assert_eq!(netmap.ask(&Request::Open(family)), Reply::Done);
    netmap
}

/// Returns the request for all rings of a port, with small rings if it is new.
pub fn all_of(name: &str) -> Register {
    Register {
        name: name.parse().unwrap(),
        tx: Rings::All,
        rx: Rings::All,
        exclusive: false,
        wish: Wish { tx_slots: 64, rx_slots: 64, ..Wish::default() },
        extra_buffers: 0,
        region: 0,
        monitor: Default::default(),
        polling: Default::default(),
    }
}

impl Netmap {
    pub fn say(&self, message: &[u8]) {
        // The switch may have ended the connection.
        let _ = send(&self.socket, message, SendFlags::NOSIGNAL);
    }

    /// Returns the next message and the descriptors that come with it, or none at the end of the connection.
    pub fn next(&self) -> Option<(Reply, Vec<OwnedFd>)> {
        let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let mut wait = [PollFd::new(&self.socket, PollFlags::IN)];
        assert_eq!(poll(&mut wait, Some(&timeout)), Ok(1), "the switch answers or closes");
        let mut message = [0; REPLY_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REPLY_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [std::io::IoSliceMut::new(&mut message)];
        let received = recvmsg(&self.socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        let len = received.map_or(0, |received| received.bytes);
        let mut descriptors = Vec::new();
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                descriptors.extend(rights);
            }
        }
        (len > 0).then(|| (Reply::decode(&message[..len]).unwrap(), descriptors))
    }

    pub fn ask(&self, request: &Request) -> Reply {
        self.say(&request.encode());
        self.next().expect("an answer").0
    }

    /// Returns the number and the text of a refusal.
    pub fn refused(&self, request: &Request) -> (Errno, String) {
        match self.ask(request) {
            Reply::Refused { errno, text } => (Errno::from_raw_os_error(errno.into()), text),
            other => panic!("{other:?} is no refusal"),
        }
    }

    /// Registers, or asks again for the registration.
    pub fn granted(&self, request: &Request) -> Bound {
        self.say(&request.encode());
        let (reply, descriptors) = self.next().expect("an answer");
        let Reply::Granted(granted) = reply else { panic!("{reply:?} grants nothing") };
        let [memory, kick, call] = <[OwnedFd; REPLY_FDS]>::try_from(descriptors).expect("three descriptors");
        let memory = SharedMemory::open(memory, granted.numbers.region_bytes as usize).unwrap();
        Bound { layout: granted.layout().unwrap(), granted, memory, kick, call }
    }

    pub fn register(&self, register: Register) -> Bound {
        self.granted(&Request::Register(register))
    }

    /// Waits for the end of the connection. Returns the last message.
    pub fn end(&self) -> Option<Reply> {
        let mut last = None;
        while let Some((reply, _)) = self.next() {
            last = Some(reply);
        }
        last
    }
}

impl Bound {
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.memory.mapping().view(at, 8).unwrap().words64().unwrap()[0]
    }

    pub fn doorbell(&self, pair: u16) -> &[AtomicU32] {
        self.memory.mapping().view(self.layout.doorbell(pair), PAIR_BYTES).unwrap().words32().unwrap()
    }

    pub fn tx_slot(&self, ring: u16, slot: u32) -> &AtomicU64 {
        self.word(self.layout.tx_ring(ring) + netmap_ring::SLOTS + slot as usize * SLOT_BYTES)
    }

    pub fn rx_slot(&self, ring: u16, slot: u32) -> &AtomicU64 {
        self.word(self.layout.rx_ring(ring) + netmap_ring::SLOTS + slot as usize * SLOT_BYTES)
    }

    /// Publishes the slots before `head` of a transmit ring, and wakes the switch.
    pub fn publish(&self, ring: u16, head: u32) {
        self.doorbell(ring)[TX_CLIENT + INDEX].store(head, Ordering::SeqCst);
        self.kick();
    }

    pub fn kick(&self) {
        rustix::io::write(&self.kick, &1u64.to_ne_bytes()).unwrap();
    }

    /// Writes a frame into the buffer of the next free slot of a transmit ring, and publishes it.
    pub fn send(&self, ring: u16, frame: &[u8]) {
        let head = self.doorbell(ring)[TX_CLIENT + INDEX].load(Ordering::SeqCst);
        let slot = self.tx_slot(ring, head);
        let buffer = Slot::from_word(slot.load(Ordering::SeqCst)).buffer;
        let place = self.memory.mapping().view(self.layout.buffer(buffer), frame.len()).unwrap();
        assert!(place.write(frame));
        slot.store(Slot { buffer, len: frame.len() as u16, flags: 0 }.to_word(), Ordering::SeqCst);
        self.publish(ring, (head + 1) % self.layout.shape.tx_slots);
    }

    /// Sends a frame in as many slots as it needs.
    pub fn send_long(&self, ring: u16, frame: &[u8]) {
        let mut head = self.doorbell(ring)[TX_CLIENT + INDEX].load(Ordering::SeqCst);
        let pieces = frame.chunks(self.layout.shape.buffer_size as usize);
        let count = pieces.len();
        for (number, piece) in (1..).zip(pieces) {
            let slot = self.tx_slot(ring, head);
            let buffer = Slot::from_word(slot.load(Ordering::SeqCst)).buffer;
            assert!(self.memory.mapping().view(self.layout.buffer(buffer), piece.len()).unwrap().write(piece));
            let flags = if number < count { NS_MOREFRAG } else { 0 };
            slot.store(Slot { buffer, len: piece.len() as u16, flags }.to_word(), Ordering::SeqCst);
            head = (head + 1) % self.layout.shape.tx_slots;
        }
        self.publish(ring, head);
    }

    /// Receives a frame from as many slots as it has.
    pub fn receive_long(&self, ring: u16) -> Vec<u8> {
        let mut frame = Vec::new();
        loop {
            let slot = self.wait(ring).load(Ordering::SeqCst);
            frame.extend(self.bytes(slot));
            self.next(ring);
            if !Slot::from_word(slot).more() {
                return frame;
            }
        }
    }

    /// Waits until the switch has taken all frames of a transmit ring.
    pub fn flushed(&self, ring: u16) {
        until("the switch has taken all frames", || {
            let head = self.doorbell(ring)[TX_CLIENT + INDEX].load(Ordering::SeqCst);
            let tail = self.doorbell(ring)[TX_SWITCH + INDEX].load(Ordering::SeqCst);
            (tail + 1) % self.layout.shape.tx_slots == head
        });
    }

    /// Waits for a frame in a receive ring. Returns the word of its slot, which stays with the client.
    pub fn wait(&self, ring: u16) -> &AtomicU64 {
        let head = self.doorbell(ring)[RX_CLIENT + INDEX].load(Ordering::SeqCst);
        until("a frame arrives", || self.doorbell(ring)[RX_SWITCH + INDEX].load(Ordering::SeqCst) != head);
        self.rx_slot(ring, head)
    }

    /// Returns the next slot of a receive ring to the switch.
    pub fn next(&self, ring: u16) {
        let head = self.doorbell(ring)[RX_CLIENT + INDEX].load(Ordering::SeqCst);
        self.doorbell(ring)[RX_CLIENT + INDEX].store((head + 1) % self.layout.shape.rx_slots, Ordering::SeqCst);
    }

    /// Returns the bytes of a slot's frame.
    pub fn bytes(&self, slot: u64) -> Vec<u8> {
        let slot = Slot::from_word(slot);
        let mut bytes = vec![0; slot.len.into()];
        assert!(self.memory.mapping().view(self.layout.buffer(slot.buffer), bytes.len()).unwrap().read(&mut bytes));
        bytes
    }

    /// Waits for a frame, and gives its slot back.
    pub fn receive(&self, ring: u16) -> Vec<u8> {
        let bytes = self.bytes(self.wait(ring).load(Ordering::SeqCst));
        self.next(ring);
        bytes
    }
}
