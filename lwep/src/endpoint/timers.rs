//! Deadlines of connections. An entry that is not the connection's earliest any more is skipped.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::connection::Nanos;

/// Deadlines, and acknowledgements that are owed.
#[derive(Debug)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// In the order in which they are due: all wait equally long.
    owed: VecDeque<(Nanos, u32)>,
}

impl Default for Timers {
    fn default() -> Self {
        // As many as `tidy` leaves of a connection: more of them allocate more.
        Self { heap: BinaryHeap::with_capacity(128), owed: VecDeque::new() }
    }
}

impl Timers {
    /// Returns the number of deadlines.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    #[inline]
    pub fn add(&mut self, at: Nanos, id: u32) {
        self.heap.push(Reverse((at, id)));
    }

    /// Drops the entries that are to be skipped, if there are many more than `connections`.
    #[inline]
    pub fn tidy(&mut self, connections: u32, is_due: impl FnMut(Nanos, u32) -> bool) {
        if self.heap.len() > 2 * connections as usize + 64 {
            self.sweep(is_due);
        }
    }

    #[cold]
    fn sweep(&mut self, mut is_due: impl FnMut(Nanos, u32) -> bool) {
        self.heap.retain(|Reverse((at, id))| is_due(*at, *id));
    }

    /// Returns the next entry that is due.
    #[inline]
    pub fn due(&mut self, now: Nanos) -> Option<(Nanos, u32)> {
        self.heap.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    #[inline]
    pub fn owe(&mut self, at: Nanos, id: u32) {
        self.owed.push_back((at, id));
    }

    /// Returns the next connection whose acknowledgement may be due.
    #[inline]
    pub fn due_acknowledgement(&mut self, now: Nanos) -> Option<u32> {
        self.owed.front().filter(|(at, _)| *at <= now)?;
        self.owed.pop_front().map(|(_, id)| id)
    }

    /// Returns when something is due.
    pub fn next(&self) -> Option<Nanos> {
        let timer = self.heap.peek().map(|Reverse((at, _))| *at);
        timer.into_iter().chain(self.owed.front().map(|(at, _)| *at)).min()
    }
}
