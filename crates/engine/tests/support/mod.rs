//! Stations in memory on a running engine: each sends from a queue, receives into a queue, and sleeps on an eventfd.

#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]

pub mod client;
pub mod kept;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use ringway_engine::{Attached, Client, Place, SlowReading, Source, Topology};
use ringway_memory::{Limits, Mapping, Quota};
use ringway_runtime::Signal;
use ringway_switch::{
    Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, DropReason, FloodPolicy, Forward, Frames, Input,
    InputCapabilities, Mac, MacMap, MacTable, Member, Output, OutputCapabilities, Owner, Policy, Port, PortFault,
    Switch, Tap, WaitingPlace, WakeOn, Watch, giving,
};
use ringway_testing::file::memfd;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::CpuSet;

pub use ringway_testing::{PATIENCE as DEADLINE, until as wait_until, until_some as wait_until_some};

/// Frames of this many bytes, numbered.
pub const FRAME: usize = 60;
/// Frames and calls for which a station has memory from the start. A poller allocates nothing for them, as it does not at real ports: the kernel may
/// keep a thread that maps memory.
const RESERVED: usize = 1 << 10;
/// The offset of the number in a frame, after the addresses and the type.
const NUMBER: usize = 14;

pub fn mac(n: u16) -> Mac {
    let [a, b] = n.to_be_bytes();
    Mac::new([2, 0, 0, 0, a, b])
}

/// The frame `number` of station `from` to station `to`.
fn frame(to: u16, from: u16, number: u64) -> [u8; FRAME] {
    let mut bytes = [0; FRAME];
    bytes[..6].copy_from_slice(&mac(to).octets());
    bytes[6..12].copy_from_slice(&mac(from).octets());
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[NUMBER..NUMBER + 8].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// A frame that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub from: u16,
    pub number: u64,
    pub at: Instant,
}

/// A function of a port that can panic when a test asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Collect,
    Collected,
    Release,
    Capabilities,
    Rewind,
    Discard,
    DiscardLike,
    Pending,
    HasFrames,
    Arm,
    Disarm,
    TakeEvent,
    ArmForEvents,
    InputDropped,
    OutputCapabilities,
    Queues,
    Room,
    Deliver,
    Delivering,
    Delivered,
    CountLate,
    RingFrames,
    RingRoom,
    RingDue,
}

