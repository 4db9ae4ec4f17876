//! What the switch knows of a port.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;

use super::bell::{Asked, Bell};
use super::counters::Counters;
use super::detour::Detour;
use super::event::News;
use super::fault::PortFault;
use super::moderation::{Entry, Moderated, Moderation};
use super::output::Output;
use super::ring::{Pending, Rung};
use crate::batch::Frames;
use crate::defect::{Defect, contain};
use crate::frame::DropReason;
use crate::policy::congestion::Congestion;
use crate::time::Time;

/// How often [`Port::retire`] tries to get an output that another poller has.
const TRIES: usize = 1000;
/// After this many nanoseconds, a client that could not be asked is asked again.
const ASK_AGAIN: u64 = 10_000;

/// One port: what any poller may reach.
pub struct Port {
    name: String,
    counters: Counters,
    output: Mutex<Box<dyn Output>>,
    bell: Box<dyn Bell>,
    moderation: Moderated,
    congestion: Congestion,
    /// Most frames of its next batch; 0: as many as fit.
    probe: AtomicU16,
    fault: Mutex<Option<PortFault>>,
    /// A panic cost it its place: nothing of it is called any more.
    is_retired: AtomicBool,
    /// Its output was replaced by one that refuses everything.
    is_aside: AtomicBool,
    /// Where its frames and calls are left while one thread alone touches its memory.
    detour: Detour,
}

impl Port {
    /// A port of any kind.
    #[must_use]
    pub fn new(name: impl Into<String>, output: Box<dyn Output>, bell: Box<dyn Bell>) -> Self {
        let (name, output) = (name.into(), Mutex::new(output));
        let (counters, moderation) = (Counters::default(), Moderated::default());
        let congestion = Congestion::default();
        let probe = AtomicU16::new(0);
        let (fault, is_retired, is_aside) = (Mutex::new(None), AtomicBool::new(false), AtomicBool::new(false));
        Self {
            name,
            counters,
            output,
            bell,
            moderation,
            congestion,
            probe,
            fault,
            is_retired,
            is_aside,
            detour: Detour::default(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its counters.
    #[inline]
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Who shares it while it is too slow.
    #[inline]
    pub(crate) fn congestion(&self) -> &Congestion {
        &self.congestion
    }

    /// Delivers nothing to it before `until`: frames for it are lost as `receiver_slow`. In nanoseconds of the pollers' clock.
    pub fn set_aside(&self, until: u64) {
        self.congestion.set_aside(until);
    }

    /// Has frames and calls for it left for one thread, which [empties](crate::empty) the detour and is woken by `waker`. False
    /// when there is no memory for one more.
    pub fn begin_detour(&self, waker: Waker) -> bool {
        let begun = self.detour.begin(waker);
        if begun {
            self.congestion.divert(true);
        }
        begun
    }

    /// Has it served by everybody again, if nothing is left. For the thread that empties the detour.
    pub fn end_detour(&self) -> bool {
        let ended = self.detour.end();
        if ended {
            self.congestion.divert(false);
        }
        ended
    }

    /// The same whatever is left, when no poller runs: that is lost.
    pub fn abandon_detour(&self) {
        if self.detour.is_on() {
            self.counters.drop_out(DropReason::ReceiverSlow, self.detour.abandon());
            self.congestion.divert(false);
        }
    }

    /// Where frames for it are left, if they are.
    #[inline]
    pub(crate) fn detour(&self) -> &Detour {
        &self.detour
    }

    /// Whether something is left for it.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.detour.has_something()
    }

    /// Asks to be woken when something is left for it; false when something is already.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        self.detour.may_sleep()
    }

    /// Most frames of its next batch; 0: as many as fit.
    #[inline]
    pub(crate) fn probe(&self) -> u16 {
        self.probe.load(Ordering::Relaxed)
    }

    pub(crate) fn set_probe(&self, frames: u16) {
        self.probe.store(frames, Ordering::Relaxed);
    }

    /// Its output, locked. One that somebody had in a panic is not used any more: frames for it are counted and dropped.
    #[inline]
    pub(crate) fn output(&self) -> MutexGuard<'_, Box<dyn Output>> {
        self.output.lock().unwrap_or_else(|poisoned| self.put_aside(poisoned.into_inner()))
    }

