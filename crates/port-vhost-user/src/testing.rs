//! A front end for tests, without a socket: a session over a real device, and a guest with split rings in a memfd.

// Tests and the fuzzer each use a part of this module.
#![allow(dead_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use ringway_keeper::Link;
use ringway_memory::Mapping;
use ringway_switch::{Armed, BatchStorage, Input, WakeOn};

use super::device::Device;
use super::end::SessionEnd;
use super::features::PROTOCOL_FEATURES;
use super::input::VhostInput;
use super::message::{Header, RegionAt, Request, VringAddress, VringFile, VringState};
use super::reply::Reply;
use super::session::{Session, protocol};
use super::{Role, Settings};
use crate::virtqueue::{F_RING_PACKED, F_VERSION_1};
use ringway_port::front_end::ClientFd;
#[cfg(test)]
pub use ringway_port::front_end::testing::count;
pub use ringway_port::front_end::testing::{memfd, new_eventfd};

pub const GUEST: u64 = 0x4000_0000;
pub const USER: u64 = 0x7f00_0000_0000;
pub const MEMORY: u64 = 4 << 20;
/// The address of the guest.
pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 9];
pub const RING: u16 = 256;
const BUFFERS: usize = 2 << 20;
const BUFFER: usize = 2048;
/// Bytes of the frames that [`Guest::send`] makes.
pub const FRAME: u32 = 60;

pub fn settings() -> Settings {
    let (label, socket) = ("lan0:vm".into(), PathBuf::from("vm.sock"));
    Settings {
        label,
        socket,
        role: Role::Server,
        access: ringway_port::SocketAccess::default(),
        queues: 2,
        mtu: Some(1500),
        config_space: true,
        mac: Some(MAC),
        ring_reset: true,
        offload: true,
        record: None,
        memory: ringway_memory::Limits::PORT,
    }
}

/// Guest memory with a split ring of [`RING`] descriptors for each queue, and buffers.
pub struct Guest {
    pub file: OwnedFd,
    pub mapping: Mapping,
}

impl Guest {
    pub fn new() -> Guest {
        let file = memfd(MEMORY);
        let mapping = Mapping::shared(file.as_fd(), MEMORY as usize).expect("mapped");
        Guest { file, mapping }
    }

    /// The same memory, mapped once more.
    pub fn again(&self) -> Guest {
        let file = self.file.try_clone().expect("a descriptor");
        let mapping = Mapping::shared(file.as_fd(), MEMORY as usize).expect("mapped");
        Guest { file, mapping }
    }

    pub fn region(&self) -> (RegionAt, ClientFd) {
        let at = RegionAt { guest: GUEST, size: MEMORY, user: USER, offset: 0 };
        (at, self.file.try_clone().expect("a descriptor").into())
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        assert!(self.mapping.view(at, bytes.len()).expect("inside").write(bytes));
    }

    pub fn get16(&self, at: usize) -> u16 {
        let mut bytes = [0; 2];
        assert!(self.mapping.view(at, 2).expect("inside").read(&mut bytes));
        u16::from_le_bytes(bytes)
    }

    /// Makes the frames with numbers `from` to `to` available in a queue.
    pub fn send(&self, queue: u16, from: u16, to: u16) {
        let ring = usize::from(queue) << 16;
        for n in from..to {
            let (slot, buffer) = (usize::from(n % RING), BUFFERS + usize::from(n % RING) * BUFFER);
            let words = [GUEST + buffer as u64, u64::from(12 + FRAME)].map(u64::to_le_bytes);
            self.put(ring + 16 * slot, words.as_flattened());
            self.put(ring + 0x4004 + 2 * slot, &(slot as u16).to_le_bytes());
        }
        self.put(ring + 0x4002, &to.to_le_bytes());
    }

    /// Writes at any offset, as far as there is memory.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let _ = self.mapping.view(at, bytes.len()).is_some_and(|view| view.write(bytes));
    }

    /// Returns the queue's used index.
    pub fn used(&self, queue: u16) -> u16 {
        self.get16((usize::from(queue) << 16) + 0x8002)
    }
}

/// Returns the addresses of a queue of a [`Guest`].
pub fn address(queue: u16) -> VringAddress {
    let start = USER + (u64::from(queue) << 16);
    let (descriptors, available, used) = (start, start + 0x4000, start + 0x8000);
    let log = GUEST + (u64::from(queue) << 16) + 0x8000;
    VringAddress { queue: queue.into(), flags: 0, descriptors, used, available, log }
}

pub fn state(queue: u16, number: u32) -> VringState {
    VringState { queue: queue.into(), number }
}

pub fn file(queue: u16, file: &OwnedFd) -> VringFile {
    VringFile { queue: queue.into(), file: Some(file.try_clone().expect("a descriptor").into()) }
}

pub struct Front {
    pub device: Arc<Device>,
    pub session: Session,
    pub guest: Guest,
    input: VhostInput,
}