/// One station: the memory that its client and its port share.
pub struct Station {
    pub number: u16,
    /// Announces frames only by its descriptor, as a TAP does.
    device: bool,
    /// Frames to send, as destination and number.
    to_send: Mutex<VecDeque<(u16, u64)>>,
    /// If set, the station sends to this station without end, and ignores `to_send`.
    pub floods: Mutex<Option<u16>>,
    /// Ends a batch after this many frames of a flood and notes that there are more. 0: ends a batch when it is full.
    pub ends: AtomicU64,
    received: Mutex<VecDeque<Received>>,
    /// Most received frames that wait for the client to read them. Further frames are lost.
    pub room: AtomicUsize,
    kick: OwnedFd,
    pub call: OwnedFd,
    armed: AtomicBool,
    /// An event that is not a frame is pending.
    event: AtomicBool,
    /// A poller asked for a kick at the next event.
    armed_for_events: AtomicBool,
    /// Number of events that a poller saw.
    pub seen: AtomicU64,
    /// The client wants a call when there are frames.
    wish: AtomicBool,
    /// Number of batches that a poller began to take.
    pub entered: AtomicU64,
    /// Number of batches that a poller has taken.
    pub batches: AtomicU64,
    /// The cost of collecting a batch from the port, and of delivering one to it.
    pub costs: [Cost; 2],
    /// The cost of arming the port.
    pub asking: Cost,
    /// The cost of asking for a kick at an event other than frames.
    pub waiting: Cost,
    /// The cost of looking whether the client wants a call.
    pub ringing: Cost,
    /// Number of times that a poller armed the port.
    pub arms: AtomicU64,
    /// Runs once, when a poller arms the port next.
    pub on_arm: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Number of further calls that find another thread reading the client's request.
    pub busy: AtomicU64,
    /// A poller that takes frames waits while a test holds this lock.
    pub hold: Mutex<()>,
    /// The times before and after each call.
    pub calls: Mutex<Vec<(Instant, Instant)>>,
    pub port: Arc<Port>,
    /// Bit mask of the steps that panic once.
    traps: AtomicU32,
    /// Bit mask of the parts that have panicked.
    broken: AtomicU32,
    /// Number of uses of a part after its panic.
    pub used_broken: AtomicU64,
    /// Number of batches that a poller released.
    pub releases: AtomicU64,
    /// Number of times that the input was dropped.
    pub drops: AtomicU64,
    /// The thread that dropped the input.
    pub dropped_by: Mutex<Option<String>>,
    /// The client breaks the rules: the next batch is refused.
    pub is_faulty: AtomicBool,
    /// The answers of its input and output.
    pub keeps: AtomicBool,
    pub discards_like: AtomicBool,
    pub rings_later: AtomicBool,
    /// The station is given the frames of its detour when its bell is rung for room.
    pub gives_left: AtomicBool,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cost of an access to a client's memory for a poller, in nanoseconds.
#[derive(Default)]
pub struct Cost {
    /// The poller sleeps in a page fault.
    pub stall: AtomicU64,
    /// That page is a watched hole of a client's file.
    pub is_watched: AtomicBool,
    /// The poller computes for a page that did not exist before.
    pub work: AtomicU64,
    /// The machine takes the poller's processor away, and its account says that the poller computed.
    pub stolen: AtomicU64,
    /// One access in this many pays the cost. 0: each.
    pub one_of: AtomicU64,
    /// The access does not end while a test holds this lock.
    pub hold: Mutex<()>,
    /// Runs when the cost is paid next, in the thread that pays it.
    pub first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The kernel keeps the thread that pays the cost next.
    pub keep: Mutex<Option<kept::Stay>>,
    /// The kernel keeps each thread that pays the cost.
    pub keep_each: Mutex<Option<Arc<kept::Stay>>>,
    /// Number of accesses that have begun to pay the cost.
    began: AtomicU64,
    /// The thread that began to pay it last.
    payer: Mutex<Option<Thread>>,
    /// Number of accesses that have paid the cost.
    pub paid: AtomicU64,
}

impl Cost {
    /// Returns true if a thread is paying the cost.
    pub fn is_paying(&self) -> bool {
        let paid = self.paid.load(Ordering::SeqCst);
        self.began.load(Ordering::SeqCst) > paid
    }

    /// The name of the thread that pays the cost, or has paid it last.
    pub fn payer(&self) -> String {
        lock(&self.payer).as_ref().and_then(Thread::name).unwrap_or_default().to_owned()
    }

    pub fn pay(&self) {
        *lock(&self.payer) = Some(std::thread::current());
        let number = self.began.fetch_add(1, Ordering::SeqCst);
        if number.is_multiple_of(self.one_of.load(Ordering::Relaxed).max(1)) {
            self.pay_all();
        }
        drop(lock(&self.hold));
        self.paid.fetch_add(1, Ordering::SeqCst);
    }

