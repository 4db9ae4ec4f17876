//! The pending calls of one poller.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

use super::attachment::Port;
use super::bell::CallResult;
use super::event::CallReason;
use super::examined::TimeSpent;
use super::ring::{CallOutcome, Pending};
use super::touching::Touching;
use crate::defect::{Defect, PanicLocation, Role, take_receiving};
use crate::time::{Measure, Time};

/// Number of calls that memory is allocated for at first.
const INITIAL_CAPACITY: usize = 256;

/// Calls that a poller has to make later, earliest first. Calls to a port that has ended are discarded.
#[derive(Debug)]
pub struct PendingCalls {
    calls: BinaryHeap<Reverse<PendingCall>>,
    /// The call that is being made.
    current: Option<(Weak<Port>, CallReason)>,
    /// Calls that [`PendingCalls::make_all`] has still to make.
    remaining: Vec<Reverse<PendingCall>>,
    /// This list also makes the calls of ports that have a detour.
    of_detours: bool,
    /// What measures each call, while calls are measured.
    measure: Option<Measure>,
    longest: Option<(Weak<Port>, TimeSpent)>,
    /// Names the port that is being called.
    touching: Touching,
    /// Takes a port whose last owner is this list.
    last: LastOwner,
}

/// What takes ports.
#[derive(Default)]
struct LastOwner(Option<Box<dyn Fn(Box<Port>) + Send>>);

impl std::fmt::Debug for LastOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LastOwner").field(&self.0.is_some()).finish()
    }
}

#[derive(Debug)]
struct PendingCall {
    due: u64,
    port: Weak<Port>,
    reason: CallReason,
    call: Pending,
}

impl PendingCalls {
    #[cfg(test)]
    pub(crate) fn new() -> PendingCalls {
        PendingCalls::noting(Touching::default())
    }

    /// A list whose owner notes in `touching` which port it calls.
    pub(crate) fn noting(touching: Touching) -> PendingCalls {
        PendingCalls {
            calls: BinaryHeap::with_capacity(INITIAL_CAPACITY),
            current: None,
            remaining: Vec::new(),
            of_detours: false,
            measure: None,
            longest: None,
            touching,
            last: LastOwner::default(),
        }
    }

    /// Has `takes` take a port that has ended while it was called: to drop it here could take long, because its client decides how long it takes
    /// to close and unmap what the port has.
    pub fn give_last_to(&mut self, takes: Box<dyn Fn(Box<Port>) + Send>) {
        self.last = LastOwner(Some(takes));
    }

    /// Drops a port, or has it taken if this list is its last owner.
    fn give_back(&self, port: Arc<Port>) {
        if let Some(port) = Arc::into_inner(port)
            && let Some(takes) = &self.last.0
        {
            takes(Box::new(port));
        }
    }