impl Front {
    pub fn new() -> Front {
        let device = Arc::new(Device::new(&settings(), &Link::default()).expect("a device"));
        Front::of(device, Guest::new())
    }

    /// A new connection to a device.
    pub fn of(device: Arc<Device>, guest: Guest) -> Front {
        let input = VhostInput::new(Arc::clone(&device)).expect("an input");
        Front { session: Session::new(Arc::clone(&device)), device, guest, input }
    }

    /// A connection that has negotiated features and shared its memory.
    pub fn ready() -> Front {
        let mut front = Front::new();
        front.negotiate(0);
        front
    }

    pub fn negotiate(&mut self, more: u64) {
        self.does(Request::SetProtocolFeatures(protocol::ALWAYS | protocol::CONFIG));
        self.does(Request::SetFeatures(F_VERSION_1 | PROTOCOL_FEATURES | more));
        self.does(Request::SetMemTable(vec![self.guest.region()]));
    }

    /// Starts a queue as QEMU does, and enables it.
    pub fn start(&mut self, queue: u16) {
        self.start_at(queue, 0);
    }

    /// Starts a queue at `base` as QEMU does, and enables it.
    pub fn start_at(&mut self, queue: u16, base: u32) {
        self.does(Request::SetVringNum(state(queue, RING.into())));
        self.does(Request::SetVringBase(state(queue, base)));
        self.does(Request::SetVringAddr(address(queue)));
        self.does(Request::SetVringKick(file(queue, &new_eventfd())));
        self.does(Request::SetVringEnable(state(queue, 1)));
    }

    pub fn ask(&mut self, request: Request) -> Result<Option<Reply>, SessionEnd> {
        self.session.handle(Header { request: 0, size: 0, need_reply: false }, request)
    }

    /// Ends the connection and the device. Returns the guest.
    pub fn end(self) -> Guest {
        self.guest
    }

    /// The next connection of the same guest to the same device.
    pub fn again(self) -> Front {
        let Front { device, guest, session, input } = self;
        drop(session);
        device.reset();
        Front { session: Session::new(Arc::clone(&device)), device, guest, input }
    }

    /// Negotiates, and starts the number of queues that `what` selects: none in half of the cases.
    pub fn start_if(&mut self, what: u8) {
        let packed = if what & 0x10 != 0 { F_RING_PACKED } else { 0 };
        match what % 4 {
            0 => {}
            1 => self.negotiate(packed),
            queues => {
                self.negotiate(packed);
                (0..queues.into()).for_each(|queue| self.start(queue));
            }
        }
    }

    /// Sends a request that must succeed without an answer.
    #[track_caller]
    pub fn does(&mut self, request: Request) {
        let what = format!("{request:?}");
        assert!(matches!(self.ask(request), Ok(None)), "{what}");
    }

    /// Sends a request with REPLY_ACK. Returns the number in the answer.
    #[track_caller]
    pub fn asks(&mut self, request: Request) -> u64 {
        let what = format!("{request:?}");
        match self.session.handle(Header { request: 0, size: 0, need_reply: true }, request) {
            Ok(Some(Reply::Number(number))) => number,
            other => panic!("{what}: {other:?}"),
        }
    }

    /// Sends a request that must end the connection. Returns the name of the reason.
    #[track_caller]
    pub fn ends(&mut self, request: Request) -> &'static str {
        let what = format!("{request:?}");
        let end = self.ask(request).expect_err(&what);
        assert!(end.to_string().len() > 10, "{what}: {end}");
        end.name()
    }

    /// Stops a queue. Returns the position at which it can continue.
    #[track_caller]
    pub fn base(&mut self, queue: u16) -> u32 {
        match self.ask(Request::GetVringBase(state(queue, 0))) {
            Ok(Some(Reply::State(state))) if state.queue == u32::from(queue) => state.number,
            other => panic!("{other:?}"),
        }
    }

    /// Returns true if a poller that is about to sleep finds that it has to poll the guest's rings.
    pub fn needs_polling(&mut self) -> bool {
        let armed = self.input.arm(WakeOn::Frames);
        self.input.disarm();
        armed == Armed::Silent
    }

    /// Collects the frames that the guest has sent, and releases them. Returns their number.
    pub fn poll(&mut self) -> usize {
        let mut batch = BatchStorage::new(256).into_batch();
        self.input.collect(&mut batch).expect("no fault of the port");
        let frames = batch.len();
        drop(batch);
        self.input.release();
        frames
    }

    /// Returns true if a poller that finds no frames rings the bell all the same.
    pub fn takes_event(&mut self) -> bool {
        self.input.take_event()
    }

    /// Collects the frames that the guest has sent, and dies without a release. Returns their number.
    pub fn poll_and_die(&mut self) -> usize {
        let mut batch = BatchStorage::new(256).into_batch();
        self.input.collect(&mut batch).expect("no fault of the port");
        batch.len()
    }
}