    fn pay_all(&self) {
        let first = lock(&self.first).take();
        first.into_iter().for_each(|first| first());
        let stay = lock(&self.keep).take();
        stay.inspect(kept::Stay::stay);
        let stay = lock(&self.keep_each).clone();
        stay.inspect(|stay| stay.stay());
        let stall = Duration::from_nanos(self.stall.load(Ordering::Relaxed));
        if stall > Duration::ZERO {
            // Each page of a new mapping is a fault.
            let page = match self.is_watched.load(Ordering::Relaxed) {
                true => Mapping::given(memfd(4096).as_fd(), 0, 4096, &Quota::of_port(Limits::PORT)).expect("memory"),
                false => Mapping::private(4096).expect("memory"),
            };
            assert!(page.whole().write(&[1; 64]));
            std::thread::sleep(stall);
        }
        let work = Duration::from_nanos(self.work.load(Ordering::Relaxed));
        if work > Duration::ZERO {
            assert!(Mapping::private(4096).expect("memory").whole().write(&[1; 64]));
            compute(work);
        }
        compute(Duration::from_nanos(self.stolen.load(Ordering::Relaxed)));
    }
}

fn compute(time: Duration) {
    let began = cpu_time();
    while cpu_time() - began < time {
        std::hint::spin_loop();
    }
}

/// CPU time of the calling thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The order in which pollers took batches from the ports of a switch, recorded while a test asks for it.
#[derive(Default)]
struct Order {
    /// Number of further batches that are recorded.
    left: AtomicUsize,
    ports: Mutex<Vec<u16>>,
}

impl Order {
    fn note(&self, port: u16) {
        let mut ports = lock(&self.ports);
        if self.left.load(Ordering::SeqCst) > 0 {
            ports.push(port);
            self.left.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The input of a station's port.
struct In {
    station: Arc<Station>,
    order: Arc<Order>,
    memory: Mapping,
    taken: usize,
}

impl Drop for In {
    fn drop(&mut self) {
        *lock(&self.station.dropped_by) = std::thread::current().name().map(str::to_owned);
        self.station.drops.fetch_add(1, Ordering::SeqCst);
        self.station.step(Step::InputDropped);
    }
}

impl Input for In {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.station.step(Step::Collect);
        if self.station.is_faulty.load(Ordering::Relaxed) {
            return Err(PortFault::EndlessFrame);
        }
        self.station.entered.fetch_add(1, Ordering::Relaxed);
        let _held = lock(&self.station.hold);
        self.station.costs[0].pay();
        let flood = *lock(&self.station.floods);
        let queue = lock(&self.station.to_send);
        let mut put = |to, number| {
            let place = self.memory.view(self.taken * FRAME, FRAME).expect("room for a batch");
            assert!(place.write(&frame(to, self.station.number, number)));
            batch.push(place, FRAME);
            self.taken += 1;
            batch.room() > 0
        };
        match flood {
            Some(to) => {
                let most = match self.station.ends.load(Ordering::Relaxed) {
                    0 => u64::MAX,
                    ends => ends,
                };
                let full = (0..most).any(|_| !put(to, 0));
                if !full {
                    batch.note_more();
                }
            }
            None => {
                for &(to, number) in &*queue {
                    if !put(to, number) {
                        break;
                    }
                }
            }
        }
        self.station.batches.fetch_add(1, Ordering::Relaxed);
        if self.order.left.load(Ordering::Relaxed) > 0 {
            self.order.note(self.station.number);
        }
        self.station.step(Step::Collected);
        Ok(())
    }

    fn capabilities(&self) -> InputCapabilities {
        self.station.step(Step::Capabilities);
        InputCapabilities {
            rewind: self.station.keeps.load(Ordering::Relaxed),
            discard_like: self.station.discards_like.load(Ordering::Relaxed),
            waiting: WaitingPlace::Ring,
        }
    }

    fn rewind(&mut self, frames: usize) {
        self.station.step(Step::Rewind);
        self.taken = frames;
    }

    fn discard_like(&mut self, _: &[u8; 12], _: usize) -> Result<Discarded, PortFault> {
        self.station.step(Step::DiscardLike);
        Ok(Discarded::default())
    }

    fn has_frames(&mut self) -> bool {
        self.station.step(Step::HasFrames);
        self.pending()
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        self.station.step(Step::Discard);
        let mut queue = lock(&self.station.to_send);
        let frames = if lock(&self.station.floods).is_some() { most } else { most.min(queue.len()) };
        let there = frames.min(queue.len());
        queue.drain(..there);
        Ok(Discarded { frames: frames as u64, bytes: (frames * FRAME) as u64 })
    }

    fn release(&mut self) {
        self.station.step(Step::Release);
        self.station.releases.fetch_add(1, Ordering::SeqCst);
        if lock(&self.station.floods).is_none() {
            let mut queue = lock(&self.station.to_send);
            // The frames of a flood that has just ended are not in the queue.
            let there = self.taken.min(queue.len());
            queue.drain(..there);
        }
        self.taken = 0;
    }

    fn pending(&mut self) -> bool {
        self.station.step(Step::Pending);
        !self.station.device && (lock(&self.station.floods).is_some() || !lock(&self.station.to_send).is_empty())
    }

    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        if wake_on == WakeOn::Events {
            self.station.step(Step::ArmForEvents);
            self.station.waiting.pay();
            self.station.armed_for_events.store(true, Ordering::SeqCst);
            return Armed::with_kick(self.station.event.load(Ordering::SeqCst));
        }
        self.station.step(Step::Arm);
        self.station.arms.fetch_add(1, Ordering::Relaxed);
        self.station.asking.pay();
        self.station.armed.store(true, Ordering::SeqCst);
        let on_arm = lock(&self.station.on_arm).take();
        if let Some(on_arm) = on_arm {
            on_arm();
        }
        Armed::with_kick(self.pending())
    }

    fn disarm(&mut self) {
        self.station.step(Step::Disarm);
        self.station.armed.store(false, Ordering::SeqCst);
    }

    fn take_event(&mut self) -> bool {
        self.station.step(Step::TakeEvent);
        let has = self.station.event.swap(false, Ordering::SeqCst);
        self.station.seen.fetch_add(has.into(), Ordering::SeqCst);
        has
    }
}

/// The output and bell of a station's port. The station is set after the port is made.
#[derive(Clone, Default)]
struct Out(Arc<Mutex<Option<Arc<Station>>>>);

impl Out {
    fn station(&self) -> Option<Arc<Station>> {
        lock(&self.0).clone()
    }
}

impl Output for Out {
    fn capabilities(&self) -> OutputCapabilities {
        self.step(Step::OutputCapabilities);
        OutputCapabilities::default()
    }