    /// Returns when the earliest call is due, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        self.calls.peek().map(|Reverse(call)| call.due)
    }

    /// Number of calls in the list.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Rings the port's bell, and keeps the call if it becomes pending. Returns true if the port must end because of a
    /// fault.
    #[inline(always)]
    pub(crate) fn ring(&mut self, port: &Arc<Port>, reason: CallReason, time: &Time) -> bool {
        let asked = port.ring_at_once(reason);
        asked != Some(CallResult::Unwanted) && self.ring_on(asked, port, reason, time)
    }

    #[inline(never)]
    fn ring_on(&mut self, asked: Option<CallResult>, port: &Arc<Port>, reason: CallReason, time: &Time) -> bool {
        match port.ring(asked, reason, time) {
            CallOutcome::Done => false,
            rung => self.keep(rung, Arc::downgrade(port), reason),
        }
    }

    fn keep(&mut self, rung: CallOutcome, port: Weak<Port>, reason: CallReason) -> bool {
        if let CallOutcome::Pending { call, due } = rung {
            self.calls.push(Reverse(PendingCall { due, port, reason, call }));
        }
        rung == CallOutcome::Fault
    }

    /// Makes the calls that are due. Returns true if a port must end because of a fault ([`crate::Port::fault`]).
    pub fn make(&mut self, time: &Time) -> bool {
        let mut fault = false;
        // The loop ends: a call that becomes pending again is due later than `time`.
        while self.due().is_some_and(|due| due <= time.nanoseconds) {
            let Some(Reverse(call)) = self.calls.pop() else { break };
            if !self.of_detours && self.is_left(&call) {
                continue;
            }
            let began = self.measure.map(|measure| (call.port.clone(), measure, measure()));
            fault |= self.make_call(call, |port, reason, call| port.ring_pending(reason, call, time));
            if let Some((port, measure, began)) = began {
                let spent = TimeSpent::between(began, measure());
                if self.longest.as_ref().is_none_or(|(_, longest)| spent.nanoseconds > longest.nanoseconds) {
                    self.longest = Some((port, spent));
                }
            }
        }
        fault
    }

    /// Leaves a call to the detour of its port. Returns false if that is off.
    fn is_left(&self, call: &PendingCall) -> bool {
        let Some(port) = call.port.upgrade() else { return false };
        let is_left = port.detour().is_on() && port.detour().leave_call(call.reason, call.call);
        self.give_back(port);
        is_left
    }

    /// Starts or stops measuring how long calls take.
    pub fn measure(&mut self, measure: Option<Measure>) {
        self.measure = measure;
    }

    /// Returns the port with the longest call since the last use of this function, and that call's time.
    pub fn take_longest(&mut self) -> Option<(Weak<Port>, TimeSpent)> {
        self.longest.take()
    }

    fn make_call(&mut self, call: PendingCall, ring: impl FnOnce(&Port, CallReason, Pending) -> CallOutcome) -> bool {
        let PendingCall { port: weak, reason, call, .. } = call;
        let Some(port) = weak.upgrade() else { return false };
        self.current = Some((weak, reason));
        self.touching.begin(&port);
        let rung = ring(&port, reason, call);
        self.touching.end();
        self.give_back(port);
        self.current.take().is_some_and(|(weak, reason)| self.keep(rung, weak, reason))
    }

    /// Rings the bell of a port beside passes: no workspace notes that its client is being called. Keeps the call if it becomes
    /// pending. Returns true if the port must end because of a fault. After a panic, [`PendingCalls::retire_called`] retires the port.
    pub(crate) fn ring_beside(&mut self, port: &Arc<Port>, reason: CallReason, time: &Time) -> bool {
        self.current = Some((Arc::downgrade(port), reason));
        self.touching.begin(port);
        let fault = self.ring(port, reason, time);
        self.touching.end();
        self.current = None;
        fault
    }

    /// After a panic in [`PendingCalls::make`] or [`PendingCalls::make_all`]: retires the port whose call was being
    /// made. Calls to other ports stay pending. Returns true if a port was retired.
    #[cold]
    pub fn blame(&mut self, place: PanicLocation) -> bool {
        self.calls.extend(self.remaining.drain(..));
        // A bell may deliver frames: then the port is a receiver, even if the call was for room.
        let is_given = take_receiving();
        let is_receiver = |reason| is_given || reason == CallReason::Frames;
        self.retire_called(place, |reason| if is_receiver(reason) { Role::Receiver } else { Role::Source })
    }

    /// Retires the port whose call was being made, in a role by the call's reason. Returns true if there was one.
    pub(crate) fn retire_called(&mut self, place: PanicLocation, role: impl FnOnce(CallReason) -> Role) -> bool {
        self.touching.end();
        let Some((port, reason)) = self.current.take() else { return false };
        if let Some(port) = port.upgrade() {
            port.retire(Defect { role: role(reason), place }, 0);
            self.give_back(port);
        }
        true
    }

    /// Makes all pending calls now, even if they are not due, because this list ends. Calls whose bell answers
    /// [`CallResult::Busy`] stay pending. Returns true if a port must end because of a fault.
    pub fn make_all(&mut self, time: &Time) -> bool {
        let mut fault = false;
        self.remaining.extend(self.calls.drain());
        while let Some(Reverse(call)) = self.remaining.pop() {
            fault |= self.make_call(call, |port, reason, call| port.ring_early(reason, call, time));
        }
        fault
    }

    /// Makes this list also call ports that have a detour. For the thread that empties a detour's backlog.
    pub fn serve_detours(&mut self) {
        self.of_detours = true;
    }

    /// Adds a call that became due on another poller's list. It is due at once.
    pub(crate) fn take_over(&mut self, port: &Arc<Port>, reason: CallReason, call: Pending) {
        self.calls.push(Reverse(PendingCall { due: 0, port: Arc::downgrade(port), reason, call }));
    }

    /// Asks the client of a port anew, whatever calls are pending: the poller that has them may make none for long. Returns true if the port
    /// must end because of a fault.
    pub fn ring_anew(&mut self, port: &Arc<Port>, time: &Time) -> bool {
        port.forget_calls();
        self.touching.begin(port);
        let fault = [CallReason::Frames, CallReason::Room].into_iter().fold(false, |fault, reason| {
            // The frames that another poller has delivered were published before.
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            self.ring(port, reason, time) || fault
        });
        self.touching.end();
        fault
    }

    /// Computes again when each call is due, after the moderation may have changed.
    pub fn reconsider(&mut self) {
        let mut calls = std::mem::take(&mut self.calls).into_vec();
        calls.retain_mut(|Reverse(call)| {
            let Some(port) = call.port.upgrade() else { return false };
            call.due = port.due(call.reason, call.call);
            self.give_back(port);
            true
        });
        self.calls = calls.into();
    }
}

impl Ord for PendingCall {
    fn cmp(&self, other: &Self) -> Ordering {
        self.due.cmp(&other.due)
    }
}

impl PartialOrd for PendingCall {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PendingCall {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for PendingCall {}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::batch::Frames;
    use crate::port::{Bell, Counters, Output, PortFault};

    /// The bell of a port whose other owners let it go while it is rung.
    #[derive(Clone, Default)]
    struct LetsGo(Arc<Mutex<Option<Arc<Port>>>>);

    impl Bell for LetsGo {
        fn ring(&self, _: CallReason) -> CallResult {
            drop(self.0.lock().expect("no panics").take());
            CallResult::Called
        }

        fn is_blocked(&self) -> bool {
            true
        }
    }

    impl Output for LetsGo {
        fn deliver(&mut self, _: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
            Ok(())
        }
    }

    #[test]
    fn a_port_that_ends_while_it_is_called_is_not_dropped_by_the_thread_that_calls_it() {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let takes = Arc::clone(&taken);
        let mut calls = PendingCalls::new();
        calls.give_last_to(Box::new(move |port| takes.lock().expect("no panics").push(port)));
        let bell = LetsGo::default();
        let port = Arc::new(Port::new("p", Box::new(bell.clone()), Box::new(bell.clone())));
        calls.take_over(&port, CallReason::Frames, Pending::CallResult(0));
        *bell.0.lock().expect("no panics") = Some(port);
        assert!(calls.make(&Time::at_second(1)), "a fault");
        let taken: Vec<String> = taken.lock().expect("no panics").iter().map(|port| port.name().to_owned()).collect();
        assert_eq!(taken, ["p"]);
    }
}
