//! The pending calls of one poller.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

use super::attachment::Port;
use super::bell::CallResult;
use super::event::CallReason;
use super::ring::{CallOutcome, Pending};
use crate::defect::{Defect, PanicLocation, Role, take_receiving};
use crate::time::Time;

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
    /// True while the duration of each call is measured.
    timed: bool,
    longest: Option<(Weak<Port>, u64)>,
}

#[derive(Debug)]
struct PendingCall {
    due: u64,
    port: Weak<Port>,
    reason: CallReason,
    call: Pending,
}

impl PendingCalls {
    pub(crate) fn new() -> PendingCalls {
        let calls = BinaryHeap::with_capacity(INITIAL_CAPACITY);
        PendingCalls { calls, current: None, remaining: Vec::new(), of_detours: false, timed: false, longest: None }
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
            if !self.of_detours
                && let Some(port) = call.port.upgrade().filter(|port| port.detour().is_on())
                && port.detour().leave_call(call.reason, call.call)
            {
                continue;
            }
            let began = self.timed.then(|| (call.port.clone(), (time.read)()));
            fault |= self.make_call(call, |port, reason, call| port.ring_pending(reason, call, time));
            if let Some((port, began)) = began {
                let took = (time.read)().saturating_sub(began);
                if self.longest.as_ref().is_none_or(|(_, longest)| took > *longest) {
                    self.longest = Some((port, took));
                }
            }
        }
        fault
    }

    /// Starts or stops measuring how long calls take.
    pub fn time(&mut self, on: bool) {
        self.timed = on;
    }

    /// Returns the port with the longest call since the last use of this function, and that call's duration in
    /// nanoseconds.
    pub fn take_longest(&mut self) -> Option<(Weak<Port>, u64)> {
        self.longest.take()
    }

    fn make_call(&mut self, call: PendingCall, ring: impl FnOnce(&Port, CallReason, Pending) -> CallOutcome) -> bool {
        let PendingCall { port: weak, reason, call, .. } = call;
        let Some(port) = weak.upgrade() else { return false };
        self.current = Some((weak, reason));
        let rung = ring(&port, reason, call);
        self.current.take().is_some_and(|(weak, reason)| self.keep(rung, weak, reason))
    }

    /// After a panic in [`PendingCalls::make`] or [`PendingCalls::make_all`]: retires the port whose call was being
    /// made. Calls to other ports stay pending. Returns true if a port was retired.
    #[cold]
    pub fn blame(&mut self, place: PanicLocation) -> bool {
        self.calls.extend(self.remaining.drain(..));
        // A bell may deliver frames: then the port is a receiver, even if the call was for room.
        let is_given = take_receiving();
        let Some((port, reason)) = self.current.take() else { return false };
        let role = if is_given || reason == CallReason::Frames { Role::Receiver } else { Role::Source };
        port.upgrade().inspect(|port| port.retire(Defect { role, place }, 0));
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
        [CallReason::Frames, CallReason::Room].into_iter().fold(false, |fault, reason| {
            // The frames that another poller has delivered were published before.
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            self.ring(port, reason, time) || fault
        })
    }

    /// Computes again when each call is due, after the moderation may have changed.
    pub fn reconsider(&mut self) {
        let mut calls = std::mem::take(&mut self.calls).into_vec();
        calls.retain_mut(|Reverse(call)| {
            let Some(port) = call.port.upgrade() else { return false };
            call.due = port.due(call.reason, call.call);
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