    fn queues(&mut self, _: Frames<'_, '_>) -> Option<&[u8]> {
        self.step(Step::Queues);
        None
    }

    fn room(&mut self, _: Frames<'_, '_>) -> Option<(usize, usize)> {
        self.step(Step::Room);
        None
    }

    fn count_late(&mut self, _: &Counters) {
        self.step(Step::CountLate);
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let Some(station) = self.station() else { return Ok(()) };
        station.step(Step::Deliver);
        station.costs[1].pay();
        let mut received = lock(&station.received);
        for (count, frame) in frames.enumerate() {
            if count == 1 {
                station.step(Step::Delivering);
            }
            if received.len() >= station.room.load(Ordering::Relaxed) {
                counters.drop_out(DropReason::ReceiverFull, 1);
                continue;
            }
            let bytes = &frame.head().0;
            let from = u16::from_be_bytes([bytes[10], bytes[11]]);
            let number = u64::from_be_bytes(std::array::from_fn(|at| bytes[NUMBER + at]));
            received.push_back(Received { from, number, at: Instant::now() });
            counters.add_out(1, frame.len() as u64);
        }
        station.step(Step::Delivered);
        Ok(())
    }
}

impl Bell for Out {
    fn ring_due(&self, reason: CallReason, _: u64) -> CallResult {
        self.step(Step::RingDue);
        self.ring_at_once(reason)
    }

    fn ring(&self, reason: CallReason) -> CallResult {
        let Some(station) = self.station() else { return CallResult::Unwanted };
        station.ringing.pay();
        match reason {
            CallReason::Room if station.gives_left.load(Ordering::Relaxed) => giving(|| station.step(Step::RingRoom)),
            CallReason::Room => station.step(Step::RingRoom),
            CallReason::Frames => station.step(Step::RingFrames),
        }
        if reason == CallReason::Frames && station.rings_later.load(Ordering::Relaxed) {
            return CallResult::Later { due: ringway_runtime::nanoseconds(), called: false };
        }
        self.ring_at_once(reason)
    }
}

impl Out {
    fn step(&self, step: Step) {
        self.station().inspect(|station| station.step(step));
    }

