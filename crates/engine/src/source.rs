//! A port's input, or a mover, and its hand-over between pollers.
//!
//! An input belongs to one thread of a poller at a time, which holds it for a visit and leaves it here between visits. A port moves when a new
//! topology gives it to another poller: the old poller puts the input back, and the new poller takes it. The new poller may ask for the input
//! while the old one still works with it: the new poller then sleeps like any other, and is woken when the input is put back. An input that nobody
//! holds can also be taken away, from a thread that the kernel keeps ([`crate::relieving`]). Order within a flow is kept, because a pass has delivered
//! everything before the input moves. An output is behind its port's lock, and any poller may feed it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use ringway_runtime::clock;
use ringway_runtime::contain::warn_limited;
use ringway_runtime::{Mover, Signal};
use ringway_switch::{Armed, FrameDirection, Input, Port, WakeOn, contain};

use crate::budget::{Budget, Excess, Share, SlowReading, Verdict};
use crate::client::{Client, Memory};
use crate::poller_state::{PollerState, Shift};

/// A port's input, or a mover. The thread that takes it owns it until it puts it back, or it is taken away.
pub struct Source {
    id: u64,
    signal: Signal,
    custody: Mutex<Custody>,
    /// Whose the input is: [`Shift::id`], or 0. Changes under the lock of the custody. Nobody but the owner tries that lock while there is one,
    /// unless the owner is relieved.
    owner: AtomicU64,
    /// Pollers that asked for the input while another had it. All are woken, even those that no longer need it.
    waiting: Mutex<Vec<Arc<PollerState>>>,
    time: Mutex<TimeAccount>,
    /// The number of the poller that serves the port in quarantine. 0: the port is not in quarantine.
    quarantine_poller: AtomicUsize,
    /// Whose memory the port's is ([`crate::stall`]).
    memory: Arc<Memory>,
    /// No thread begins to use the input.
    is_shut: AtomicBool,
    /// The port got a detour when it was shut.
    has_shut_detour: AtomicBool,
    /// Frames for the port take a detour until a thread that has its output is let go.
    is_diverted: AtomicBool,
    /// Calls that were due were perhaps not made.
    owes_calls: AtomicBool,
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

/// What a poller uses to serve a client.
pub(crate) enum Work {
    /// The input of a port of a switch.
    Port(Box<dyn Input>),
    Mover(Box<dyn Mover>),
}

/// What the owner uses.
pub(crate) struct Custody {
    pub(crate) work: Option<Work>,
    /// That of a client that has ended.
    ended: Option<Work>,
}

impl Custody {
    /// Returns the input of a port.
    #[inline]
    pub(crate) fn input(&mut self) -> Option<&mut dyn Input> {
        match &mut self.work {
            Some(Work::Port(input)) => Some(&mut **input),
            _ => None,
        }
    }

    /// Returns true if the client's memory shows frames or events.
    #[inline]
    pub(crate) fn pending(&mut self) -> bool {
        match self.input() {
            Some(input) => input.pending(),
            None => self.mover().is_some_and(Mover::pending),
        }
    }

    /// Asks the client for a kick. A mover has no events beside frames. `None`: the client has ended.
    pub(crate) fn arm(&mut self, wake_on: WakeOn) -> Option<Armed> {
        match (self.input(), wake_on) {
            (Some(input), _) => Some(input.arm(wake_on)),
            (None, WakeOn::Frames) => self.mover().map(|mover| Armed::with_kick(mover.arm())),
            (None, WakeOn::Events) => self.mover().map(|_| Armed::Kick),
        }
    }

    pub(crate) fn disarm(&mut self) {
        match self.input() {
            Some(input) => input.disarm(),
            None => self.mover().into_iter().for_each(Mover::disarm),
        }
    }

    /// Returns the mover.
    #[cold]
    pub(crate) fn mover(&mut self) -> Option<&mut dyn Mover> {
        match &mut self.work {
            Some(Work::Mover(mover)) => Some(&mut **mover),
            _ => None,
        }
    }

