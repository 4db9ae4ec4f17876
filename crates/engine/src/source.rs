//! Where a poller's frames come from.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_switch::{Counters, Input, Switch, contain};

use crate::budget::{Budget, Excess, Share, SlowReading, Verdict};
use crate::clock;
use crate::contain::say_rarely;
use crate::engine::PollerState;

/// How a client makes itself heard.
#[derive(Debug)]
pub enum Signal {
    /// By memory, which the poller watches while it is awake, and by this eventfd when it asked for a kick.
    Kick(OwnedFd),
    /// By this device's readiness alone.
    Device(OwnedFd),
}

impl Signal {
    /// The descriptor to wait for.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kick(fd) | Self::Device(fd) => fd.as_fd(),
        }
    }

    pub(crate) fn in_memory(&self) -> bool {
        matches!(self, Self::Kick(_))
    }
}

/// A port's input. Whoever takes it owns it until it is put back.
pub struct Source {
    id: u64,
    signal: Signal,
    place: Mutex<Place>,
    conduct: Mutex<Conduct>,
    /// The number of the poller that serves it in quarantine; 0: it is not in quarantine.
    keeper: AtomicUsize,
}

/// Which way frames went in a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// From the port.
    In,
    /// To it.
    Out,
}

/// What the port costs pollers.
#[derive(Debug, Default)]
pub(crate) struct Conduct {
    budget: Budget,
    /// Frames that had come in and gone out when it last took too long for some.
    frames: [u64; 2],
    /// How often it had become slow when that was asked last.
    told: u64,
}

impl Conduct {
    /// About how many visits there were since this was asked last, of `frames` frames each.
    pub(crate) fn visits(&mut self, side: Side, frames: u64, counters: &Counters) -> u64 {
        let now = match side {
            Side::In => counters.in_frames(),
            Side::Out => counters.out_frames(),
        };
        now.wrapping_sub(std::mem::replace(&mut self.frames[side as usize], now)) / frames.max(1)
    }

    /// Charges it. Also whether it became slow by that.
    pub(crate) fn charge(&mut self, now: u64, excess: Excess, share: Share) -> (Verdict, bool) {
        let before = self.budget.read(now).times;
        let verdict = self.budget.charge(now, excess, share);
        (verdict, self.budget.read(now).times > before)
    }
}

/// Where an input is while nobody has it.
struct Place {
    input: Option<Box<dyn Input>>,
    /// Pollers that came for it while another had it; one that has lost interest since is no trouble.
    waiting: Vec<Arc<PollerState>>,
}

impl Source {
    /// A source nobody serves yet.
    #[must_use]
    pub fn new(input: Box<dyn Input>, signal: Signal) -> Source {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let place = Place { input: Some(input), waiting: Vec::new() };
        let (conduct, keeper) = (Mutex::default(), AtomicUsize::new(0));
        Source { id: NEXT.fetch_add(1, Ordering::Relaxed), signal, place: Mutex::new(place), conduct, keeper }
    }

    /// Whether its port takes pollers too much time.
    #[must_use]
    pub fn slow(&self) -> SlowReading {
        self.conduct().budget.read(clock::nanoseconds())
    }

    /// The same, if its port became slow since this was asked last: for whoever tells the world.
    #[must_use]
    pub fn newly_slow(&self) -> Option<SlowReading> {
        let mut conduct = self.conduct();
        let reading = conduct.budget.read(clock::nanoseconds());
        (std::mem::replace(&mut conduct.told, reading.times) != reading.times).then_some(reading)
    }

    /// Who serves it in quarantine, if anybody does.
    pub(crate) fn keeper(&self) -> Option<usize> {
        Some(self.keeper.load(Ordering::Acquire)).filter(|&keeper| keeper > 0)
    }

    pub(crate) fn set_keeper(&self, keeper: Option<usize>) {
        self.keeper.store(keeper.unwrap_or(0), Ordering::Release);
    }

    /// Whether its port is in quarantine as of `now`.
    pub(crate) fn is_quarantined(&self, now: u64) -> bool {
        self.conduct().budget.read(now).quarantined
    }

    /// Whether its port is slow as of `now`.
    pub(crate) fn is_slow(&self, now: u64) -> bool {
        self.conduct().budget.read(now).slow
    }

    pub(crate) fn conduct(&self) -> MutexGuard<'_, Conduct> {
        self.conduct.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// The input. When another poller has it, `poller` is woken, with `returned` set, as soon as it is there.
    pub(crate) fn take(&self, poller: &Arc<PollerState>) -> Option<Box<dyn Input>> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let input = place.input.take();
        if input.is_none() && !place.waiting.iter().any(|waiting| Arc::ptr_eq(waiting, poller)) {
            place.waiting.push(Arc::clone(poller));
        }
        input
    }

    pub(crate) fn put_back(&self, input: Box<dyn Input>) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        place.input = Some(input);
        for poller in place.waiting.drain(..) {
            poller.returned.store(true, Ordering::Release);
            poller.wake();
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let place = self.place.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The port has gone: a panic of its input's end is nobody's, and must not cost whoever drops it.
        if let Some(input) = place.input.take()
            && let Err(place) = contain(|| drop(input))
        {
            say_rarely(&format!("a defect of Ringway, please report it: a port that ended failed at {place}"));
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("id", &self.id).field("signal", &self.signal).finish_non_exhaustive()
    }
}

/// A port in a topology.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The switch as of this topology.
    pub switch: Arc<Switch>,
    /// The port's index in it.
    pub index: u16,
    /// Its input.
    pub source: Arc<Source>,
    /// Which poller serves it, modulo their number.
    pub poller: usize,
    /// Batches per round, at least 1.
    pub weight: u32,
}
