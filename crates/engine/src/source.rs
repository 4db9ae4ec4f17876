//! A port's input, and its hand-over between pollers.
//!
//! An input belongs to one poller at a time. A port moves when a new topology gives it to another poller: the old poller puts
//! the input back, and the new poller takes it. The new poller may ask for the input while the old one still works with it: the new poller then sleeps
//! like any other, and is woken when the input is put back. Order within a flow is kept, because a pass has delivered
//! everything before the input moves. An output is behind its port's lock, and any poller may feed it.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_switch::{FrameDirection, Input, Port, contain};

use crate::budget::{Budget, Excess, Share, SlowReading, Verdict};
use crate::clock;
use crate::contain::warn_limited;
use crate::poller_state::PollerState;
use crate::watch::Watch;

/// How a client announces frames.
#[derive(Debug)]
pub enum Signal {
    /// In memory, which the poller reads while it is awake, and by these eventfds if the poller asked for a kick.
    Kick(Watch),
    /// In memory, and by the readiness of these descriptors. A wake-up by that is no kick.
    Watched(Watch),
    /// By the readiness of these descriptors of a device only.
    Device(Watch),
}

impl Signal {
    /// The descriptors that a sleeping poller waits for.
    pub(crate) fn watch(&self) -> &Watch {
        match self {
            Self::Kick(watch) | Self::Watched(watch) | Self::Device(watch) => watch,
        }
    }

    pub(crate) fn in_memory(&self) -> bool {
        !matches!(self, Self::Device(_))
    }
}

/// A port's input. The poller that takes it owns it until it puts it back.
pub struct Source {
    id: u64,
    signal: Signal,
    custody: Mutex<Custody>,
    time: Mutex<TimeAccount>,
    /// The number of the poller that serves the port in quarantine. 0: the port is not in quarantine.
    quarantine_poller: AtomicUsize,
}

/// The time that the port costs pollers.
#[derive(Debug, Default)]
pub(crate) struct TimeAccount {
    budget: Budget,
    /// By direction: the port's time within its allowances when a visit last took too long.
    within: [u64; 2],
    /// The value of [`SlowReading::times`] at the last [`Source::newly_slow`].
    reported_times: u64,
}

impl TimeAccount {
    /// The port's time within its allowances in this direction since the last call.
    pub(crate) fn within(&mut self, direction: FrameDirection, port: &Port) -> u64 {
        let now = port.time_within(direction);
        now.wrapping_sub(std::mem::replace(&mut self.within[direction as usize], now))
    }

    /// Charges the port. Returns the verdict, and true if the port became slow by it.
    pub(crate) fn charge(&mut self, now: u64, excess: Excess, share: Share) -> (Verdict, bool) {
        let before = self.budget.read(now).times;
        let verdict = self.budget.charge(now, excess, share);
        (verdict, self.budget.read(now).times > before)
    }
}

/// The input while no poller has it.
struct Custody {
    input: Option<Box<dyn Input>>,
    /// The input of a port that has ended.
    ended: Option<Box<dyn Input>>,
    /// Pollers that asked for the input while another had it. All are woken, even those that no longer need it.
    waiting: Vec<Arc<PollerState>>,
}

impl Source {
    /// A source that no poller serves yet.
    #[must_use]
    pub fn new(input: Box<dyn Input>, signal: Signal) -> Source {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let custody = Custody { input: Some(input), ended: None, waiting: Vec::new() };
        Source {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            signal,
            custody: Mutex::new(custody),
            time: Mutex::default(),
            quarantine_poller: AtomicUsize::new(0),
        }
    }

    /// The state of the port's time budget, with counters since the port was made.
    #[must_use]
    pub fn slow(&self) -> SlowReading {
        self.time().budget.read(clock::nanoseconds())
    }

    /// Returns the same reading as [`Source::slow`] if the port has become slow since the last call of this function.
    #[must_use]
    pub fn newly_slow(&self) -> Option<SlowReading> {
        let mut time = self.time();
        let reading = time.budget.read(clock::nanoseconds());
        (std::mem::replace(&mut time.reported_times, reading.times) != reading.times).then_some(reading)
    }

    /// The number of the poller that serves the port in quarantine. `None`: the port is not in quarantine.
    pub(crate) fn quarantine_poller(&self) -> Option<usize> {
        Some(self.quarantine_poller.load(Ordering::Acquire)).filter(|&poller| poller > 0)
    }

    pub(crate) fn set_quarantine_poller(&self, poller: Option<usize>) {
        self.quarantine_poller.store(poller.unwrap_or(0), Ordering::Release);
    }

    /// Returns true if the port's budget keeps it in quarantine at `now`.
    pub(crate) fn is_quarantined(&self, now: u64) -> bool {
        self.time().budget.read(now).quarantined
    }

    /// Returns true if the port is slow at `now`.
    pub(crate) fn is_slow(&self, now: u64) -> bool {
        self.time().budget.read(now).slow
    }

    pub(crate) fn time(&self) -> MutexGuard<'_, TimeAccount> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Takes the input. `None`: another poller has it, and `poller` is woken, with `returned` set, as soon as it is put back.
    pub(crate) fn take(&self, poller: &Arc<PollerState>) -> Option<Box<dyn Input>> {
        let mut custody = self.custody.lock().unwrap_or_else(PoisonError::into_inner);
        let input = custody.input.take();
        if input.is_none() && !custody.waiting.iter().any(|waiting| Arc::ptr_eq(waiting, poller)) {
            custody.waiting.push(Arc::clone(poller));
        }
        input
    }

    /// Puts the input back and wakes the pollers that wait for it.
    pub(crate) fn put_back(&self, input: Box<dyn Input>) {
        let mut custody = self.custody.lock().unwrap_or_else(PoisonError::into_inner);
        custody.input = Some(input);
        for poller in custody.waiting.drain(..) {
            poller.returned.store(true, Ordering::Release);
            poller.wake();
        }
    }

    /// Keeps the input of a port that has ended until the reaper drops this: what the drop closes (a client's memory, a device's
    /// sockets) can take long. No poller takes the input any more.
    pub(crate) fn end(&self, input: Box<dyn Input>) {
        self.custody.lock().unwrap_or_else(PoisonError::into_inner).ended = Some(input);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let custody = self.custody.get_mut().unwrap_or_else(PoisonError::into_inner);
        for input in [custody.input.take(), custody.ended.take()].into_iter().flatten() {
            // The port is removed already: a panic while its input is dropped must not end the thread.
            if let Err(place) = contain(|| drop(input)) {
                warn_limited(&format!(
                    "a defect of Ringway, please report it: the input of a removed port failed at {place}"
                ));
            }
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("id", &self.id).field("signal", &self.signal).finish_non_exhaustive()
    }
}