    /// Keeps the input of a port that has ended until the reaper drops this: what the drop closes (a client's memory, a device's
    /// sockets) can take long. No poller uses the input any more.
    pub(crate) fn end(&mut self) {
        self.ended = self.work.take();
    }
}

impl Source {
    /// The source of a port that no poller serves yet.
    #[must_use]
    pub fn new(input: Box<dyn Input>, signal: Signal) -> Source {
        Source::of(Work::Port(input), signal)
    }

    /// The source of a mover that no poller serves yet.
    #[must_use]
    pub fn of_mover(mover: Box<dyn Mover>, signal: Signal) -> Source {
        Source::of(Work::Mover(mover), signal)
    }

    fn of(work: Work, signal: Signal) -> Source {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let custody = Custody { work: Some(work), ended: None };
        Source {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            signal,
            custody: Mutex::new(custody),
            owner: AtomicU64::new(0),
            waiting: Mutex::default(),
            time: Mutex::default(),
            quarantine_poller: AtomicUsize::new(0),
            memory: Arc::default(),
            is_shut: AtomicBool::new(false),
            has_shut_detour: AtomicBool::new(false),
            is_diverted: AtomicBool::new(false),
            owes_calls: AtomicBool::new(false),
        }
    }

    /// Names the client whose memory the port's is, and perhaps that of other ports.
    pub fn set_client(&self, client: Arc<Client>) {
        self.memory.set_client(client);
    }

