//! Extra buffers of registrations: taken in steps, and given back when others need them.
//!
//! They form a list, as in netmap: `ni_bufs_head` has the number of the first buffer, and the first word of each buffer has that of the
//! next. A thread that writes or reads the list touches a page for each buffer, which takes 6 µs if the kernel has to make the page: 0.4 s
//! for the 65,536 buffers that one registration may have.
//! The thread that serves all clients therefore takes [`STEP`] at a time, and a list that was given back is read only as far
//! as buffers are needed, [`MOST_READ`] at a time.

use std::sync::Arc;

use ringway_abi::layout::MAX_EXTRA;

use super::memory::Region;
use super::room::List;

/// Most buffers that are taken in one step.
const STEP: u32 = 256;
/// Most buffers of lists that are read at once.
const MOST_READ: u32 = 1024;

/// Whether a registration has its extra buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// It has all of them, or those that the region has.
    Complete,
    /// More steps are needed.
    Incomplete,
    /// The region has too few. Closed ports have not given theirs back yet.
    Leaving,
}

/// The extra buffers that a registration still has to get.
#[derive(Debug)]
pub(super) struct Wanted {
    left: u32,
    /// The last buffer of its list so far.
    last: Option<u32>,
}

impl Wanted {
    pub(super) fn new(asked: u32) -> Self {
        Self { left: asked.min(MAX_EXTRA), last: None }
    }

    /// Takes some buffers and appends them to the list. Takes no more after the region has had too few. `waits`: but waits for those
    /// of closed ports.
    pub(super) fn take(&mut self, region: &Arc<Region>, waits: bool) -> (Vec<u32>, Extra) {
        let asked = self.left.min(STEP);
        let is_all = region.give_back(asked);
        let (taken, is_leaving) = {
            let mut room = region.room.lock();
            let count = asked.min(room.pool.left());
            (room.pool.allocate(count).unwrap_or_default(), room.is_leaving())
        };
        let count = taken.len() as u32;
        self.left -= count;
        let extra = match self.left {
            0 => Extra::Complete,
            _ if count == asked || !is_all => Extra::Incomplete,
            _ if waits && is_leaving => Extra::Leaving,
            _ => Extra::Complete,
        };
        for &buffer in &taken {
            if let Some(last) = self.last.replace(buffer) {
                region.write(region.buffer(last), &buffer.to_le_bytes());
            }
        }
        if let Some(last) = self.last {
            region.write(region.buffer(last), &0u32.to_le_bytes());
        }
        (taken, extra)
    }
}

impl Region {
    /// Gives buffers of lists back to the pool until it has `needed` free ones or no list is left: [`MOST_READ`] at most. Returns false if
    /// it has too few, and the lists have more. Reads the lists without the lock of the room: the program can make that last.
    pub(super) fn give_back(&self, needed: u32) -> bool {
        let mut may_read = MOST_READ;
        loop {
            let (List { mut next, left }, missing) = {
                let mut room = self.room.lock();
                let missing = needed.saturating_sub(room.pool.left());
                if missing == 0 || room.lists.is_empty() {
                    return true;
                }
                let list = if may_read > 0 { room.lists.pop() } else { None };
                let Some(list) = list else { return false };
                (list, missing)
            };
            let numbers = (0..left.min(missing).min(may_read)).map(|_| {
                let number = next;
                next = self.word(self.buffer(number)).unwrap_or(0);
                number
            });
            let numbers: Vec<u32> = numbers.collect();
            may_read -= numbers.len() as u32;
            let mut room = self.room.lock();
            let left = left - numbers.len() as u32;
            if numbers.into_iter().all(|number| room.pool.free(number)) && left > 0 {
                room.lists.push(List { next, left });
            }
        }
    }

    /// Returns the offset of a buffer. If there is no such buffer, the offset is that of something else or of nothing.
    fn buffer(&self, number: u32) -> usize {
        self.sizes.buffers + number as usize * self.sizes.buffer_size as usize
    }
}
