//! vhost-user ports of one switch in this process, and virtual machines without a processor: each has memory, rings and
//! the rust-vmm project's front end.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use ringway_engine::{Attached, Engine, EngineSettings, Idle, Place, Source, Topology};
use ringway_memory::Mapping;
use ringway_port_vhost_user::{self as vhost_user, Observer, Role, Settings, VhostUser};
use ringway_runtime::Signal;
use ringway_switch::{
    FloodPolicy, Input, Mac, MacMap, MacTable, Member, Owner, Passed, Port, Switch, Time, Workspace, pass,
};
use ringway_testing::frame::station;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

pub use ringway_testing::PATIENCE;
pub use ringway_testing::frame::between as frame;

pub const VERSION_1: u64 = 1 << 32;
pub const LOG_ALL: u64 = 1 << 26;
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

pub const GUEST: u64 = 0x1_0000_0000;
pub const MEMORY: usize = 4 << 20;
pub const RING: u16 = 256;
const HEADER: usize = 12;
const BUFFER: usize = 2048;
const BUFFERS: usize = 1 << 20;

pub fn mac(n: u16) -> Mac {
    Mac::new(station(n))
}

pub fn memfd(bytes: usize) -> OwnedFd {
    ringway_testing::file::memfd(bytes as u64)
}

