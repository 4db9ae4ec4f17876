//! The pending calls of one poller.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

use crate::port::{Asked, News, Pending, Port, Rung};
use crate::time::Time;

/// Places there is memory for from the beginning.
const CAPACITY: usize = 256;

/// Calls to make when their time comes, earliest first. A port that ends meanwhile takes its calls along.
#[derive(Debug)]
pub struct PendingCalls {
    calls: BinaryHeap<Reverse<PendingCall>>,
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
        PendingCalls { calls: BinaryHeap::with_capacity(CAPACITY) }
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
            if let Some(port) = call.port.upgrade() {
                let rung = port.ring_pending(call.news, call.call, time);
                fault |= self.keep(rung, call.port, call.news);
            }
        }
        fault
    }

    /// Makes every call now, whatever its time: this list ends. What could not be asked stays.
    pub fn make_all(&mut self, time: &Time) -> bool {
        let mut fault = false;
        for Reverse(call) in std::mem::take(&mut self.calls) {
            if let Some(port) = call.port.upgrade() {
                let rung = port.ring_early(call.news, call.call, time);
                fault |= self.keep(rung, call.port, call.news);
            }
        }
        fault
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
