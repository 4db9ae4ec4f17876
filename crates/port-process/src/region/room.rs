//! The room of a region: which pages of its control area and which buffers of its pool are in use.

use std::ops::Range;

use ringway_abi::layout::{FIRST_BUFFER, PAGE};

/// Free pages of a range of offsets.
#[derive(Debug)]
pub(super) struct Pages {
    /// Free ranges in ascending order. No two of them touch.
    free: Vec<Range<usize>>,
}

impl Pages {
    /// All pages of `range` are free.
    pub(super) fn new(range: Range<usize>) -> Self {
        Self { free: vec![range] }
    }

    /// Allocates `bytes`, a multiple of the page size, at the lowest offset with room for them.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<usize> {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        let place = self.free.iter().position(|range| range.len() >= bytes)?;
        let range = &mut self.free[place];
        let at = range.start;
        range.start += bytes;
        if range.start == range.end {
            self.free.remove(place);
        }
        Some(at)
    }

    /// Frees what [`Pages::allocate`] has returned.
    pub(super) fn free(&mut self, at: usize, bytes: usize) {
        let place = self.free.partition_point(|range| range.start < at);
        self.free.insert(place, at..at + bytes);
        if self.free.get(place + 1).is_some_and(|next| next.start == at + bytes) {
            self.free[place].end = self.free.remove(place + 1).end;
        }
        if place > 0 && self.free[place - 1].end == at {
            self.free[place - 1].end = self.free.remove(place).end;
        }
    }
}

/// Free buffers of a pool: one bit for each, set while it is free.
#[derive(Debug)]
pub(super) struct Pool {
    bits: Box<[u64]>,
    count: u32,
    free: u32,
}

impl Pool {
    /// A pool of `count` buffers, all free except the reserved ones.
    pub(super) fn new(count: u32) -> Self {
        let mut pool = Self { bits: vec![0; (count as usize).div_ceil(64)].into(), count, free: 0 };
        (FIRST_BUFFER..count).for_each(|buffer| _ = pool.free(buffer));
        pool
    }

    /// Returns the number of free buffers.
    pub(super) fn left(&self) -> u32 {
        self.free
    }

    /// Allocates `count` buffers, those with the lowest numbers. Returns `None`, without effect, if fewer are free.
    pub(super) fn allocate(&mut self, count: u32) -> Option<Vec<u32>> {
        if count > self.free {
            return None;
        }
        let mut buffers = Vec::with_capacity(count as usize);
        for (place, bits) in self.bits.iter_mut().enumerate() {
            while *bits != 0 && buffers.len() < count as usize {
                buffers.push(place as u32 * 64 + bits.trailing_zeros());
                *bits &= *bits - 1;
            }
        }
        self.free -= count;
        Some(buffers)
    }

    /// Frees a buffer. Returns false if there is no such buffer, or it is free already: clients write these numbers.
    pub(super) fn free(&mut self, buffer: u32) -> bool {
        if !(FIRST_BUFFER..self.count).contains(&buffer) {
            return false;
        }
        let (bits, bit) = (&mut self.bits[buffer as usize / 64], 1 << (buffer % 64));
        let was_used = *bits & bit == 0;
        *bits |= bit;
        self.free += u32::from(was_used);
        was_used
    }
}

/// The extra buffers of a registration that has ended. The program has written the numbers.
#[derive(Debug)]
pub(super) struct List {
    /// The first buffer.
    pub(super) next: u32,
    /// The number of buffers that the registration had.
    pub(super) left: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_freed_in_any_order_become_one_range_again() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut pages = Pages::new(PAGE..7 * PAGE);
            let parts = [1, 2, 3].map(|count| (pages.allocate(count * PAGE).expect("room"), count * PAGE));
            assert_eq!(parts.map(|(at, _)| at), [PAGE, 2 * PAGE, 4 * PAGE]);
            assert_eq!(pages.allocate(PAGE), None);
            for part in order {
                pages.free(parts[part].0, parts[part].1);
            }
            assert_eq!((pages.free.len(), &pages.free[0]), (1, &(PAGE..7 * PAGE)), "{order:?}");
        }
    }

    #[test]
    fn a_part_goes_to_the_first_place_with_room_for_all_of_it() {
        let mut pages = Pages::new(0..8 * PAGE);
        let parts: Vec<usize> = (0..8).map_while(|_| pages.allocate(PAGE)).collect();
        pages.free(parts[1], PAGE);
        pages.free(parts[4], PAGE);
        pages.free(parts[5], PAGE);
        assert_eq!(pages.allocate(3 * PAGE), None, "three pages in a row are not free");
        assert_eq!(pages.allocate(2 * PAGE), Some(parts[4]));
        assert_eq!(pages.allocate(PAGE), Some(parts[1]));
    }

    #[test]
    fn a_pool_gives_each_buffer_once_and_takes_it_back_once() {
        let mut pool = Pool::new(200);
        assert_eq!(pool.left(), 198);
        let mut all = pool.allocate(100).expect("room");
        assert_eq!(pool.allocate(99), None, "98 are left");
        all.extend(pool.allocate(98).expect("room"));
        assert_eq!(all, (2..200).collect::<Vec<_>>());
        assert!(pool.free(70) && pool.free(3) && !pool.free(70), "a buffer is freed once");
        for wrong in [0, 1, 200, 255, u32::MAX] {
            assert!(!pool.free(wrong), "buffer {wrong} is none of the pool");
        }
        assert_eq!((pool.left(), pool.allocate(2)), (2, Some(vec![3, 70])));
    }
}
