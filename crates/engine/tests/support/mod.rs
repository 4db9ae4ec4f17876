//! Stations in memory on a running engine: they send from a queue, receive into one, and sleep on an eventfd.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringway_engine::{Attached, Signal, Source, Topology};
use ringway_memory::Mapping;
use ringway_switch::{
    Asked, Batch, Bell, Counters, Discarded, DropReason, Frames, Input, Mac, MacMap, MacTable, Member, News, Output,
    Owner, Policy, Port, PortFault, Spreads, Switch,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::CpuSet;

/// However slow the machine is, nothing takes longer.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Frames of this many bytes, numbered.
pub const FRAME: usize = 60;
/// Where in a frame its number is, after the addresses and the type.
const NUMBER: usize = 14;

pub fn mac(n: u16) -> Mac {
    let [a, b] = n.to_be_bytes();
    Mac::new([2, 0, 0, 0, a, b])
}

/// Station `from`'s frame number `number` to station `to`.
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

/// One station: what its client and its port share.
pub struct Station {
    pub number: u16,
    /// Heard by its descriptor alone, as a TAP is.
    device: bool,
    /// Frames to send, as destination and number.
    to_send: Mutex<VecDeque<(u16, u64)>>,
    /// Sends to this station without end, instead.
    pub floods: Mutex<Option<u16>>,
    /// Ends its batches after so many frames of a flood, and says that there are more; 0: when they are full.
    pub ends: AtomicU64,
    received: Mutex<VecDeque<Received>>,
    /// Most frames that wait to be read; more are lost.
    room: usize,
    kick: OwnedFd,
    pub call: OwnedFd,
    armed: AtomicBool,
    /// Something but frames came up; a poller wants to be told of that; times that it saw it.
    news: AtomicBool,
    armed_for_news: AtomicBool,
    pub seen: AtomicU64,
    /// Wants a call when there are frames.
    wish: AtomicBool,
    /// How often a poller began to take a batch from it, and had taken one.
    pub entered: AtomicU64,
    pub batches: AtomicU64,
    /// Times that a poller asked for a kick.
    pub arms: AtomicU64,
    /// How often asking it finds somebody else at it.
    pub busy: AtomicU64,
    /// Frames cannot be taken from it while a test has this.
    pub hold: Mutex<()>,
    /// Before and after each call.
    pub calls: Mutex<Vec<(Instant, Instant)>>,
    pub port: Arc<Port>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Its side that frames come in by.
struct In {
    station: Arc<Station>,
    memory: Mapping,
    taken: usize,
}

impl Input for In {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.station.entered.fetch_add(1, Ordering::Relaxed);
        let _held = lock(&self.station.hold);
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
        Ok(())
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        let mut queue = lock(&self.station.to_send);
        let frames = if lock(&self.station.floods).is_some() { most } else { most.min(queue.len()) };
        let there = frames.min(queue.len());
        queue.drain(..there);
        Ok(Discarded { frames: frames as u64, bytes: (frames * FRAME) as u64 })
    }

    fn release(&mut self) {
        if lock(&self.station.floods).is_none() {
            lock(&self.station.to_send).drain(..self.taken);
        }
        self.taken = 0;
    }

    fn pending(&mut self) -> bool {
        !self.station.device && (lock(&self.station.floods).is_some() || !lock(&self.station.to_send).is_empty())
    }

    fn arm(&mut self) -> bool {
        self.station.arms.fetch_add(1, Ordering::Relaxed);
        self.station.armed.store(true, Ordering::SeqCst);
        self.pending()
    }

    fn disarm(&mut self) {
        self.station.armed.store(false, Ordering::SeqCst);
    }

    fn has_news(&mut self) -> bool {
        let has = self.station.news.swap(false, Ordering::SeqCst);
        self.station.seen.fetch_add(has.into(), Ordering::SeqCst);
        has
    }

    fn arm_for_news(&mut self) -> bool {
        self.station.armed_for_news.store(true, Ordering::SeqCst);
        self.station.news.load(Ordering::SeqCst)
    }
}

/// Its side that frames go out by. Filled in after the port is made.
#[derive(Clone, Default)]
struct Out(Arc<Mutex<Option<Arc<Station>>>>);

impl Out {
    fn station(&self) -> Option<Arc<Station>> {
        lock(&self.0).clone()
    }
}

impl Output for Out {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let Some(station) = self.station() else { return Ok(()) };
        let mut received = lock(&station.received);
        for frame in frames {
            if received.len() >= station.room {
                counters.drop_out(DropReason::ReceiverFull, 1);
                continue;
            }
            let bytes = &frame.head().0;
            let from = u16::from_be_bytes([bytes[10], bytes[11]]);
            let number = u64::from_be_bytes(std::array::from_fn(|at| bytes[NUMBER + at]));
            received.push_back(Received { from, number, at: Instant::now() });
            counters.add_out(1, frame.len() as u64);
        }
        Ok(())
    }
}