    fn ring_at_once(&self, reason: CallReason) -> CallResult {
        let Some(station) = self.station() else { return CallResult::Unwanted };
        if reason == CallReason::Room {
            return CallResult::Unwanted;
        }
        if station.busy.load(Ordering::SeqCst) > 0 {
            station.busy.fetch_sub(1, Ordering::SeqCst);
            return CallResult::Busy;
        }
        if !station.wish.swap(false, Ordering::SeqCst) {
            return CallResult::Unwanted;
        }
        let before = Instant::now();
        ringway_runtime::call(station.call.as_fd(), &ringway_runtime::CallAccount::default());
        lock(&station.calls).push((before, Instant::now()));
        CallResult::Called
    }
}

impl Station {
    /// Makes the port panic in this function the next time.
    pub fn trap(&self, step: Step) {
        self.traps.fetch_or(1 << step as u32, Ordering::SeqCst);
    }

    /// Returns true if the port has not panicked in this function yet.
    pub fn is_trapped(&self, step: Step) -> bool {
        self.traps.load(Ordering::SeqCst) & 1 << step as u32 != 0
    }

    fn step(&self, step: Step) {
        // The parts are input, output and bell. Dropping an input does not count as a use.
        let part = 1
            << (u32::from(step as u32 >= Step::OutputCapabilities as u32)
                + u32::from(step as u32 >= Step::RingFrames as u32));
        if self.broken.load(Ordering::Relaxed) & part != 0 && step != Step::InputDropped {
            self.used_broken.fetch_add(1, Ordering::SeqCst);
        }
        let bit = 1 << step as u32;
        if self.traps.load(Ordering::Relaxed) & bit != 0 && self.traps.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
            self.broken.fetch_or(part, Ordering::SeqCst);
            panic!("injected: {step:?}");
        }
    }

    /// Sends a frame, and wakes the poller if it sleeps.
    pub fn send(&self, to: u16, number: u64) {
        lock(&self.to_send).push_back((to, number));
        fence(Ordering::SeqCst);
        if self.armed.swap(false, Ordering::SeqCst) || self.device {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).expect("kicks");
        }
    }

