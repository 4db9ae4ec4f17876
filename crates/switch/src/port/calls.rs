//! The pending calls of one poller.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

use super::attachment::Port;
use super::bell::Asked;
use super::event::News;
use super::ring::{Pending, Rung};
use crate::defect::{Defect, Place, Role, take_giving};
use crate::time::Time;

/// Places there is memory for from the beginning.
const CAPACITY: usize = 256;

/// Calls to make when their time comes, earliest first. A port that ends meanwhile takes its calls along.
#[derive(Debug)]
pub struct PendingCalls {
    calls: BinaryHeap<Reverse<PendingCall>>,
    /// The one that is being made.
    making: Option<(Weak<Port>, News)>,
    /// Those that [`PendingCalls::make_all`] has still to make.
    ending: Vec<Reverse<PendingCall>>,
    /// Also those of ports that have a detour.
    of_detours: bool,
    /// Calls are timed: the port whose call took longest, and how long.
    timed: bool,
    longest: Option<(Weak<Port>, u64)>,
}

#[derive(Debug)]
struct PendingCall {
    due: u64,
    port: Weak<Port>,
    news: News,
    call: Pending,
}

impl PendingCalls {
    pub(crate) fn new() -> PendingCalls {
        let calls = BinaryHeap::with_capacity(CAPACITY);
        PendingCalls { calls, making: None, ending: Vec::new(), of_detours: false, timed: false, longest: None }
    }

    /// When the earliest is due, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        self.calls.peek().map(|Reverse(call)| call.due)
    }

    /// How many there are, counting those that another poller has taken over.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Rings, and keeps what becomes pending. True when that cost the port its place.
    #[inline(always)]
    pub(crate) fn ring(&mut self, port: &Arc<Port>, news: News, time: &Time) -> bool {
        let asked = port.ring_at_once(news);
        asked != Some(Asked::Unwanted) && self.ring_on(asked, port, news, time)
    }

    #[inline(never)]
    fn ring_on(&mut self, asked: Option<Asked>, port: &Arc<Port>, news: News, time: &Time) -> bool {
        match port.ring(asked, news, time) {
            Rung::Done => false,
            rung => self.keep(rung, Arc::downgrade(port), news),
        }
    }

    fn keep(&mut self, rung: Rung, port: Weak<Port>, news: News) -> bool {
        if let Rung::Pending { call, due } = rung {
            self.calls.push(Reverse(PendingCall { due, port, news, call }));
        }
        rung == Rung::Fault
    }

    /// Makes the calls that are due. True when some port broke the rules, as [`crate::Passed::receiver_fault`].
    pub fn make(&mut self, time: &Time) -> bool {
        let mut fault = false;
        // What becomes pending again is due later than `time`.
        while self.due().is_some_and(|due| due <= time.nanoseconds) {
            let Some(Reverse(call)) = self.calls.pop() else { break };
            if !self.of_detours
                && let Some(port) = call.port.upgrade().filter(|port| port.detour().is_on())
                && port.detour().leave_call(call.news, call.call)
            {
                continue;
            }
            let began = self.timed.then(|| (call.port.clone(), (time.read)()));
            fault |= self.make_one(call, |port, news, call| port.ring_pending(news, call, time));
            if let Some((port, began)) = began {
                let took = (time.read)().saturating_sub(began);
                if self.longest.as_ref().is_none_or(|(_, longest)| took > *longest) {
                    self.longest = Some((port, took));
                }
            }
        }
        fault
    }

    /// From now on notes how long calls take, or does not.
    pub fn time(&mut self, on: bool) {
        self.timed = on;
    }

    /// The port whose call took longest since this was asked last, and how long in nanoseconds.
    pub fn take_longest(&mut self) -> Option<(Weak<Port>, u64)> {
        self.longest.take()
    }

    fn make_one(&mut self, call: PendingCall, ring: impl FnOnce(&Port, News, Pending) -> Rung) -> bool {
        let PendingCall { port: weak, news, call, .. } = call;
        let Some(port) = weak.upgrade() else { return false };
        self.making = Some((weak, news));
        let rung = ring(&port, news, call);
        self.making.take().is_some_and(|(weak, news)| self.keep(rung, weak, news))
    }

    /// After a panic in [`PendingCalls::make`] or [`PendingCalls::make_all`]: retires the port whose call was being made. The
    /// others' stay. False when there is none.
    #[cold]
    pub fn blame(&mut self, place: Place) -> bool {
        self.calls.extend(self.ending.drain(..));
        // Whatever the call was for: frames that others left may be given with it.
        let is_given = take_giving();
        let Some((port, news)) = self.making.take() else { return false };
        let role = if is_given || news == News::Frames { Role::Receiver } else { Role::Source };
        port.upgrade().inspect(|port| port.retire(Defect { role, place }, 0));
        true
    }

    /// Makes every call now, whatever its time: this list ends. What could not be asked stays.
    pub fn make_all(&mut self, time: &Time) -> bool {
        let mut fault = false;
        self.ending.extend(self.calls.drain());
        while let Some(Reverse(call)) = self.ending.pop() {
            fault |= self.make_one(call, |port, news, call| port.ring_early(news, call, time));
        }
        fault
    }

    /// Makes calls also of ports that have a detour, as whoever empties it does.
    pub fn serve_detours(&mut self) {
        self.of_detours = true;
    }

    /// Makes a call soon that became due elsewhere.
    pub(crate) fn take_over(&mut self, port: &Arc<Port>, news: News, call: Pending) {
        self.calls.push(Reverse(PendingCall { due: 0, port: Arc::downgrade(port), news, call }));
    }

    /// Settings may have changed: when each call is due is asked anew.
    pub fn reconsider(&mut self) {
        let mut calls = std::mem::take(&mut self.calls).into_vec();
        calls.retain_mut(|Reverse(call)| {
            let Some(port) = call.port.upgrade() else { return false };
            call.due = port.due(call.call);
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
