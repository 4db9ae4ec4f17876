//! vhost-user ports: a front end that sends arbitrary messages.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use ringway_memory::Mapping;
use ringway_scenes::{PATIENCE, frame, send, until};
use ringway_testing::file::memfd;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::attacker::EVIL;
use crate::eventfds::make_full;
use crate::scene::{Scene, StopOnDrop};

/// Descriptors of a ring.
const SIZE: u16 = 256;
/// Offsets of the parts of a ring from its beginning, and the distance between rings.
const AVAILABLE: usize = 0x1000;
const USED: usize = 0x2000;
const RING: usize = 0x4000;
/// Buffers, which all rings share.
const BUFFERS: usize = 0x8_0000;
const BYTES: usize = 0x10_0000;
/// Address of the memory in the front end.
const USER: u64 = 0x7f00_0000_0000;

const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
/// VIRTIO_F_VERSION_1 and VHOST_USER_F_PROTOCOL_FEATURES; VIRTIO_NET_F_MQ.
const FEATURES: u64 = 1 << 32 | 1 << 30;
const SEVERAL_PAIRS: u64 = 1 << 22;

pub use ringway_testing::file::new_eventfd;

/// Returns the configuration of a port `evil` with this number of queue pairs and the address `EVIL`.
pub fn config(pairs: usize) -> String {
    let port = "[port.evil]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nmac = [\"02:ee:00:00:00:01\"]\n";
    format!("[switch.lan0]\n{port}queues = {pairs}\n")
}

/// A front end with split rings.
pub struct FrontEnd {
    socket: UnixStream,
    memory: Mapping,
    /// Indexed by queue.
    pub calls: Vec<OwnedFd>,
    kicks: Vec<OwnedFd>,
}