    /// Sends several frames at once, so that they are in one batch if there is room.
    pub fn send_together(&self, frames: impl Iterator<Item = (u16, u64)>) {
        lock(&self.to_send).extend(frames);
        fence(Ordering::SeqCst);
        if self.armed.swap(false, Ordering::SeqCst) {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).expect("kicks");
        }
    }

    /// Raises an event that is not a frame, and wakes the poller if it sleeps.
    pub fn raise_event(&self) {
        self.event.store(true, Ordering::SeqCst);
        if self.armed_for_events.swap(false, Ordering::SeqCst) {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).expect("kicks");
        }
    }

    /// The number of frames that the switch has not taken yet.
    pub fn unsent(&self) -> usize {
        lock(&self.to_send).len()
    }

    /// Returns true if a poller is taking a batch.
    pub fn is_being_taken(&self) -> bool {
        self.entered.load(Ordering::Relaxed) > self.batches.load(Ordering::Relaxed)
    }

    /// Takes the received frames, without waiting.
    pub fn take(&self) -> Vec<Received> {
        lock(&self.received).drain(..).collect()
    }

    /// Asks for one call when frames come.
    pub fn ask(&self) {
        self.wish.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Sleeps until a call comes. Returns false if none comes for `longest`.
    pub fn is_called(&self, longest: Duration) -> bool {
        let timeout = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
        let called = poll(&mut [PollFd::new(&self.call, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0);
        called && rustix::io::read(&self.call, &mut [0; 8]).is_ok()
    }

    /// Sleeps until there are frames, as a client does: asks for a call, then looks for frames once more. Returns the frames and
    /// whether it slept. `None`: no call came for `longest`.
    pub fn receive(&self, longest: Duration) -> Option<(Vec<Received>, bool)> {
        let mut slept = false;
        loop {
            self.ask();
            let there = self.take();
            if !there.is_empty() {
                self.wish.store(false, Ordering::SeqCst);
                return Some((there, slept));
            }
            if !self.is_called(longest) {
                return None;
            }
            slept = true;
        }
    }
}

/// Stations on one switch.
pub struct Lan {
    switch: Arc<Switch>,
    pub stations: Vec<Arc<Station>>,
    sources: Vec<Arc<Source>>,
    order: Arc<Order>,
}

impl Lan {
    /// Station `n` has address `n` and is on port `n`; each holds `room` received frames.
    pub fn new(stations: u16, room: usize) -> Lan {
        Lan::with_devices(stations, room, 0)
    }

    /// Stations as in [`Lan::new`]. The first `devices` ports are devices, which announce frames only by their
    /// descriptors.
    pub fn with_devices(stations: u16, room: usize, devices: u16) -> Lan {
        Lan::with_policies(stations, room, devices, |_| None)
    }

    /// Stations as in [`Lan::with_devices`]. Ports have these policies.
    pub fn with_policies(stations: u16, room: usize, devices: u16, policy: impl Fn(u16) -> Option<Policy>) -> Lan {
        Lan::forwarded(stations, room, devices, policy, |map| Box::new(map))
    }

    /// Stations as in [`Lan::with_policies`], with another forwarding function.
    pub fn forwarded(
        stations: u16,
        room: usize,
        devices: u16,
        policy: impl Fn(u16) -> Option<Policy>,
        forward: impl FnOnce(MacMap) -> Box<dyn Forward>,
    ) -> Lan {
        let descriptor = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let station = |number: u16| {
            let out = Out::default();
            let port = Arc::new(Port::new(format!("p{number}"), Box::new(out.clone()), Box::new(out.clone())));
            let station = Arc::new(Station {
                number,
                device: number < devices,
                to_send: Mutex::default(),
                ends: AtomicU64::new(0),
                floods: Mutex::default(),
                received: Mutex::new(VecDeque::with_capacity(RESERVED)),
                room: AtomicUsize::new(room),
                kick: descriptor(),
                call: descriptor(),
                armed: AtomicBool::new(false),
                event: AtomicBool::new(false),
                armed_for_events: AtomicBool::new(false),
                seen: AtomicU64::new(0),
                wish: AtomicBool::new(false),
                entered: AtomicU64::new(0),
                batches: AtomicU64::new(0),
                costs: Default::default(),
                asking: Cost::default(),
                waiting: Cost::default(),
                ringing: Cost::default(),
                arms: AtomicU64::new(0),
                on_arm: Mutex::default(),
                busy: AtomicU64::new(0),
                hold: Mutex::default(),
                calls: Mutex::new(Vec::with_capacity(RESERVED)),
                port,
                traps: AtomicU32::new(0),
                broken: AtomicU32::new(0),
                used_broken: AtomicU64::new(0),
                releases: AtomicU64::new(0),
                drops: AtomicU64::new(0),
                dropped_by: Mutex::default(),
                is_faulty: AtomicBool::new(false),
                keeps: AtomicBool::new(false),
                discards_like: AtomicBool::new(false),
                rings_later: AtomicBool::new(false),
                gives_left: AtomicBool::new(false),
            });
            *lock(&out.0) = Some(Arc::clone(&station));
            station
        };
        let stations: Vec<Arc<Station>> = (0..stations).map(station).collect();
        let order = Arc::new(Order::default());
        let source = |station: &Arc<Station>| {
            let memory = Mapping::private(FRAME * ringway_switch::MAX_BATCH).expect("memory");
            let input = In { station: Arc::clone(station), order: Arc::clone(&order), memory, taken: 0 };
            let kick = station.kick.try_clone().expect("a descriptor");
            let signal = if station.device { Signal::Device(kick.into()) } else { Signal::Kick(kick.into()) };
            Arc::new(Source::new(Box::new(input), signal))
        };
        let sources = stations.iter().map(source).collect();
        let members: Vec<Member> = stations
            .iter()
            .map(|station| Member {
                macs: vec![mac(station.number)],
                policy: policy(station.number),
                ..Member::new(Owner::new(station.number, 0), Arc::clone(&station.port))
            })
            .collect();
        let table = Arc::new(MacTable::new(1024, 64, [1, 2]));
        let forward = forward(MacMap::new(&members));
        let switch = Switch::new("lan0", members, table, forward, FloodPolicy::default());
        Lan { switch: Arc::new(switch), stations, sources, order }
    }

    /// The ports of the next `batches` batches, in the order in which pollers take them.
    pub fn order(&self, batches: usize) -> Vec<u16> {
        self.order.left.store(batches, Ordering::SeqCst);
        wait_until("all batches are taken", || self.order.left.load(Ordering::SeqCst) == 0);
        std::mem::take(&mut *lock(&self.order.ports))
    }

    /// Has a capture read the frames for station `n`. To be called before a topology is made.
    pub fn tap(&mut self, n: u16, tap: Arc<dyn Tap>) {
        let order = Arc::get_mut(&mut self.switch).map(|switch| {
            let empty = Switch::new(
                "",
                Vec::new(),
                Arc::new(MacTable::new(1, 1, [0; 2])),
                Box::new(MacMap::new(&[])),
                FloodPolicy::default(),
            );
            let watch = Watch { taps: vec![tap], ..Watch::default() };
            *switch = std::mem::replace(switch, empty).with_watches([(n, watch)]);
        });
        order.expect("no topology has the switch");
    }

    /// The state of the time budget of station `n`'s port.
    pub fn slow(&self, n: usize) -> SlowReading {
        self.sources[n].slow()
    }

    /// The ports of these stations are those of one client.
    pub fn join(&self, stations: std::ops::Range<usize>) {
        let client = Arc::<Client>::default();
        self.sources[stations].iter().for_each(|source| source.set_client(Arc::clone(&client)));
    }

    /// Port `n` on poller `place(n)` with weight `weight(n)`.
    pub fn topology(&self, place: impl Fn(u16) -> usize, weight: impl Fn(u16) -> u32) -> Topology {
        let attached = |index: u16| Attached {
            place: Place::Port(Arc::clone(&self.switch), index),
            source: Arc::clone(&self.sources[usize::from(index)]),
            poller: place(index),
            weight: weight(index),
        };
        Topology { ports: (0..self.sources.len() as u16).map(attached).collect() }
    }
}

/// CPUs for this many pollers. A CPU is used several times if there are too few.
pub fn cpus(pollers: usize) -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).expect("this thread's CPUs");
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    all.into_iter().cycle().take(pollers).collect()
}

/// The state of the only thread of this process with this name (proc_pid_stat(5), field 3), and how often it has blocked
/// (`voluntary_ctxt_switches`, proc_pid_status(5)).
fn state_of(thread: &str) -> (char, u64) {
    let threads = std::fs::read_dir("/proc/self/task").expect("threads").filter_map(Result::ok);
    let mut found = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    let status = found.find(|status| status.lines().next() == Some(&format!("Name:\t{thread}")));
    let status = status.unwrap_or_else(|| panic!("no thread is called {thread}"));
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("a field of the kernel").trim();
    (field("State:").chars().next().expect("a state"), field("voluntary_ctxt_switches:").parse().expect("a number"))
}

/// Waits until the only thread of this name sleeps for so long that a timer of a poller would have woken it. A thread that is awake,
/// or was woken and has no processor yet, is not in the state `S`.
pub fn wait_until_it_stays_asleep(thread: &str) {
    wait_until("the thread stays asleep", || {
        let before = state_of(thread);
        std::thread::sleep(Duration::from_millis(20));
        before.0 == 'S' && state_of(thread) == before
    });
}
