//! One poller: a thread that serves its ports by weighted round robin (VPE §4.4).
//!
//! A port is *active* while it has frames and for a number of empty looks afterwards, and is then *parked*. Each round
//! serves every active port and looks at a few parked ones, so that a round's cost grows with the active ports only
//! (what VPE §3 hopes to get from hierarchical flags, without memory shared between clients). Before the poller
//! sleeps it asks every port that has not been asked yet for a kick; a port stays asked until it is active again, so
//! falling asleep and waking cost in proportion to the ports that were active, too.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_switch::{Input, Port, Spent, Time, Workspace, contain, pass, see_news};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::thread::CpuSet;

use crate::call;
use crate::clock;
use crate::contain::{Strikes, run_or_die};
use crate::engine::{EngineSettings, Idle, PollerState, Shared, Topology};
use crate::looks::look_interval;
use crate::manners::wait_for_turns;
use crate::meter::Meter;
use crate::pacing::Pacing;
use crate::quarantine::place;
use crate::source::Attached;
use crate::timer::Timer;

/// Empty looks after which an active port is parked.
const PARK_AFTER: u32 = 256;
/// The same for a device, where each look is a system call. A device is parked only after a look that found nothing, and
/// whatever comes after that look is an event.
const PARK_DEVICE_AFTER: u32 = 16;
/// Parked ports looked at per round.
const LOOKS_PER_ROUND: usize = 8;
/// While busy, how often device descriptors of parked ports are looked at.
const DEVICE_LOOK_EVERY: Duration = Duration::from_micros(20);
/// Rounds between two readings of the clock: empty ones, or such as move few frames.
const CLOCK_EVERY: u32 = 16;
/// Rounds that find nothing before others are let onto the core between two of them: a few hundred nanoseconds.
const EMPTY_ROUNDS: u32 = 64;
/// A round that moves more is followed by others of a burst. Those of a packed ring are seen while their driver is still writing
/// descriptors into the same lines, so for a moment they are left alone: so many pauses after each empty round.
const FEW_FRAMES: u64 = 4;
const BURST_PAUSES: u32 = 4;
/// Frames that may move between two readings.
const FRAMES_PER_READING: u64 = 32;
/// How long a poller that ends tries to make its pending calls.
const LAST_CALLS: Duration = Duration::from_millis(100);
/// Not serving any port.
pub(crate) const NOBODY: usize = usize::MAX;
const WAKE_TOKEN: u64 = u64::MAX;
const TIMER_TOKEN: u64 = u64::MAX - 1;

/// A port being served.
pub(crate) struct Served {
    pub(crate) attached: Attached,
    /// None while another poller still has it.
    pub(crate) input: Option<Box<dyn Input>>,
    pub(crate) active: bool,
    /// Asked for a kick.
    armed: bool,
    /// No kick will come all the same; it is in `watched`.
    pub(crate) watched: bool,
    pub(crate) idle: u32,
    pacing: Pacing,
    /// What it has may not pass before: it is neither active nor parked.
    pub(crate) waits: Option<u64>,
    /// It took too long, and is not served before.
    pub(crate) aside: u64,
    /// It may have had more when it was served last.
    more: bool,
}

impl Served {
    #[inline]
    fn pending(&mut self) -> bool {
        self.input.as_mut().is_some_and(|input| input.pending())
    }

    pub(crate) fn disarm(&mut self) {
        if std::mem::take(&mut self.armed)
            && let Some(input) = self.input.as_mut()
        {
            input.disarm();
        }
    }
}