    /// Whether somebody had the output in a panic, and nobody was blamed for it yet.
    pub(crate) fn is_output_broken(&self) -> bool {
        self.output.is_poisoned()
    }

    /// Replaces an output that may be half done with anything. It stays poisoned until somebody is blamed.
    #[cold]
    fn put_aside<'a>(&self, mut output: MutexGuard<'a, Box<dyn Output>>) -> MutexGuard<'a, Box<dyn Output>> {
        if !self.is_aside.swap(true, Ordering::Relaxed) {
            let broken = std::mem::replace(&mut *output, Box::new(Refusing(None)));
            // It goes with the port: dropping it here could take long.
            *output = Box::new(Refusing(Some(broken)));
        }
        output
    }

    /// After a panic that cost the port its place: it is given nothing and called no more until it is replaced. `lost` frames
    /// that it was being given are counted.
    #[cold]
    pub fn retire(&self, defect: Defect, lost: u64) {
        self.fail(PortFault::InternalError(defect));
        if self.is_retired.swap(true, Ordering::Relaxed) {
            return;
        }
        self.moderation.set(NEVER);
        for _ in 0..TRIES {
            let output = match self.output.try_lock() {
                Ok(output) => output,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    // Another poller gives it frames. Where that lasts, the port is replaced all the same.
                    std::hint::spin_loop();
                    continue;
                }
            };
            self.counters.drop_out(DropReason::InternalError, lost);
            let _output = self.put_aside(output);
            self.output.clear_poison();
            return;
        }
    }

    /// Whether a panic cost it its place.
    #[inline]
    fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Moderates its calls from now on. Pollers look at calls that are pending already when they adopt a topology.
    pub fn set_moderation(&self, moderation: Moderation) {
        if self.is_retired() {
            return;
        }
        let by_bell = self.bell.moderate(moderation);
        self.moderation.set(if by_bell { Moderation::default() } else { moderation });
    }

    /// Wakes the client if it asked for this. None: its calls are moderated, and [`Port::ring`] goes on.
    #[inline(always)]
    pub(crate) fn ring_at_once(&self, news: News) -> Option<Asked> {
        (self.moderation.interval() == 0).then(|| self.bell.ring(news))
    }

    /// Wakes the client if it asked for this, now or when moderation allows, after [`Port::ring_at_once`] has `asked`.
    pub(crate) fn ring(&self, asked: Option<Asked>, news: News, time: &Time) -> Rung {
        let Some(asked) = asked else { return self.ring_moderated(news, time) };
        match asked {
            Asked::Unwanted => Rung::Done,
            Asked::Called => self.called(),
            Asked::Later { due, called } => self.later(due, called),
            Asked::Busy => match self.moderation.gate(news).postpone() {
                Some(last) => self.pending(last, time.nanoseconds + ASK_AGAIN),
                None => Rung::Done,
            },
        }
    }

    fn ring_moderated(&self, news: News, time: &Time) -> Rung {
        if self.is_retired() {
            return Rung::Done;
        }
        let interval = self.moderation.interval();
        let frames = match news {
            News::Frames => self.counters.out_frames(),
            News::Room => self.counters.in_frames(),
        };
        let gate = self.moderation.gate(news);
        let entry = match self.moderation.applies(news, frames, time.nanoseconds, interval) {
            true => gate.enter(time.nanoseconds, interval),
            false => gate.enter(time.nanoseconds, 0),
        };
        self.follow(entry, news, time)
    }

    /// Makes a pending call.
    pub(crate) fn ring_pending(&self, news: News, call: Pending, time: &Time) -> Rung {
        self.ring_pending_within(news, call, time, self.moderation.interval())
    }

    /// As [`Port::ring_pending`], whatever the time.
    pub(crate) fn ring_early(&self, news: News, call: Pending, time: &Time) -> Rung {
        self.ring_pending_within(news, call, time, 0)
    }

    fn ring_pending_within(&self, news: News, call: Pending, time: &Time, interval: u64) -> Rung {
        if self.is_retired() {
            return Rung::Done;
        }
        match call {
            Pending::After(last) => {
                let entry = self.moderation.gate(news).enter_pending(last, time.nanoseconds, interval);
                self.follow(entry, news, time)
            }
            Pending::Asked(due) => {
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                self.ring(Some(self.bell.ring_due(news, due)), news, time)
            }
        }
    }

    /// When a pending call is due; what a client's side asked for may be due at any time by now.
    pub(crate) fn due(&self, call: Pending) -> u64 {
        match call {
            Pending::After(last) => last.saturating_add(self.moderation.interval()),
            Pending::Asked(_) => 0,
        }
    }

    fn follow(&self, entry: Entry, news: News, time: &Time) -> Rung {
        let gate = self.moderation.gate(news);
        match entry {
            Entry::Covered => Rung::Done,
            Entry::Pending(last) => self.pending(last, 0),
            Entry::Ask => {
                let called = match self.bell.ring(news) {
                    Asked::Unwanted => None,
                    // The time after the call, so that no two are ever closer than the interval.
                    Asked::Called => Some((time.read)()),
                    Asked::Busy => return self.pending(gate.give_up(), time.nanoseconds + ASK_AGAIN),
                    // Bells that name times are not behind a gate: see `Asked::Later`.
                    Asked::Later { due, called } => {
                        let pending = gate.leave(None);
                        return pending.map_or_else(|| self.later(due, called), |last| self.pending(last, 0));
                    }
                };
                let pending = gate.leave(called);
                match called.map_or(Rung::Done, |_| self.called()) {
                    Rung::Done => pending.map_or(Rung::Done, |last| self.pending(last, time.nanoseconds + 1)),
                    rung => rung,
                }
            }
        }
    }

    fn pending(&self, last: u64, soonest: u64) -> Rung {
        let call = Pending::After(last);
        Rung::Pending { call, due: self.due(call).max(soonest) }
    }

    fn later(&self, due: u64, called: bool) -> Rung {
        match if called { self.called() } else { Rung::Done } {
            Rung::Done => Rung::Pending { call: Pending::Asked(due), due },
            rung => rung,
        }
    }

    fn called(&self) -> Rung {
        self.counters.add_call();
        if self.bell.is_blocked() {
            self.fail(PortFault::CallBlocked);
            return Rung::Fault;
        }
        Rung::Done
    }

    /// Notes why the port must end; the first reason stays.
    #[cold]
    pub fn fail(&self, fault: PortFault) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    /// Why the port must end, if it must.
    #[must_use]
    pub fn fault(&self) -> Option<PortFault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let output = self.output.get_mut().unwrap_or_else(PoisonError::into_inner);
        let output = std::mem::replace(output, Box::new(Refusing(None)));
        let bell = std::mem::replace(&mut self.bell, Box::new(Silent));
        // A port that goes costs nobody anything. What a panic of theirs left half done is theirs.
        let _ = contain(|| drop(output));
        let _ = contain(|| drop(bell));
    }
}

/// Calls are never made at once.
const NEVER: Moderation = Moderation { interval: std::time::Duration::MAX, above: None };

/// Instead of the output of a port that a panic cost its place: refuses everything. Keeps what was there, unused.
struct Refusing(#[allow(dead_code, reason = "it is kept")] Option<Box<dyn Output>>);

impl Output for Refusing {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        counters.drop_out(DropReason::InternalError, frames.len() as u64);
        Ok(())
    }
}

/// Instead of the bell of a port that ends.
struct Silent;

impl Bell for Silent {
    fn ring(&self, _: News) -> Asked {
        Asked::Unwanted
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("name", &self.name).finish_non_exhaustive()
    }
}
