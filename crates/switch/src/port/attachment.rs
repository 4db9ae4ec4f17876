//! A port of the switch: its output, bell, counters and state, shared by all pollers.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;
use std::time::Duration;

use super::bell::{Bell, CallResult};
use super::counters::Counters;
use super::detour::{Detour, DetourEnd, DetourRoom};
use super::event::CallReason;
use super::fault::PortFault;
use super::moderation::{Entry, Moderated, Moderation, due_after};
use super::output::Output;
use super::pauses::Pauses;
use super::ring::{CallOutcome, Pending};
use super::tap::FrameDirection;
use super::verdicts::Verdicts;
use crate::batch::Frames;
use crate::defect::{Defect, contain};
use crate::frame::DropReason;
use crate::policy::congestion::Congestion;
use crate::time::Time;

/// How often [`Port::retire`] tries to lock an output that another poller has locked.
const RETIRE_TRIES: usize = 1000;
/// After this many nanoseconds, the bell is rung again if it answered [`CallResult::Busy`].
const RETRY_AFTER: u64 = 10_000;

/// One port: the part that all pollers share. The input is not part of it, because an input belongs to one poller at a
/// time.
pub struct Port {
    name: String,
    counters: Counters,
    output: Mutex<Box<dyn Output>>,
    bell: Box<dyn Bell>,
    moderation: Moderated,
    congestion: Congestion,
    /// When the port's frames are looked at for segments that can be joined.
    pauses: Pauses,
    /// A forwarding program's verdicts on frames from this port that wait.
    verdicts: Verdicts,
    /// Most frames in the next batch from this port. 0: as many as fit.
    probe: AtomicU16,
    /// Nanoseconds that examined visits took within the port's allowances, by direction.
    time_within: [AtomicU64; 2],
    fault: Mutex<Option<PortFault>>,
    /// The port was retired after a panic: neither its output nor its bell is called any more.
    is_retired: AtomicBool,
    /// The output was replaced with a [`RefusingOutput`].
    is_output_replaced: AtomicBool,
    /// Backlog of frames and calls while the port is in quarantine: then only one thread touches the client's memory.
    detour: Detour,
}

impl Port {
    /// Returns a new port. The kind of port is given by its output and its bell.
    #[must_use]
    pub fn new(name: impl Into<String>, output: Box<dyn Output>, bell: Box<dyn Bell>) -> Self {
        let (name, output) = (name.into(), Mutex::new(output));
        let (counters, moderation) = (Counters::default(), Moderated::default());
        let congestion = Congestion::default();
        let probe = AtomicU16::new(0);
        let (fault, is_retired, is_output_replaced) =
            (Mutex::new(None), AtomicBool::new(false), AtomicBool::new(false));
        Self {
            name,
            counters,
            output,
            bell,
            moderation,
            congestion,
            pauses: Pauses::default(),
            verdicts: Verdicts::default(),
            probe,
            time_within: Default::default(),
            fault,
            is_retired,
            is_output_replaced,
            detour: Detour::default(),
        }
    }

    /// Returns the port of a client that no switch delivers to: its counters, calls and faults.
    #[must_use]
    pub fn without_output(name: impl Into<String>, bell: Box<dyn Bell>) -> Self {
        Self::new(name, Box::new(RefusingOutput(None)), bell)
    }

    /// The port's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Nanoseconds that examined visits to the port took within its allowances, in this direction. A client does not determine the
    /// number of its visits alone, so that time is what its excess is compared with.
    #[must_use]
    pub fn time_within(&self, direction: FrameDirection) -> u64 {
        self.time_within[direction as usize].load(Ordering::Relaxed)
    }