pub(crate) struct Poller {
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: Arc<PollerState>,
    idle: Idle,
    batch: usize,
    pacing: bool,
    /// As of the last reading of the clock.
    pub(crate) now: Time,
    /// Some ring was left alone in the last round.
    resting: bool,
    epoll: std::os::fd::OwnedFd,
    /// Wakes the poller when a pending call is due.
    timer: Timer,
    pub(crate) version: u64,
    pub(crate) topology: Arc<Topology>,
    /// By stable index, which is also the port's token in epoll.
    pub(crate) served: Vec<Option<Served>>,
    pub(crate) vacant: Vec<usize>,
    /// Index by the source's id.
    pub(crate) places: HashMap<u64, usize>,
    pub(crate) active: Vec<usize>,
    pub(crate) parked: Vec<usize>,
    /// Ports whose frames wait for their rate: until when, and which.
    pub(crate) waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Asked for a kick that will not come: looked at by time.
    pub(crate) watched: Vec<usize>,
    pub(crate) next_look: usize,
    pub(crate) next_waiting: usize,
    /// Frames have moved that were not waited for, since the clock was read last.
    lively: bool,
    devices: bool,
    waiting_for_input: bool,
    pub(crate) work: Workspace,
    /// The port whose input is being used: whose a panic is then. [`NOBODY`]: the poller's own.
    pub(crate) at: usize,
    /// Its own panics.
    pub(crate) strikes: Strikes,
    pub(crate) meter: Meter,
}

pub(crate) fn spawn(
    shared: Arc<Shared>,
    state: Arc<PollerState>,
    settings: &EngineSettings,
) -> io::Result<JoinHandle<()>> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &state.wake, EventData::new_u64(WAKE_TOKEN), EventFlags::IN | EventFlags::ET)?;
    let timer = Timer::new()?;
    epoll::add(&epoll, timer.fd(), EventData::new_u64(TIMER_TOKEN), EventFlags::IN | EventFlags::ET)?;
    let is_keeper = state.number >= shared.pollers;
    let (batch, core) = (settings.batch, state.core);
    let (idle, pacing) = if is_keeper { (Idle::Sleep, false) } else { (settings.idle, settings.pacing) };
    let mut meter = Meter::new();
    if is_keeper {
        meter.examine_always()?;
    }
    let name = if is_keeper {
        format!("quarantine{}", state.number - shared.pollers)
    } else {
        format!("poller{}", state.number)
    };
    let (started, start) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
        let pinned = core.map(pin).unwrap_or_else(|| {
            wait_for_turns();
            Ok(())
        });
        let failed = pinned.is_err();
        if started.send(pinned).is_err() || failed {
            return;
        }
        call::prepare();
        if is_keeper {
            // It takes a topology now.
            state.account.adopted.store(0, Ordering::SeqCst);
        }
        let (topology, _) = shared.topology.get();
        let mut work = Workspace::new(batch);
        if is_keeper {
            work.calls.serve_detours();
        }
        meter.enter_thread();
        let mut poller = Poller {
            shared,
            state,
            idle,
            batch,
            pacing,
            now: clock::time(Instant::now()),
            resting: false,
            epoll,
            timer,
            version: 0,
            topology,
            served: Vec::new(),
            vacant: Vec::new(),
            places: HashMap::new(),
            active: Vec::new(),
            parked: Vec::new(),
            waiting: BinaryHeap::new(),
            watched: Vec::new(),
            next_look: 0,
            next_waiting: 0,
            lively: false,
            devices: false,
            waiting_for_input: false,
            work,
            at: NOBODY,
            strikes: Strikes::default(),
            meter,
        };
        run_or_die(&name, || {
            while let Err(place) = contain(|| poller.run()) {
                poller.recover(place);
            }
        });
    })?;
    start.recv().map_err(|_| io::Error::other("the poller ended before it started"))??;
    Ok(thread)
}

fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("CPU {core} does not exist")));
    }
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run on CPU {core}: {error}")))
}

fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl Poller {
    fn run(&mut self) {
        let mut last = Instant::now();
        let mut last_work = last;
        let mut last_device_look = last;
        // Since the clock was read last.
        let (mut rounds, mut frames, mut called) = (0, 0, 0);
        // Since frames were moved last, and whether these were a burst.
        let (mut empty, mut burst) = (0u32, false);
        // When a keeper has chores.
        let (is_keeper, mut chores) = (self.is_keeper(), 0);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let returned = self.waiting_for_input && self.state.has_returned();
            if self.shared.topology.version() != self.version || returned {
                self.adopt();
            }
            if is_keeper && (self.now.nanoseconds >= chores || self.places.is_empty()) {
                chores = self.keep();
                if self.version == 0 {
                    continue;
                }
            }
            let moved = self.round();
            (rounds, frames) = (rounds + 1, frames + moved);
            if moved > 0 {
                (empty, burst) = (0, moved > FEW_FRAMES);
                add(&self.state.account.passes, 1);
                // Reading the clock takes as long as moving a frame.
                if rounds < CLOCK_EVERY && frames < FRAMES_PER_READING && !self.devices && !self.resting {
                    continue;
                }
            } else {
                // The instruction that makes room for another thread of the core takes longer than a round: an answer that is
                // just coming is not kept waiting by it.
                empty = empty.saturating_add(1);
                let pauses = if burst { BURST_PAUSES } else { (empty > EMPTY_ROUNDS).into() };
                (0..pauses).for_each(|_| std::hint::spin_loop());
                let may_sleep = self.idle == Idle::Sleep;
                if rounds < CLOCK_EVERY && frames == 0 && !may_sleep && !self.devices && !self.resting {
                    continue;
                }
            }
            // The one clock reading: time up to here goes to what the rounds were.
            let now = Instant::now();
            self.state.asked.answer();
            let account = &self.state.account;
            add(if frames > 0 { &account.busy_ns } else { &account.free_ns }, (now - last).as_nanos() as u64);
            last = now;
            self.look_at_clock(now);
            if std::mem::take(&mut self.lively) {
                last_work = now;
            }
            (rounds, frames) = (0, 0);
            if moved == 0 {
                self.meter.mark();
            }
            if moved > 0 {
                if self.devices && now - last_device_look >= DEVICE_LOOK_EVERY {
                    last_device_look = now;
                    self.wait(Some(Duration::ZERO));
                }
                continue;
            }
            let spin = match self.idle {
                _ if self.resting => true,
                Idle::Spin => true,
                Idle::Adaptive(time) => now - last_work < time,
                // Who was called may have to run on this core before it answers; then nobody needs to wake the poller.
                Idle::Sleep => {
                    let before = std::mem::replace(&mut called, call::made());
                    before != called && self.yield_core()
                }
            };
            if spin {
                if self.devices {
                    self.wait(Some(Duration::ZERO));
                }
            } else if self.may_sleep() {
                add(&self.state.account.sleeps, 1);
                let resumed = self.waiting.peek().map(|Reverse((until, _))| *until);
                let every = look_interval(now - last_work).as_nanos() as u64;
                let look = (!self.watched.is_empty()).then(|| self.now.nanoseconds + every);
                let chores = is_keeper.then_some(chores);
                let due = [self.work.calls.due(), resumed, look, chores].into_iter().flatten().min();
                self.timer.wake_at(due, self.now.nanoseconds);
                self.look_before_sleep();
                let by_timer_only = self.wait(None);
                self.meter.slept();
                let woken = Instant::now();
                add(&self.state.account.free_ns, (woken - last).as_nanos() as u64);
                last = woken;
                self.look_at_clock(woken);
                if self.look_at_watched() || !by_timer_only {
                    last_work = woken;
                }
            }
        }
        self.end();
    }

    /// Lets others run on this core first; always true.
    fn yield_core(&self) -> bool {
        std::thread::yield_now();
        true
    }

    /// Makes the calls that are due.
    #[inline]
    fn look_at_clock(&mut self, now: Instant) {
        self.now = clock::time(now);
        self.meter.look_at_clock(self.now.nanoseconds);
        if self.work.calls.due().is_some_and(|due| due <= self.now.nanoseconds) {
            self.work.calls.time(self.meter.examining);
            if self.work.calls.make(&self.now) {
                self.report_fault();
            }
            if self.meter.examining {
                self.charge_calls();
            }
        }
    }

    #[cold]
    pub(crate) fn report_fault(&self) {
        let _ = rustix::io::write(&self.shared.faults, &1u64.to_ne_bytes());
    }

    /// Makes pending calls and gives the inputs back.
    fn end(&mut self) {
        let began = Instant::now();
        while self.work.calls.due().is_some() && began.elapsed() < LAST_CALLS {
            if self.work.calls.make_all(&clock::time(Instant::now())) {
                self.report_fault();
            }
            std::thread::yield_now();
        }
        for served in self.served.iter_mut().flatten() {
            if let Some(input) = served.input.take() {
                served.attached.source.put_back(input);
            }
        }
    }

    /// Serves every active port once and looks at a few of the parked ones. Returns frames moved.
    #[inline]
    fn round(&mut self) -> u64 {
        let mut moved = 0;
        let mut place = 0;
        self.resting = false;
        if !self.waiting.is_empty() {
            self.resume(self.now.nanoseconds);
            self.see_news_of_waiting();
        }
        while place < self.active.len() {
            let index = self.active[place];
            if self.served[index].as_ref().is_some_and(|served| served.pacing.is_resting(self.now.nanoseconds)) {
                self.resting = true;
                place += 1;
                continue;
            }
            let frames = self.serve(index);
            moved += frames;
            let Some(served) = self.served[index].as_mut() else {
                self.active.swap_remove(place);
                continue;
            };
            if let Some(until) = served.waits {
                served.active = false;
                self.active.swap_remove(place);
                self.waiting.push(Reverse((until, index)));
                continue;
            }
            self.lively |= frames > 0;
            served.idle = if frames > 0 { 0 } else { served.idle + 1 };
            let in_memory = served.attached.source.signal().in_memory();
            if in_memory && self.pacing {
                served.pacing.looked(self.now.nanoseconds, frames, served.more);
            }
            if served.idle > if in_memory { PARK_AFTER } else { PARK_DEVICE_AFTER } {
                served.active = false;
                self.active.swap_remove(place);
                self.parked.push(index);
            } else {
                place += 1;
            }
        }
        for _ in 0..LOOKS_PER_ROUND.min(self.parked.len()) {
            if self.next_look >= self.parked.len() {
                self.next_look = 0;
            }
            let index = self.parked[self.next_look];
            if self.meter.examining && self.look_examined(index) {
                // It is set aside for that.
            } else if self.is_pending(index) {
                self.parked.swap_remove(self.next_look);
                self.activate(index);
            } else {
                self.next_look += 1;
            }
            if self.parked.is_empty() {
                break;
            }
        }
        moved
    }

    /// Makes the ports active that have waited until `now`, but for those that are set aside for longer.
    #[cold]
    fn resume(&mut self, now: u64) {
        let mut put_off = Vec::new();
        while let Some(&Reverse((until, index))) = self.waiting.peek()
            && until <= now
        {
            self.waiting.pop();
            // Another may have its place now.
            let Some(served) = self.served[index].as_mut().filter(|served| served.waits == Some(until)) else {
                continue;
            };
            served.waits = None;
            if served.aside > self.now.nanoseconds {
                put_off.push(index);
                continue;
            }
            self.activate(index);
        }
        for index in put_off {
            if let Some(served) = self.served[index].as_mut() {
                served.waits = Some(served.aside);
                self.waiting.push(Reverse((served.aside, index)));
            }
        }
    }

    /// Looks at one of the ports that wait: what comes up at them besides frames does not.
    #[cold]
    fn see_news_of_waiting(&mut self) {
        self.next_waiting = (self.next_waiting + 1) % self.waiting.len().max(1);
        if let Some(&Reverse((_, index))) = self.waiting.as_slice().get(self.next_waiting) {
            self.see_news(index);
        }
    }

    /// Does what has come up at a port besides frames.
    fn see_news(&mut self, index: usize) {
        self.at = index;
        if let Some(Served { input: Some(input), attached, .. }) = self.served[index].as_mut()
            && let Some(member) = attached.switch.member(attached.index)
            && see_news(member, &mut **input, &mut self.work, &self.now)
        {
            self.report_fault();
        }
        self.at = NOBODY;
    }

    /// Asks the ports that wait for a kick when something but frames comes up; false when something has.
    fn waiting_may_sleep(&mut self) -> bool {
        let mut may_sleep = true;
        for place in 0..self.waiting.len() {
            let Some(&Reverse((_, index))) = self.waiting.as_slice().get(place) else { break };
            self.at = index;
            let input = self.served[index].as_mut().and_then(|served| served.input.as_mut());
            let has_news = input.is_some_and(|input| input.arm_for_news());
            self.at = NOBODY;
            if has_news {
                self.see_news(index);
                may_sleep = false;
            }
        }
        may_sleep
    }

    /// The port is not in `parked` any more: puts it among the active ones, or has it wait where it is set aside.
    fn activate(&mut self, index: usize) {
        if let Some(served) = self.served[index].as_mut() {
            if served.aside > self.now.nanoseconds {
                served.waits = Some(served.aside);
                self.waiting.push(Reverse((served.aside, index)));
                return;
            }
            served.active = true;
            served.idle = 0;
            self.active.push(index);
            self.disarm(index);
        }
    }

    /// The port's client need not kick any more.
    fn disarm(&mut self, index: usize) {
        self.time(index, |poller| {
            poller.at = index;
            if let Some(served) = poller.served[index].as_mut() {
                served.disarm();
            }
            poller.at = NOBODY;
        });
    }

    /// Does something with a port besides serving it. While visits are examined, the time of that is the port's, too.
    #[inline]
    fn time<T>(&mut self, index: usize, work: impl FnOnce(&mut Poller) -> T) -> T {
        if !self.meter.examining {
            return work(self);
        }
        let began = clock::nanoseconds();
        let done = work(self);
        self.charge_besides(index, clock::nanoseconds().saturating_sub(began));
        done
    }

    /// Whether a port has frames, as far as its memory tells.
    #[inline]
    fn is_pending(&mut self, index: usize) -> bool {
        self.at = index;
        let pending = self.served[index].as_mut().is_some_and(Served::pending);
        self.at = NOBODY;
        pending || self.is_keeper() && self.port(index).is_some_and(|port| port.has_left())
    }

    /// The port itself.
    fn port(&self, index: usize) -> Option<&Arc<Port>> {
        let attached = &self.served[index].as_ref()?.attached;
        attached.switch.member(attached.index).map(|member| &member.port)
    }

    /// Returns how many frames were moved.
    #[inline]
    fn serve(&mut self, index: usize) -> u64 {
        if self.meter.examining {
            return self.serve_examined(index);
        }
        let (moved, bytes) = self.visit::<false>(index, &mut Spent::default());
        if moved > 0
            && let Some(ticks) = self.meter.lap()
        {
            self.visit_took_long(index, ticks, moved, bytes);
        }
        moved
    }

    #[cold]
    fn serve_examined(&mut self, index: usize) -> u64 {
        let mut source = Spent::default();
        let emptied = if self.is_keeper() { self.empty_detour(index) } else { 0 };
        self.work.examine(true);
        let (moved, _) = self.visit::<true>(index, &mut source);
        self.charge_visit(index, source);
        self.work.examine(false);
        let now = self.now.nanoseconds;
        if let Some(served) = self.served[index].as_mut().filter(|served| served.aside > now) {
            served.waits = served.waits.max(Some(served.aside));
        }
        moved + emptied
    }

    /// Serves a port. Returns how many frames were moved, and how many bytes had come from it before.
    #[inline(always)]
    fn visit<const EXAMINED: bool>(&mut self, index: usize, source: &mut Spent) -> (u64, u64) {
        let Some(served) = self.served[index].as_mut() else { return (0, 0) };
        let Some(input) = served.input.as_deref_mut() else { return (0, 0) };
        let attached = &served.attached;
        let Some(member) = attached.switch.member(attached.index) else { return (0, 0) };
        let in_memory = attached.source.signal().in_memory();
        let (batch, mut moved) = (self.batch as u64, 0);
        let bytes = member.port.counters().in_bytes();
        served.more = false;
        self.at = index;
        // A port whose ring is short has its turn in several passes.
        while moved < u64::from(attached.weight) * batch {
            if in_memory && !if EXAMINED { Self::is_pending_examined(input, source) } else { input.pending() } {
                break;
            }
            let passed = if EXAMINED {
                Self::pass_examined(&self.meter, attached, member, input, &mut self.work, &self.now, source)
            } else {
                pass(&attached.switch, member, input, &mut self.work, &self.now)
            };
            moved += passed.frames;
            served.waits = passed.until;
            if passed.fault.is_some() || passed.receiver_fault {
                if let Some(fault) = passed.fault {
                    member.port.fail(fault);
                    served.input = None;
                }
                let _ = rustix::io::write(&self.shared.faults, &1u64.to_ne_bytes());
                break;
            }
            served.more = passed.more || passed.frames >= batch;
            if !served.more || passed.until.is_some() {
                break;
            }
        }
        self.at = NOBODY;
        (moved, bytes)
    }

    /// Passes that moved frames.
    pub(crate) fn passes(&self) -> u64 {
        self.state.account.passes.load(Ordering::Relaxed)
    }

    /// What is served now.
    pub(crate) fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The weights of all active ports together.
    pub(crate) fn active_weight(&self) -> u64 {
        let weight = |&index: &usize| self.served[index].as_ref().map_or(0, |served| served.attached.weight.into());
        self.active.iter().map(weight).sum()
    }

    /// Looks at a parked port, and takes the time. True when that took too long, so that the port waits now.
    #[cold]
    fn look_examined(&mut self, index: usize) -> bool {
        let mut source = Spent::default();
        if let Some(Served { input: Some(input), .. }) = self.served[index].as_mut() {
            self.at = index;
            Self::is_pending_examined(&mut **input, &mut source);
            self.at = NOBODY;
        }
        self.work.examine(true);
        self.charge_visit(index, source);
        self.work.examine(false);
        let Some(until) = self.served[index].as_ref().and_then(|served| served.waits) else { return false };
        self.parked.retain(|&parked| parked != index);
        self.waiting.push(Reverse((until, index)));
        true
    }

    /// Asks every port that was not asked yet for a kick; false when nobody may sleep: a port has frames already, or
    /// there is something new to adopt.
    fn may_sleep(&mut self) -> bool {
        if !self.waiting_may_sleep() {
            return false;
        }
        let mut busy = None;
        for place in 0..self.active.len() {
            let index = self.active[place];
            if self.arm(index) {
                busy = Some(index);
                break;
            }
        }
        if busy.is_some() {
            self.disarm_active();
            return false;
        }
        for place in 0..self.parked.len() {
            let index = self.parked[place];
            if self.arm(index) {
                self.parked.swap_remove(place);
                self.activate(index);
                self.disarm_active();
                return false;
            }
        }
        for place in 0..self.active.len() {
            if let Some(served) = self.served[self.active[place]].as_mut() {
                served.active = false;
            }
        }
        self.parked.append(&mut self.active);
        self.shared.topology.version() == self.version && !self.shared.stop.load(Ordering::Relaxed)
    }

    /// The active ports stay so: takes the wishes for their kicks back. One that stayed armed would not be asked again, also
    /// when its kick has come and gone meanwhile.
    fn disarm_active(&mut self) {
        for place in 0..self.active.len() {
            self.disarm(self.active[place]);
        }
    }

    /// True when the port has frames already.
    fn arm(&mut self, index: usize) -> bool {
        self.time(index, |poller| poller.ask_for_kick(index))
    }

    fn ask_for_kick(&mut self, index: usize) -> bool {
        if self.is_keeper() && self.port(index).is_some_and(|port| !port.may_sleep()) {
            return true;
        }
        let Some(served) = self.served[index].as_mut().filter(|served| !served.armed) else { return false };
        let Some(input) = served.input.as_mut() else { return false };
        served.armed = true;
        self.at = index;
        let pending = input.arm();
        let needs_looks = !served.watched && input.needs_looks();
        self.at = NOBODY;
        if needs_looks {
            served.watched = true;
            self.watched.push(index);
        }
        pending
    }

    /// Looks at the ports whose clients cannot kick. True when one has frames.
    fn look_at_watched(&mut self) -> bool {
        let (mut place, mut found) = (0, false);
        while place < self.watched.len() {
            let index = self.watched[place];
            // Another may have its place now, or it is active since.
            let Some(served) = self.served[index].as_mut().filter(|served| served.watched) else {
                self.watched.swap_remove(place);
                continue;
            };
            // One that is set aside is asked for kicks again when it comes back.
            let armed = served.armed && served.waits.is_none();
            let pending = armed && self.time(index, |poller| poller.is_pending(index));
            if armed && !pending {
                place += 1;
                continue;
            }
            if let Some(served) = self.served[index].as_mut() {
                served.watched = false;
            }
            self.watched.swap_remove(place);
            if pending {
                found = true;
                self.parked.retain(|&parked| parked != index);
                self.activate(index);
            }
        }
        found
    }

    /// Waits for descriptors and makes the ports they belong to active. True when nothing but the timer ended the wait.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let mut events = [const { epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 64];
        let timeout = timeout.map(|t| rustix::event::Timespec { tv_sec: 0, tv_nsec: t.subsec_nanos().into() });
        // An interrupted wait is a short one.
        let count = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()).unwrap_or(0);
        let mut by_timer = false;
        for event in &events[..count] {
            let token = event.data.u64();
            if token == TIMER_TOKEN {
                by_timer = true;
                self.timer.went();
            }
            let Some(served) = self.served.get_mut(token as usize).and_then(Option::as_mut) else { continue };
            if served.attached.source.signal().in_memory()
                && let Some(member) = served.attached.switch.member(served.attached.index)
            {
                member.port.counters().add_kick();
            }
            if !served.active && served.waits.is_none() {
                let index = token as usize;
                if let Some(place) = self.parked.iter().position(|&parked| parked == index) {
                    self.parked.swap_remove(place);
                }
                self.activate(index);
            }
        }
        by_timer && count == 1
    }

    /// Takes over the newest topology: keeps what stays, lets go of what went, takes what is new.
    #[cold]
    fn adopt(&mut self) {
        let (topology, version) = self.shared.topology.get();
        if self.shared.upset.swap(false, Ordering::Acquire) {
            panic!("injected: poller");
        }
        // Their limits may be others now.
        self.resume(u64::MAX);
        let mut gone = std::mem::take(&mut self.places);
        self.waiting_for_input = false;
        self.devices = false;
        let number = self.state.number;
        let pollers = self.shared.pollers;
        for attached in topology.ports.iter().filter(|attached| place(attached, pollers) == number) {
            let id = attached.source.id();
            let index = match gone.remove(&id) {
                Some(index) => index,
                None => self.admit(attached),
            };
            self.places.insert(id, index);
            self.devices |= !attached.source.signal().in_memory();
            let Some(served) = self.served[index].as_mut() else { continue };
            served.attached = attached.clone();
            if served.input.is_none() {
                served.input = attached.source.take(&self.state);
                self.waiting_for_input |= served.input.is_none();
                // It may have been parked, and asked for a kick, without its input; a device then tells of nothing again.
                if !served.active {
                    self.parked.retain(|&parked| parked != index);
                    self.activate(index);
                }
            }
        }
        for index in gone.into_values() {
            self.let_go(index);
        }
        self.topology = topology;
        self.work.calls.reconsider();
        self.version = version;
        self.state.load.store(self.places.len(), Ordering::Relaxed);
        self.state.account.adopted.store(version, Ordering::Release);
    }

    /// Gives a new port a place, active so that it is looked at at once.
    fn admit(&mut self, attached: &Attached) -> usize {
        // `adopt` takes the input.
        let served = Served {
            attached: attached.clone(),
            input: None,
            active: true,
            armed: false,
            watched: false,
            idle: 0,
            pacing: Pacing::new(),
            waits: None,
            aside: 0,
            more: false,
        };
        let index = match self.vacant.pop() {
            Some(index) => index,
            None => {
                self.served.push(None);
                self.served.len() - 1
            }
        };
        let data = EventData::new_u64(index as u64);
        // A descriptor that cannot be waited for still works while the poller is awake; sources hand over good ones.
        let _ = epoll::add(&self.epoll, attached.source.signal().fd(), data, EventFlags::IN | EventFlags::ET);
        self.served[index] = Some(served);
        self.active.push(index);
        index
    }

    /// The port belongs to another poller now, or to nobody.
    fn let_go(&mut self, index: usize) {
        self.disarm(index);
        let Some(mut served) = self.served[index].take() else { return };
        let _ = epoll::delete(&self.epoll, served.attached.source.signal().fd());
        self.active.retain(|&active| active != index);
        self.parked.retain(|&parked| parked != index);
        self.next_look = 0;
        self.vacant.push(index);
        if let Some(input) = served.input.take() {
            served.attached.source.put_back(input);
        }
    }
}
