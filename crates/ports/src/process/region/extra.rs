//! Extra buffers of registrations: taken in steps, and given back when others need them.
//!
//! They form a list, as in netmap: `ni_bufs_head` has the number of the first buffer, and the first word of each buffer has that of the
//! next. A thread that writes or reads the list touches a page for each buffer, which takes 6 µs if the kernel has to make the page: 0.4 s
//! for the 65,536 buffers that one registration may have.
//! The thread that serves all clients therefore takes [`STEP`] at a time, and a list that was given back is read only as far
//! as buffers are needed.

use std::sync::Arc;

use ringway_abi::layout::MAX_EXTRA;

use super::memory::{Region, Room};
use super::room::List;

/// Most buffers that are taken in one step.
const STEP: u32 = 256;

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

    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Takes some buffers and appends them to the list. Takes no more after the region has had too few.
    pub(super) fn take(&mut self, region: &Arc<Region>) -> Vec<u32> {
        let asked = self.left.min(STEP);
        let taken = {
            let mut room = region.room.lock();
            region.give_back(&mut room, asked);
            let count = asked.min(room.pool.left());
            room.pool.allocate(count).unwrap_or_default()
        };
        self.left = if (taken.len() as u32) < asked { 0 } else { self.left - asked };
        for &buffer in &taken {
            if let Some(last) = self.last.replace(buffer) {
                region.write(region.buffer(last), &buffer.to_le_bytes());
            }
        }
        if let Some(last) = self.last {
            region.write(region.buffer(last), &0u32.to_le_bytes());
        }
        taken
    }
}

impl Region {
    /// Gives buffers of lists back to the pool until it has `needed` free ones, or no list is left.
    pub(super) fn give_back(&self, room: &mut Room, needed: u32) {
        while room.pool.left() < needed
            && let Some(List { next, left }) = room.lists.pop()
        {
            if left > 0 && room.pool.free(next) {
                let next = self.word(self.buffer(next)).unwrap_or(0);
                room.lists.push(List { next, left: left - 1 });
            }
        }
    }

    /// Returns the offset of a buffer. The caller has checked the number.
    fn buffer(&self, number: u32) -> usize {
        self.sizes.buffers + number as usize * self.sizes.buffer_size as usize
    }
}