    /// Adds to [`Port::time_within`]. Several pollers may deliver to the port.
    pub fn add_time_within(&self, direction: FrameDirection, nanoseconds: u64) {
        self.time_within[direction as usize].fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// The port's counters.
    #[inline]
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The senders' shares of this port while it is congested.
    #[inline]
    pub(crate) fn congestion(&self) -> &Congestion {
        &self.congestion
    }

    /// When frames from this port are looked at for segments that can be joined.
    #[inline]
    pub(crate) fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// A forwarding program's verdicts on frames from this port that wait.
    #[inline]
    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// Stops deliveries to this port until the time `until`, in nanoseconds of the pollers' clock. Until then, frames
    /// for the port are dropped as `receiver_slow`.
    pub fn set_aside(&self, until: u64) {
        self.congestion.set_aside(until);
    }

    /// Begins the port's detour. From now on, pollers leave frames and calls for this port in a backlog, and wake one
    /// thread through `waker`. That thread delivers them with [`crate::empty`]. Returns true if the detour has begun,
    /// and false if the port has a detour already or there is no memory for another one. `begun` is called before another
    /// thread can end the detour. It must not wait.
    pub fn begin_detour(&self, waker: Waker, room: DetourRoom, begun: impl FnOnce()) -> bool {
        self.detour.begin(waker, room, &self.congestion, begun)
    }

    /// Has another thread empty the backlog of the port's detour from now on, which is woken through `waker`, if `takes` returns true. `takes` is
    /// called before another thread can end the detour. It must not wait. Returns true if the detour has been handed over.
    pub fn hand_over_detour(&self, waker: Waker, takes: impl FnOnce() -> bool) -> bool {
        self.detour.hand_over(waker, takes)
    }

    /// Ends the port's detour if its backlog is empty, and `ends` returns true: all pollers deliver to the port again.
    /// `ends` is called last, before another thread can begin a detour anew. It must not wait. To be called by the thread
    /// that empties the backlog.
    pub fn end_detour(&self, ends: impl FnOnce() -> bool) -> DetourEnd {
        self.detour.end(&self.congestion, true, ends)
    }

    /// As [`Port::end_detour`], and does not wait for a thread that copies frames for the backlog, which the kernel may keep in a sender's memory: those
    /// frames are dropped as `receiver_slow`.
    pub fn end_detour_at_once(&self, ends: impl FnOnce() -> bool) -> DetourEnd {
        self.detour.end(&self.congestion, false, ends)
    }

    /// Has frames for the port dropped, so that the backlog becomes empty and the detour can end, or takes that back.
    pub fn close_detour(&self, is_ending: bool) {
        self.detour.close(is_ending);
    }

    /// Ends the port's detour even if its backlog is not empty. Frames in the backlog are dropped as `receiver_slow`.
    /// To be called while nobody empties the backlog.
    pub fn abandon_detour(&self) {
        if self.detour.is_on() {
            self.counters.drop_out_beside(DropReason::ReceiverSlow, self.detour.abandon(&self.congestion));
        }
    }

    /// The port's detour. It is off unless the port is in quarantine.
    #[inline]
    pub(crate) fn detour(&self) -> &Detour {
        &self.detour
    }

    /// Returns true if there are frames or calls in the detour's backlog.
    #[must_use]
    pub fn has_detoured_frames(&self) -> bool {
        self.detour.has_backlog()
    }

    /// Asks for a wake-up when frames or calls enter the detour's backlog. Returns true if the backlog is empty, so
    /// that the calling thread may sleep.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        self.detour.may_sleep()
    }

    /// Most frames in the next batch from this port. 0: as many as fit.
    #[inline]
    pub(crate) fn probe(&self) -> u16 {
        self.probe.load(Ordering::Relaxed)
    }

    pub(crate) fn set_probe(&self, frames: u16) {
        self.probe.store(frames, Ordering::Relaxed);
    }