impl Bell for Out {
    fn ring(&self, news: News) -> Asked {
        let Some(station) = self.station() else { return Asked::Unwanted };
        if news == News::Room {
            return Asked::Unwanted;
        }
        if station.busy.load(Ordering::SeqCst) > 0 {
            station.busy.fetch_sub(1, Ordering::SeqCst);
            return Asked::Busy;
        }
        if !station.wish.swap(false, Ordering::SeqCst) {
            return Asked::Unwanted;
        }
        let before = Instant::now();
        ringway_engine::call(station.call.as_fd());
        lock(&station.calls).push((before, Instant::now()));
        Asked::Called
    }
}

impl Station {
    /// Sends a frame, and wakes the poller if it sleeps.
    pub fn send(&self, to: u16, number: u64) {
        lock(&self.to_send).push_back((to, number));
        fence(Ordering::SeqCst);
        if self.armed.swap(false, Ordering::SeqCst) || self.device {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).expect("kicks");
        }
    }

    /// Something but frames comes up.
    pub fn tell_news(&self) {
        self.news.store(true, Ordering::SeqCst);
        if self.armed_for_news.swap(false, Ordering::SeqCst) {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).expect("kicks");
        }
    }

    /// Frames that the switch has not taken yet.
    pub fn unsent(&self) -> usize {
        lock(&self.to_send).len()
    }

    /// Whether a poller is inside its input.
    pub fn is_being_taken(&self) -> bool {
        self.entered.load(Ordering::Relaxed) > self.batches.load(Ordering::Relaxed)
    }

    /// What there is to receive, without waiting.
    pub fn take(&self) -> Vec<Received> {
        lock(&self.received).drain(..).collect()
    }

    /// Asks for one call when frames come.
    pub fn ask(&self) {
        self.wish.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Sleeps until a call comes; false when there is none for `longest`.
    pub fn is_called(&self, longest: Duration) -> bool {
        let timeout = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
        let called = poll(&mut [PollFd::new(&self.call, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0);
        called && rustix::io::read(&self.call, &mut [0; 8]).is_ok()
    }

    /// Sleeps until there are frames, as a client does: it asks for a call and looks once more. Also whether it slept.
    /// `None` when no call comes for `longest`.
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
}

impl Lan {
    /// Station `n` has address `n` and is on port `n`; each holds `room` received frames.
    pub fn new(stations: u16, room: usize) -> Lan {
        Lan::with_devices(stations, room, 0)
    }

    /// The same; the first `devices` ports are heard by their descriptors alone.
    pub fn with_devices(stations: u16, room: usize, devices: u16) -> Lan {
        Lan::with_policies(stations, room, devices, |_| None)
    }

    /// The same; ports have these policies.
    pub fn with_policies(stations: u16, room: usize, devices: u16, policy: impl Fn(u16) -> Option<Policy>) -> Lan {
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
                received: Mutex::default(),
                room,
                kick: descriptor(),
                call: descriptor(),
                armed: AtomicBool::new(false),
                news: AtomicBool::new(false),
                armed_for_news: AtomicBool::new(false),
                seen: AtomicU64::new(0),
                wish: AtomicBool::new(false),
                entered: AtomicU64::new(0),
                batches: AtomicU64::new(0),
                arms: AtomicU64::new(0),
                busy: AtomicU64::new(0),
                hold: Mutex::default(),
                calls: Mutex::default(),
                port,
            });
            *lock(&out.0) = Some(Arc::clone(&station));
            station
        };
        let stations: Vec<Arc<Station>> = (0..stations).map(station).collect();
        let source = |station: &Arc<Station>| {
            let memory = Mapping::private(FRAME * ringway_switch::MAX_BATCH).expect("memory");
            let input = In { station: Arc::clone(station), memory, taken: 0 };
            let kick = station.kick.try_clone().expect("a descriptor");
            let signal = if station.device { Signal::Device(kick) } else { Signal::Kick(kick) };
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
        let forward = MacMap::new(&members);
        let switch = Switch::new("lan0", members, table, Box::new(forward), Spreads::default());
        Lan { switch: Arc::new(switch), stations, sources }
    }

    /// Port `n` on poller `place(n)` with weight `weight(n)`.
    pub fn topology(&self, place: impl Fn(u16) -> usize, weight: impl Fn(u16) -> u32) -> Topology {
        let attached = |index: u16| Attached {
            switch: Arc::clone(&self.switch),
            index,
            source: Arc::clone(&self.sources[usize::from(index)]),
            poller: place(index),
            weight: weight(index),
        };
        Topology { ports: (0..self.sources.len() as u16).map(attached).collect() }
    }
}

/// CPUs for so many pollers, each CPU as often as needed.
pub fn cpus(pollers: usize) -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).expect("this thread's CPUs");
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    all.into_iter().cycle().take(pollers).collect()
}

/// Waits until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}