/// An event that a port reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Connected(bool),
    Fault(&'static str, String),
    Refused(&'static str, String),
}

#[derive(Default)]
pub struct Watcher {
    told: Mutex<Vec<(Instant, Event)>>,
    more: Condvar,
}

impl Watcher {
    fn note(&self, told: Event) {
        self.told.lock().push((Instant::now(), told));
        self.more.notify_all();
    }

    /// Waits for the `times`th event that `wanted` accepts. Returns the time of this event.
    #[track_caller]
    pub fn wait(&self, times: usize, wanted: impl Fn(&Event) -> bool) -> Instant {
        let deadline = Instant::now() + PATIENCE;
        let mut told = self.told.lock();
        loop {
            if let Some((when, _)) = told.iter().filter(|(_, told)| wanted(told)).nth(times - 1) {
                return *when;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the event did not come {times} times: {:?}", *told);
            self.more.wait_for(&mut told, left);
        }
    }

    /// Waits for the `times`th fault, which must have this name. Returns its text.
    #[track_caller]
    pub fn fault(&self, times: usize, name: &str) -> String {
        self.wait(times, |told| matches!(told, Event::Fault(..)));
        let told = self.told.lock();
        let faults =
            told.iter().filter_map(|(_, told)| if let Event::Fault(n, text) = told { Some((n, text)) } else { None });
        let (found, text) = faults.clone().nth(times - 1).expect("a fault");
        assert_eq!(*found, name, "{text}");
        text.clone()
    }

    pub fn all(&self) -> Vec<Event> {
        self.told.lock().iter().map(|(_, told)| told.clone()).collect()
    }
}

impl Observer for Watcher {
    fn connected(&self, on: bool) {
        self.note(Event::Connected(on));
    }

    fn fault(&self, reason: &'static str, detail: String) {
        self.note(Event::Fault(reason, detail));
    }

    fn refused(&self, reason: &'static str, detail: String) {
        self.note(Event::Refused(reason, detail));
    }
}

/// A map switch of vhost-user ports `0.sock`, `1.sock`, ...
pub struct Lan {
    pub switch: Switch,
    pub inputs: Vec<Box<dyn Input>>,
    signals: Vec<Signal>,
    work: Workspace,
    pub ports: Vec<Option<VhostUser>>,
    pub watchers: Vec<Arc<Watcher>>,
    pub directory: tempfile::TempDir,
}

impl Lan {
    pub fn new(roles: &[Role]) -> Lan {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut members, mut inputs, mut ports, mut watchers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut signals = Vec::new();
        for (index, &role) in roles.iter().enumerate() {
            let watcher = Arc::new(Watcher::default());
            let settings = settings(&directory.path().join(format!("{index}.sock")), role);
            let (sides, port) = vhost_user::open(&settings, Arc::clone(&watcher) as _).expect("a port");
            let member = Port::new(format!("p{index}"), sides.output, sides.bell);
            let owner = Owner::new(index as u16, 0);
            members.push(Member { macs: vec![mac(index as u16)], ..Member::new(owner, Arc::new(member)) });
            inputs.push(sides.input);
            signals.push(sides.signal);
            ports.push(Some(port));
            watchers.push(watcher);
        }
        let forward = Box::new(MacMap::new(&members));
        let table = Arc::new(MacTable::new(64, 64, [1, 2]));
        let switch = Switch::new("lan0", members, table, forward, FloodPolicy::default());
        Lan { switch, inputs, signals, work: Workspace::new(256), ports, watchers, directory }
    }

    pub fn socket(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("{index}.sock"))
    }

    /// Starts an engine with a poller that serves the ports until the engine is dropped.
    pub fn run(&mut self, idle: Idle) -> Engine {
        let settings = EngineSettings { idle, ..EngineSettings::default() };
        let engine = Engine::start(&settings).expect("an engine");
        let nothing = Switch::new(
            "",
            vec![],
            Arc::new(MacTable::new(64, 64, [1, 2])),
            Box::new(MacMap::new(&[])),
            FloodPolicy::default(),
        );
        let switch = Arc::new(std::mem::replace(&mut self.switch, nothing));
        let sources = self.inputs.drain(..).zip(self.signals.drain(..)).zip(0..);
        let ports = sources.map(|((input, signal), index)| Attached {
            place: Place::Port(Arc::clone(&switch), index),
            source: Arc::new(Source::new(input, signal)),
            poller: 0,
            weight: 1,
        });
        engine.publish(Topology { ports: ports.collect() });
        engine
    }

    pub fn pass(&mut self, from: usize) -> Passed {
        let member = self.switch.member(from as u16).expect("a port");
        pass(&self.switch, member, &mut *self.inputs[from], &mut self.work, &Time::at_second(1))
    }
}

pub fn settings(socket: &Path, role: Role) -> Settings {
    let (label, socket) = ("lan0:vm".into(), socket.to_owned());
    Settings {
        label,
        socket,
        role,
        access: ringway_port::SocketAccess::default(),
        queues: 2,
        mtu: None,
        config_space: true,
        mac: None,
        ring_reset: true,
        offload: false,
        record: None,
        memory: ringway_memory::Limits::PORT,
    }
}

/// A virtual machine: memory with a split ring for each of two queues, and the hypervisor's connection.
pub struct Vm {
    pub file: OwnedFd,
    pub memory: Mapping,
    pub front: Frontend,
    pub kick: EventFd,
    pub call: EventFd,
    pub error: EventFd,
    sent: u16,
    posted: u16,
    received: u16,
}

impl Vm {
    /// Connects, negotiates and starts the queues, as a hypervisor does.
    pub fn connect(socket: &Path) -> Vm {
        let mut vm = Vm::new(Frontend::connect(socket, 4).expect("connected"));
        vm.negotiate(0);
        vm.start();
        vm
    }

    pub fn from_stream(stream: UnixStream) -> Vm {
        let mut vm = Vm::new(Frontend::from_stream(stream, 4));
        vm.negotiate(0);
        vm.start();
        vm
    }

    pub fn new(front: Frontend) -> Vm {
        let file = memfd(MEMORY);
        let memory = Mapping::shared(file.as_fd(), MEMORY).expect("mapped");
        let event = || EventFd::new(libc::EFD_NONBLOCK).expect("an eventfd");
        Vm { file, memory, front, kick: event(), call: event(), error: event(), sent: 0, posted: 0, received: 0 }
    }

    /// Connects the machine to another back end. Its rings keep their contents.
    pub fn reconnect(self, front: Frontend) -> Vm {
        Vm { front, ..self }
    }

    pub fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST,
            memory_size: MEMORY as u64,
            userspace_addr: self.user(0),
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    fn user(&self, at: usize) -> u64 {
        self.memory.whole().as_ptr() as u64 + at as u64
    }

    pub fn negotiate(&mut self, more: u64) {
        let front = &mut self.front;
        front.set_owner().expect("owner");
        let offered = front.get_features().expect("features");
        let wanted = VERSION_1 | PROTOCOL_FEATURES | more;
        assert_eq!(offered & wanted, wanted);
        let protocol = front.get_protocol_features().expect("protocol features");
        front.set_protocol_features(protocol).expect("protocol features");
        front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert!(protocol.contains(VhostUserProtocolFeatures::REPLY_ACK | VhostUserProtocolFeatures::MQ));
        assert_eq!(front.get_queue_num().expect("queues"), 4);
        front.set_features(wanted).expect("features");
        let region = self.region();
        self.front.set_mem_table(&[region]).expect("memory");
    }

    pub fn config(&self, queue: usize) -> VringConfigData {
        let start = queue << 16;
        VringConfigData {
            queue_max_size: RING,
            queue_size: RING,
            flags: 0,
            desc_table_addr: self.user(start),
            used_ring_addr: self.user(start + 0x8000),
            avail_ring_addr: self.user(start + 0x4000),
            log_addr: None,
        }
    }

    /// Starts the first queue pair where its rings are.
    pub fn start(&mut self) {
        for queue in 0..2 {
            let base = self.get16((queue << 16) + 0x8002);
            let front = &mut self.front;
            front.set_vring_num(queue, RING).expect("size");
            front.set_vring_base(queue, base).expect("base");
            front.set_vring_call(queue, &self.call).expect("call");
            front.set_vring_err(queue, &self.error).expect("error");
            let config = self.config(queue);
            self.front.set_vring_addr(queue, &config).expect("addresses");
            self.front.set_vring_kick(queue, &self.kick).expect("kick");
            self.front.set_vring_enable(queue, true).expect("enabled");
        }
    }

    /// Resets the transmit ring as a guest does with VIRTIO_F_RING_RESET, and starts it anew with `size` descriptors. Returns the
    /// number of frames that the port had taken.
    pub fn reset_transmit(&mut self, size: u16) -> u16 {
        let taken = self.front.get_vring_base(1).expect("stopped") as u16;
        assert_eq!(self.get16(0x1_8002), taken, "frames were taken and not given back");
        self.put(0x1_0000, &[0; 0x1_0000]);
        self.sent = 0;
        let config = VringConfigData { queue_max_size: size, queue_size: size, ..self.config(1) };
        self.front.set_vring_num(1, size).expect("size");
        self.front.set_vring_base(1, 0).expect("base");
        self.front.set_vring_addr(1, &config).expect("addresses");
        self.front.set_vring_kick(1, &self.kick).expect("kick");
        self.front.set_vring_call(1, &self.call).expect("call");
        taken
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(self.memory.view(at, bytes.len()).expect("inside").write(bytes));
    }

    pub fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        assert!(self.memory.view(at, N).expect("inside").read(&mut bytes));
        bytes
    }

    pub fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.get(at))
    }

    fn describe(&self, queue: usize, slot: usize, len: usize, flags: u16) -> usize {
        let buffer = BUFFERS + (queue * usize::from(RING) + slot) * BUFFER;
        let rest = len as u64 | u64::from(flags) << 32;
        let words = [GUEST + buffer as u64, rest].map(u64::to_le_bytes);
        self.put((queue << 16) + 16 * slot, words.as_flattened());
        self.put((queue << 16) + 0x4004 + 2 * slot, &(slot as u16).to_le_bytes());
        buffer
    }

    /// Makes `count` receive buffers available.
    pub fn post(&mut self, count: u16) {
        for _ in 0..count {
            self.describe(0, usize::from(self.posted % RING), BUFFER, 2);
            self.posted = self.posted.wrapping_add(1);
        }
        self.put(0x4002, &self.posted.to_le_bytes());
    }

    pub fn send(&mut self, frame: &[u8]) {
        self.send_behind(&[0; HEADER], frame);
    }

    /// Sends a frame behind this header, which may be incomplete.
    pub fn send_behind(&mut self, header: &[u8], frame: &[u8]) {
        let buffer = self.describe(1, usize::from(self.sent % RING), header.len() + frame.len(), 0);
        self.put(buffer, header);
        self.put(buffer + header.len(), frame);
        self.sent = self.sent.wrapping_add(1);
        self.put(0x1_4002, &self.sent.to_le_bytes());
    }

    /// Kicks the transmit queue if the port asked for a kick (virtio 1.3, 2.7.7.1 and 2.7.10.1). `from` is the
    /// available index at the previous check.
    pub fn kick_from(&self, from: u16, event_idx: bool) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let event = self.get16(0x1_8004 + 8 * usize::from(RING));
        let wanted = match event_idx {
            true => self.sent.wrapping_sub(event).wrapping_sub(1) < self.sent.wrapping_sub(from),
            false => self.get16(0x1_8000) & 1 == 0,
        };
        if wanted {
            self.kick.write(1).expect("a kick");
        }
    }

    /// Returns the number of sent frames, and the number of used chains among them.
    pub fn sent_and_used(&self) -> (u16, u16) {
        (self.sent, self.get16(0x1_8002))
    }

    /// Sets the available index of a queue to any value.
    pub fn set_available(&self, queue: usize, index: u16) {
        self.put((queue << 16) + 0x4002, &index.to_le_bytes());
    }

    /// Asks for the features. When the answer comes, the port has handled all earlier messages.
    pub fn front_is_done(&self) {
        self.front.get_features().expect("an answer");
    }

    /// Waits for `count` frames.
    #[track_caller]
    pub fn receive_some(&mut self, count: usize) -> Vec<Vec<u8>> {
        let (mut frames, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        while frames.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} frames came", frames.len());
            frames.extend(self.receive());
        }
        frames
    }

    /// Returns the number of receive buffers that are available and not used yet.
    pub fn posted(&self) -> u16 {
        self.posted.wrapping_sub(self.received)
    }

    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        self.receive_with_headers().into_iter().map(|mut bytes| bytes.split_off(HEADER)).collect()
    }

    pub fn receive_with_headers(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while self.received != self.get16(0x8002) {
            let slot = usize::from(self.received % RING);
            let [id, len] = [0, 4].map(|at| u32::from_le_bytes(self.get(0x8004 + 8 * slot + at)) as usize);
            let mut bytes = vec![0; len];
            assert!(self.memory.view(BUFFERS + id * BUFFER, len).expect("inside").read(&mut bytes));
            frames.push(bytes);
            self.received = self.received.wrapping_add(1);
        }
        frames
    }
}

/// Returns the bytes of a message.
pub fn message(request: u32, body: &[u8]) -> Vec<u8> {
    let head = [request, 1, body.len() as u32].map(u32::to_ne_bytes);
    [head.as_flattened(), body].concat()
}

/// A hypervisor that sends arbitrary messages.
pub struct Raw(pub UnixStream);

impl Raw {
    pub fn connect(socket: &Path) -> Raw {
        Raw(UnixStream::connect(socket).expect("connected"))
    }

    /// Sends bytes, with descriptors attached to the first byte.
    pub fn say(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(beside.push(SendAncillaryMessage::ScmRights(files)));
        }
        Ok(sendmsg(&self.0, &[io::IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?)
    }

    /// Sends a message. Returns false if the connection has ended.
    pub fn tell(&self, request: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        let bytes = message(request, body);
        self.say(&bytes, files).is_ok_and(|sent| sent == bytes.len())
    }

    /// Waits until the other side has closed.
    pub fn ended(&self) -> bool {
        self.0.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut bytes = [0; 4096];
        loop {
            match io::Read::read(&mut &self.0, &mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }
}