    /// Locks the output. If a thread panicked while it held the lock, the output is replaced with a [`RefusingOutput`],
    /// so that frames for it are counted and dropped.
    #[inline]
    pub(crate) fn output(&self) -> MutexGuard<'_, Box<dyn Output>> {
        self.output.lock().unwrap_or_else(|poisoned| self.replace_output(poisoned.into_inner()))
    }

    /// Counts what the client was given without the output, as the holder of the output.
    pub fn count_given(&self, count: impl FnOnce(&Counters)) {
        let _output = self.output();
        count(&self.counters);
    }

    /// Locks the output, unless a thread delivers to the port at this moment.
    pub(crate) fn try_output(&self) -> Option<MutexGuard<'_, Box<dyn Output>>> {
        match self.output.try_lock() {
            Ok(output) => Some(output),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.replace_output(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns true if a thread delivers to the port at this moment.
    #[must_use]
    pub fn is_output_held(&self) -> bool {
        matches!(self.output.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Forgets which calls are pending.
    pub(crate) fn forget_calls(&self) {
        [CallReason::Frames, CallReason::Room].into_iter().for_each(|reason| self.moderation.gate(reason).forget());
        self.bell.forget_calls();
    }

    /// Returns true if a thread panicked while it held the output, and the port was not retired since.
    pub(crate) fn is_output_broken(&self) -> bool {
        self.output.is_poisoned()
    }

    /// Replaces an output whose state may be inconsistent after a panic. The lock stays poisoned until
    /// [`Port::retire`].
    #[cold]
    fn replace_output<'a>(&self, mut output: MutexGuard<'a, Box<dyn Output>>) -> MutexGuard<'a, Box<dyn Output>> {
        if !self.is_output_replaced.swap(true, Ordering::Relaxed) {
            let broken = std::mem::replace(&mut *output, Box::new(RefusingOutput(None)));
            // The broken output is dropped together with the port: dropping it here could take long.
            *output = Box::new(RefusingOutput(Some(broken)));
        }
        output
    }

    /// Retires the port after a panic: until it is replaced, it gets no frames and no calls. `lost` is the number of
    /// frames of the interrupted delivery, which count as dropped.
    #[cold]
    pub fn retire(&self, defect: Defect, lost: u64) {
        self.fail(PortFault::InternalError(defect));
        if self.is_retired.swap(true, Ordering::Relaxed) {
            return;
        }
        for _ in 0..RETIRE_TRIES {
            let output = match self.output.try_lock() {
                Ok(output) => output,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    // Another poller delivers to the port. If this takes too long, the output stays as it is. The port
                    // ends anyway.
                    std::hint::spin_loop();
                    continue;
                }
            };
            self.counters.drop_out(DropReason::InternalError, lost);
            let _output = self.replace_output(output);
            self.output.clear_poison();
            return;
        }
    }

    /// Returns true if the port was retired after a panic.
    #[inline]
    fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Sets the moderation of this port's calls. Pollers apply it to calls that are already pending when they adopt the
    /// next topology.
    pub fn set_moderation(&self, moderation: Moderation) {
        if self.is_retired() {
            return;
        }
        let by_bell = self.bell.moderate(moderation);
        self.moderation.set(if by_bell { Moderation::default() } else { moderation });
    }

    /// Returns the least times between two calls at present: for frames to receive, and for room to send. Zero: none.
    #[must_use]
    pub fn call_intervals(&self) -> [Duration; 2] {
        [CallReason::Frames, CallReason::Room].map(|reason| {
            let own = || Duration::from_nanos(self.moderation.interval(reason));
            self.bell.call_interval().unwrap_or_else(own)
        })
    }

    /// Rings the bell, unless the port's calls are moderated or end. Returns `None` otherwise. The caller passes
    /// the result to [`Port::ring`].
    #[inline(always)]
    pub(crate) fn ring_at_once(&self, reason: CallReason) -> Option<CallResult> {
        (self.moderation.interval(reason) == 0 && !self.is_retired()).then(|| self.bell.ring(reason))
    }

    /// Wakes the client if it wants a call, now or as soon as moderation allows. `asked` is the result of
    /// [`Port::ring_at_once`].
    pub(crate) fn ring(&self, asked: Option<CallResult>, reason: CallReason, time: &Time) -> CallOutcome {
        let Some(asked) = asked else { return self.ring_moderated(reason, time) };
        match asked {
            CallResult::Unwanted => CallOutcome::Done,
            CallResult::Called => self.called(reason, time),
            CallResult::Held { called } => self.held(called, reason, time),
            CallResult::Later { due, called } => self.later(due, called.then_some((reason, time))),
            CallResult::Busy => match self.moderation.gate(reason).postpone() {
                Some(last) => self.pending(reason, last, time.nanoseconds + RETRY_AFTER),
                None => CallOutcome::Done,
            },
        }
    }

    fn ring_moderated(&self, reason: CallReason, time: &Time) -> CallOutcome {
        if self.is_retired() {
            return CallOutcome::Done;
        }
        let interval = self.moderation.interval(reason);
        let frames = self.counters.totals(reason).frames;
        let gate = self.moderation.gate(reason);
        let applies = self.moderation.applies(reason, frames, time.nanoseconds, interval);
        let interval = if applies { interval } else { self.moderation.held() };
        self.follow(gate.enter(time.nanoseconds, interval), reason, time, interval)
    }

    /// Makes a pending call.
    pub(crate) fn ring_pending(&self, reason: CallReason, call: Pending, time: &Time) -> CallOutcome {
        self.ring_pending_within(reason, call, time, self.moderation.interval(reason))
    }

    /// Makes a pending call without waiting for the end of the moderation interval.
    pub(crate) fn ring_early(&self, reason: CallReason, call: Pending, time: &Time) -> CallOutcome {
        self.ring_pending_within(reason, call, time, 0)
    }

    fn ring_pending_within(&self, reason: CallReason, call: Pending, time: &Time, interval: u64) -> CallOutcome {
        if self.is_retired() {
            return CallOutcome::Done;
        }
        match call {
            Pending::After(last) => {
                let entry = self.moderation.gate(reason).enter_pending(last, time.nanoseconds, interval);
                self.follow(entry, reason, time, interval)
            }
            Pending::CallResult(due) => {
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                self.ring(Some(self.bell.ring_due(reason, due)), reason, time)
            }
        }
    }

    /// Returns when a pending call is due, in nanoseconds. A call that the bell asked for ([`CallResult::Later`]) is due at
    /// once, because the bell's own time may have changed since.
    pub(crate) fn due(&self, reason: CallReason, call: Pending) -> u64 {
        match call {
            Pending::After(last) => due_after(last, self.moderation.interval(reason)),
            Pending::CallResult(_) => 0,
        }
    }

    fn follow(&self, entry: Entry, reason: CallReason, time: &Time, interval: u64) -> CallOutcome {
        let gate = self.moderation.gate(reason);
        match entry {
            Entry::Covered => CallOutcome::Done,
            Entry::Pending(last) => self.pending(reason, last, 0),
            Entry::Ask => {
                let called = match self.bell.ring(reason) {
                    CallResult::Unwanted => None,
                    // The clock is read after the call, so that two calls are never closer than the interval.
                    CallResult::Called => Some((time.read)()),
                    CallResult::Busy => return self.pending(reason, gate.give_up(), time.nanoseconds + RETRY_AFTER),
                    CallResult::Held { called } => {
                        let pending = gate.leave(Some((time.read)()), interval);
                        return match (self.held(called, reason, time), pending) {
                            (CallOutcome::Done, Some(last)) => self.pending(reason, last, time.nanoseconds + 1),
                            (rung, _) => rung,
                        };
                    }
                    // Only bells that moderate themselves return `CallResult::Later`, and the port does not moderate their
                    // calls.
                    CallResult::Later { due, called } => {
                        let pending = gate.leave(None, interval);
                        let called = called.then_some((reason, time));
                        return pending.map_or_else(|| self.later(due, called), |last| self.pending(reason, last, 0));
                    }
                };
                let pending = gate.leave(called, interval);
                match called.map_or(CallOutcome::Done, |_| self.called(reason, time)) {
                    CallOutcome::Done => {
                        pending.map_or(CallOutcome::Done, |last| self.pending(reason, last, time.nanoseconds + 1))
                    }
                    rung => rung,
                }
            }
        }
    }

    fn pending(&self, reason: CallReason, last: u64, soonest: u64) -> CallOutcome {
        let call = Pending::After(last);
        CallOutcome::Pending { call, due: self.due(reason, call).max(soonest) }
    }

    fn later(&self, due: u64, called: Option<(CallReason, &Time)>) -> CallOutcome {
        match called.map_or(CallOutcome::Done, |(reason, time)| self.called(reason, time)) {
            CallOutcome::Done => CallOutcome::Pending { call: Pending::CallResult(due), due },
            rung => rung,
        }
    }

    fn called(&self, reason: CallReason, time: &Time) -> CallOutcome {
        self.counters.add_call();
        self.moderation.note_call(reason, time.nanoseconds, || self.counters.totals(reason));
        if self.bell.is_blocked() {
            self.fail(PortFault::CallBlocked);
            return CallOutcome::Fault;
        }
        self.moderation.hold_until(self.bell.held_until(), time.read);
        CallOutcome::Done
    }

    /// The client is called again when its calls are no longer held. Returns [`CallOutcome::Done`] if that is pending already.
    #[cold]
    fn held(&self, called: bool, reason: CallReason, time: &Time) -> CallOutcome {
        if called {
            let rung = self.called(reason, time);
            if rung != CallOutcome::Done {
                return rung;
            }
        }
        self.moderation.hold_until(self.bell.held_until(), time.read);
        match self.moderation.gate(reason).postpone() {
            Some(last) => self.pending(reason, last, time.nanoseconds + 1),
            None => CallOutcome::Done,
        }
    }

    /// Notes why the port must end. A later fault does not replace the first one.
    #[cold]
    pub fn fail(&self, fault: PortFault) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    /// Returns why the port must end, or `None` if it need not.
    #[must_use]
    pub fn fault(&self) -> Option<PortFault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let output = self.output.get_mut().unwrap_or_else(PoisonError::into_inner);
        let output = std::mem::replace(output, Box::new(RefusingOutput(None)));
        let bell = std::mem::replace(&mut self.bell, Box::new(SilentBell));
        // A panic while the output or the bell is dropped is contained: it must not harm other ports.
        let _ = contain(|| drop(output));
        let _ = contain(|| drop(bell));
    }
}

/// The output of a port that was retired after a panic: drops all frames. Keeps the broken output unused, to be dropped
/// with the port.
struct RefusingOutput(#[allow(dead_code, reason = "it is kept")] Option<Box<dyn Output>>);

impl Output for RefusingOutput {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        counters.drop_out(DropReason::InternalError, frames.len() as u64);
        Ok(())
    }
}

/// The bell of a port that is being dropped: never makes a call.
struct SilentBell;

impl Bell for SilentBell {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("name", &self.name).finish_non_exhaustive()
    }
}
