//! Internet checksums over several pieces.

use ringway_memory::{View, ones_sum};

/// A running ones' complement sum, in the byte order of this machine (RFC 1071).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    total: u64,
    /// True if an odd number of bytes was added.
    odd: bool,
}

impl Sum {
    fn piece(&mut self, sum: u16, len: usize) {
        self.total += u64::from(if self.odd { sum.swap_bytes() } else { sum });
        self.odd ^= len % 2 == 1;
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.piece(ones_sum(bytes), bytes.len());
    }

    /// Adds whole 32-bit words. An even number of bytes was added before.
    #[inline(always)]
    pub(crate) fn add_words<const N: usize>(&mut self, bytes: &[u8; N]) {
        let (words, _) = bytes.as_chunks::<4>();
        // A word is congruent to the sum of its halves.
        self.total += words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum::<u64>();
    }

    /// Returns true if all bytes were added, this checksum among them, and it is right, in the form of [`Sum::checksum`].
    pub(crate) fn is_right(self, checksum: [u8; 2]) -> bool {
        checksum != [0, 0] && self.field() == [0xff, 0xff]
    }

    pub(crate) fn add_view(&mut self, view: View<'_>) {
        self.piece(view.ones_sum(), view.len());
    }

    /// Replaces `old` by `new` in the sum, both as 32-bit numbers in network byte order.
    pub(crate) fn replace(&mut self, old: usize, new: usize) {
        let halves = |number: usize| [(number >> 16) as u16, number as u16];
        let negative = halves(old).map(|half| !half);
        for half in negative.into_iter().chain(halves(new)) {
            self.total += u64::from(half.to_be());
        }
    }

    /// The sum so far, as a partial checksum (not inverted) in wire order.
    pub(crate) fn field(self) -> [u8; 2] {
        let mut sum = self.total;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (sum as u16).to_ne_bytes()
    }

    /// The checksum of all bytes added. Never zero, which in UDP means no checksum (RFC 768).
    pub(crate) fn checksum(self) -> [u8; 2] {
        match self.field().map(|byte| !byte) {
            [0, 0] => [0xff, 0xff],
            sum => sum,
        }
    }
}
