//! How far the two sides of a transmit ring are.

use super::misuse::Misuse;

/// Positions in a transmit ring. They count descriptors over all laps, and wrap.
#[derive(Debug)]
pub struct Positions {
    size: u32,
    /// The next position to fill.
    head: u32,
    /// The first position that is not published.
    published: u32,
    /// The first position that the device has not completed.
    done: u32,
}

impl Positions {
    /// Those of an empty ring of `size` descriptors, a power of two.
    #[must_use]
    pub fn new(size: u32) -> Self {
        Self { size, head: 0, published: 0, done: 0 }
    }

    /// Returns the number of descriptors.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the next position to fill.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Returns the first position that the device has not completed.
    #[inline]
    #[must_use]
    pub fn done(&self) -> u32 {
        self.done
    }

    /// Returns how many descriptors can be filled, as far as known. One descriptor always stays empty.
    #[inline]
    #[must_use]
    pub fn free(&self) -> u32 {
        self.size - 1 - self.head.wrapping_sub(self.done)
    }

    /// So many descriptors were filled.
    #[inline]
    pub fn filled(&mut self, descriptors: u32) {
        self.head = self.head.wrapping_add(descriptors);
    }

    /// Returns true if there are frames that are not published.
    #[inline]
    #[must_use]
    pub fn has_unpublished(&self) -> bool {
        self.published != self.head
    }

    /// Returns the tail. The caller publishes the tail to the device.
    #[inline]
    pub fn publish(&mut self) -> u32 {
        self.published = self.head;
        self.head & (self.size - 1)
    }

    /// Returns true if the device has descriptors.
    #[inline]
    #[must_use]
    pub fn is_with_device(&self) -> bool {
        self.done != self.published
    }

    /// The device has completed so many more descriptors.
    #[inline]
    pub fn completed(&mut self, descriptors: u32) {
        self.done = self.done.wrapping_add(descriptors);
    }

    /// Returns how many descriptors the device has completed when its head is there.
    ///
    /// # Errors
    /// The head is not between the first descriptor that the device has and the tail.
    #[inline]
    pub fn passed(&self, head: u32) -> Result<u32, Misuse> {
        let passed = head.wrapping_sub(self.done) & (self.size - 1);
        let is_possible = head < self.size && passed <= self.published.wrapping_sub(self.done);
        if is_possible { Ok(passed) } else { Err(Misuse::Head(head)) }
    }

    /// Returns the descriptor in the middle of those that the device has: when the device reaches it, half of them are completed.
    #[must_use]
    pub fn middle(&self) -> u32 {
        self.done.wrapping_add(self.published.wrapping_sub(self.done) / 2) & (self.size - 1)
    }
}