    /// Whose memory the port's is.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Returns true while the port is shut.
    #[inline]
    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Acquire)
    }

    /// No thread begins to use the input from now on. `begins_detour` gives the port a detour, if it has none.
    pub(crate) fn shut(&self, begins_detour: impl FnOnce() -> bool) {
        if !self.is_shut.swap(true, Ordering::AcqRel) {
            self.has_shut_detour.store(begins_detour(), Ordering::Relaxed);
        }
    }

    /// Threads use the input again. `end_detour` ends the detour, if it was for this. Returns true if the port was shut.
    pub(crate) fn open(&self, end_detour: impl FnOnce()) -> bool {
        if !self.is_shut() {
            return false;
        }
        if self.has_shut_detour.swap(false, Ordering::Relaxed) {
            end_detour();
        }
        self.owe_calls();
        self.is_shut.store(false, Ordering::Release);
        true
    }

    /// Frames for the port take the detour that it has got for this, until [`Source::end_diversion`].
    pub(crate) fn begin_diversion(&self) {
        self.is_diverted.store(true, Ordering::Release);
    }

    pub(crate) fn end_diversion(&self) {
        self.is_diverted.store(false, Ordering::Release);
    }

    /// Returns true if frames for the port take a detour as a thread has its output.
    pub(crate) fn is_diverted(&self) -> bool {
        self.is_diverted.load(Ordering::Acquire)
    }

    /// Has the poller that serves the port ask its client anew when it adopts a topology.
    pub(crate) fn owe_calls(&self) {
        self.owes_calls.store(true, Ordering::Relaxed);
    }

    /// Returns true if calls were perhaps not made, once.
    pub(crate) fn takes_owed_calls(&self) -> bool {
        self.owes_calls.load(Ordering::Relaxed) && self.owes_calls.swap(false, Ordering::Relaxed)
    }

    /// Charges the port for a time in which the kernel kept a thread in its memory. Its share of that thread is one part of `parts`. Returns true if
    /// the port became slow by it.
    pub(crate) fn charge_stall(&self, now: u64, nanoseconds: u64, parts: u64) -> bool {
        let (excess, share) = (Excess { nanoseconds, stalled: true, within: 0 }, Share { weight: 1, of: parts });
        self.time().charge(now, excess, share).1
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

    /// Makes the input that of the thread `shift` of `poller`. False: another has it, and `poller` is woken, with `returned` set, as soon as it is
    /// put back. A thread that was relieved takes none: its successor may have taken its inputs away already.
    pub(crate) fn take(&self, poller: &Arc<PollerState>, shift: &Shift) -> bool {
        // Before the look: who puts the input back afterwards finds the poller.
        let is_it = |waiting: &Arc<PollerState>| Arc::ptr_eq(waiting, poller);
        let mut waiting = self.waiting();
        if !waiting.iter().any(is_it) {
            waiting.push(Arc::clone(poller));
        }
        drop(waiting);
        if self.owner.load(Ordering::Acquire) != 0 {
            return false;
        }
        let Some(custody) = self.try_lock() else {
            // A thread that no longer owns the input has it for a moment, and wakes nobody: this one looks again.
            poller.returned.store(true, Ordering::Release);
            return false;
        };
        if self.owner.load(Ordering::Relaxed) != 0 || custody.work.is_none() {
            return false;
        }
        self.owner.store(shift.id, Ordering::Relaxed);
        drop(custody);
        self.waiting().retain(|waiting| !is_it(waiting));
        // Against the successor, which has the thread relieved before it takes its inputs away.
        fence(Ordering::SeqCst);
        if shift.is_relieved() {
            self.put_back(shift);
            // What was removed above was perhaps the successor's.
            poller.note_returned();
            return false;
        }
        true
    }

    /// The input, for the thread that owns it. It is this thread's until the guard is dropped, and cannot be taken away meanwhile.
    #[inline]
    pub(crate) fn hold(&self, shift: &Shift) -> Option<MutexGuard<'_, Custody>> {
        if self.is_shut() { None } else { self.hold_even_if_shut(shift) }
    }

    /// As [`Source::hold`], for a thread that touches no memory of the port's client.
    #[inline]
    pub(crate) fn hold_even_if_shut(&self, shift: &Shift) -> Option<MutexGuard<'_, Custody>> {
        // Who does not own the input must not lock it, also not for a moment: its owner would find it locked.
        if self.owner.load(Ordering::Relaxed) != shift.id {
            return None;
        }
        let custody = self.try_lock()?;
        shift.using.store(self.id, Ordering::Relaxed);
        (self.owner.load(Ordering::Relaxed) == shift.id).then_some(custody)
    }

    /// Returns true if this thread holds the input.
    pub(crate) fn is_held_by(&self, shift: &Shift) -> bool {
        self.owner.load(Ordering::Relaxed) == shift.id && self.try_lock().is_none()
    }

    /// Puts the input back and wakes the pollers that wait for it.
    pub(crate) fn put_back(&self, shift: &Shift) {
        if self.owner.load(Ordering::Acquire) != shift.id {
            return;
        }
        self.disown(self.custody.lock().unwrap_or_else(PoisonError::into_inner), shift);
    }

    /// Takes the input away from a thread, unless that holds it at this moment, and wakes the pollers that wait for it.
    pub(crate) fn take_away(&self, shift: &Shift) {
        fence(Ordering::SeqCst);
        if self.owner.load(Ordering::Acquire) == shift.id
            && let Some(custody) = self.try_lock()
        {
            self.disown(custody, shift);
        }
    }

    fn disown(&self, custody: MutexGuard<'_, Custody>, shift: &Shift) {
        if self.owner.load(Ordering::Relaxed) != shift.id {
            return;
        }
        self.owner.store(0, Ordering::Release);
        drop(custody);
        self.waiting().drain(..).for_each(|poller| poller.note_returned());
    }

    /// A thread that panicked while it held the input leaves an input that nobody uses again: its poller takes it out.
    fn try_lock(&self) -> Option<MutexGuard<'_, Custody>> {
        match self.custody.try_lock() {
            Ok(custody) => Some(custody),
            Err(TryLockError::Poisoned(custody)) => Some(custody.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<PollerState>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let custody = self.custody.get_mut().unwrap_or_else(PoisonError::into_inner);
        for work in [custody.work.take(), custody.ended.take()].into_iter().flatten() {
            // The port is removed already: a panic while its input is dropped must not end the thread.
            if let Err(place) = contain(|| drop(work)) {
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

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