impl FrontEnd {
    /// Starts all queues. Receive queues have their buffers.
    pub fn attach(scene: &Scene, pairs: usize) -> FrontEnd {
        let socket = UnixStream::connect(scene.daemon.runtime_dir().join("evil.sock")).expect("a port listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let file = memfd(BYTES as u64);
        let memory = Mapping::shared(file.as_fd(), BYTES).expect("memory");
        let mut front = FrontEnd { socket, memory, calls: Vec::new(), kicks: Vec::new() };
        front.tell(SET_OWNER, &[], &[]);
        // The port takes files from the moment on that it serves the connection.
        assert!(front.is_served(), "the port is there");
        front.tell(SET_PROTOCOL_FEATURES, &1u64.to_ne_bytes(), &[]);
        let features = if pairs > 1 { FEATURES | SEVERAL_PAIRS } else { FEATURES };
        front.tell(SET_FEATURES, &features.to_ne_bytes(), &[]);
        let region = [1, 0, BYTES as u64, USER, 0].map(u64::to_ne_bytes).concat();
        front.tell(SET_MEM_TABLE, &region, &[file.as_fd()]);
        for queue in 0..2 * pairs {
            front.start(queue);
        }
        assert!(front.is_served(), "the port stays");
        front
    }

    fn start(&mut self, queue: usize) {
        let (number, base) = (queue as u32, RING * queue);
        // Buffers are writable in a receive ring and readable in a transmit ring.
        let flags = if queue.is_multiple_of(2) { 2u64 } else { 0 };
        for at in 0..usize::from(SIZE) {
            let buffer = (BUFFERS + at % 64 * 2048) as u64;
            self.put(base + 16 * at, &[buffer, 2048 | flags << 32].map(u64::to_le_bytes).concat());
            self.put(base + AVAILABLE + 4 + 2 * at, &(at as u16).to_le_bytes());
        }
        if queue.is_multiple_of(2) {
            self.index(base + AVAILABLE).store(SIZE / 2, Ordering::SeqCst);
        }
        let state = |value: u32| [number, value].map(u32::to_ne_bytes).concat();
        self.tell(SET_VRING_NUM, &state(SIZE.into()), &[]);
        self.tell(SET_VRING_BASE, &state(0), &[]);
        let parts = [base, base + USED, base + AVAILABLE].map(|at| USER + at as u64);
        let address = [parts.map(u64::to_ne_bytes).concat(), vec![0; 8]].concat();
        self.tell(SET_VRING_ADDR, &[state(0), address].concat(), &[]);
        let (kick, call) = (new_eventfd(), new_eventfd());
        let index = u64::from(number).to_ne_bytes();
        self.tell(SET_VRING_CALL, &index, &[call.as_fd()]);
        self.tell(SET_VRING_KICK, &index, &[kick.as_fd()]);
        self.tell(SET_VRING_ENABLE, &state(1), &[]);
        self.kicks.push(kick);
        self.calls.push(call);
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        assert!(self.memory.view(at, bytes.len()).expect("inside").write(bytes));
    }

    /// Returns the index of the available or used ring at this offset.
    fn index(&self, ring: usize) -> &AtomicU16 {
        let view = self.memory.view(ring + 2, 2).expect("inside");
        &view.words16().expect("aligned")[0]
    }

    /// Returns the used buffers of receive rings, and fills all transmit rings with frames.
    pub fn go_on(&self) {
        for queue in 0..self.calls.len() {
            let ring = RING * queue;
            let used = self.index(ring + USED).load(Ordering::SeqCst);
            self.index(ring + AVAILABLE).store(used.wrapping_add(SIZE / 2), Ordering::SeqCst);
            if !queue.is_multiple_of(2) {
                // A full counter wakes the switch as well as a write does.
                let _ = rustix::io::write(&self.kicks[queue], &1u64.to_ne_bytes());
            }
        }
    }

    /// Makes a descriptor beyond the table's end available.
    pub fn break_ring(&self, queue: usize) {
        let ring = RING * queue;
        let available = self.index(ring + AVAILABLE).load(Ordering::SeqCst);
        self.put(ring + AVAILABLE + 4 + 2 * usize::from(available % SIZE), &u16::MAX.to_le_bytes());
        self.index(ring + AVAILABLE).store(available.wrapping_add(1), Ordering::SeqCst);
        let _ = rustix::io::write(&self.kicks[queue], &1u64.to_ne_bytes());
    }

    pub fn set_error(&self, queue: usize, error: BorrowedFd<'_>) {
        self.tell(SET_VRING_ERR, &(queue as u64).to_ne_bytes(), &[error]);
    }

    pub fn tell(&self, request: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        let header = [request, 1, body.len() as u32].map(u32::to_ne_bytes).concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(files.is_empty() || beside.push(SendAncillaryMessage::ScmRights(files)));
        let message = [IoSlice::new(&header), IoSlice::new(body)];
        sendmsg(&self.socket, &message, &mut beside, SendFlags::NOSIGNAL).expect("the port listens");
    }

    /// Returns true if the port has accepted all messages.
    pub fn is_served(&self) -> bool {
        self.tell(GET_QUEUE_NUM, &[], &[]);
        (&self.socket).read_exact(&mut [0; 20]).is_ok()
    }

    /// Waits until the port has ended the connection.
    pub fn wait_for_end(&self) {
        while matches!((&self.socket).read(&mut [0; 64]), Ok(1..)) {}
    }
}

#[test]
fn eight_pairs_of_blocking_full_call_descriptors_hold_up_nobody() {
    let scene = Scene::start_with(&config(8));
    let mut peer = scene.attach("peer");
    let front = FrontEnd::attach(&scene, 8);
    front.calls.iter().for_each(make_full);
    let calls = || scene.daemon.port("evil")["calls"].as_u64().expect("a number");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                front.go_on();
            }
        });
        let (before, mut number) = (calls(), 0u8);
        until("the front end is called many times", || {
            for _ in 0..64 {
                number = number.wrapping_add(1);
                // The frames are of several flows, so that they come to several queues.
                send(&mut peer.port, &frame(EVIL, [2, 0xee, 0, 0, 1, number % 16], number));
            }
            calls() >= before + 2000
        });
        // The other ports do not wait meanwhile, and the attacker's port stays: it breaks no rule.
        scene.bystanders.go_on(5000);
    });
    assert!(front.is_served());
    assert_eq!(scene.daemon.port("evil")["state"], "up");
    assert_eq!(scene.faults("evil", "call_blocked"), 0);
    drop((front, peer));
    scene.daemon.until_state("evil", "waiting");
    scene.end();
}

#[test]
fn an_error_descriptor_that_is_made_blocking_and_full_again_and_again_does_not_hold_its_port() {
    let scene = Scene::start_with(&config(1));
    let error = new_eventfd();
    rustix::io::write(&error, &(u64::MAX - 1).to_ne_bytes()).expect("the value fits into the counter");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fcntl_setfl(&error, OFlags::empty()).expect("flags");
            }
        });
        for round in 0..20 {
            let front = FrontEnd::attach(&scene, 1);
            front.set_error(1, error.as_fd());
            assert!(front.is_served(), "in round {round}");
            front.break_ring(1);
            front.wait_for_end();
        }
        scene.daemon.until_state("evil", "waiting");
    });
    scene.end();
}
