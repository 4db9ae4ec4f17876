//! Which buffers are free.

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// A set of free buffers. They are taken in the order of their numbers, and the first ones again and again while enough of them are
/// free: memory in order is faster for both sides, and a buffer is then sent from the same place of the ring every time.
#[derive(Debug)]
pub struct Free {
    words: Vec<u64>,
    len: usize,
    /// Words with the first buffers, and how many of these are free.
    first: usize,
    first_len: usize,
    /// Where the search for the next one begins.
    next: usize,
    /// No word between the first ones and this one has a free buffer.
    beyond: usize,
}

impl Free {
    /// A set with all of `count` buffers, which uses the first `first` again and again; 0: all.
    pub fn new(count: usize, first: usize) -> Self {
        let mut words = vec![u64::MAX; count.div_ceil(WORD)];
        if let (Some(last), 1..) = (words.last_mut(), count % WORD) {
            *last = (1 << (count % WORD)) - 1;
        }
        let first = if first == 0 { words.len() } else { first.div_ceil(WORD).min(words.len()) };
        Self { words, len: count, first, first_len: count.min(first * WORD), next: 0, beyond: first }
    }

    /// Returns the number of free buffers.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if this buffer is free.
    pub fn has(&self, slot: u32) -> bool {
        self.words.get(slot as usize / WORD).is_some_and(|word| word >> (slot as usize % WORD) & 1 == 1)
    }

    /// Takes the next free buffer.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        let word = self.next / WORD;
        let ahead = self.words.get(word)? & u64::MAX << (self.next % WORD);
        if ahead == 0 { self.take_elsewhere() } else { Some(self.take_bit(word, ahead)) }
    }

    #[inline]
    fn take_bit(&mut self, word: usize, bits: u64) -> u32 {
        let slot = word * WORD + bits.trailing_zeros() as usize;
        self.words[word] &= !(bits & bits.wrapping_neg());
        self.len -= 1;
        if word < self.first {
            self.first_len -= 1;
            self.next = if slot + 1 < self.first * WORD { slot + 1 } else { 0 };
        }
        slot as u32
    }

    #[cold]
    fn take_elsewhere(&mut self) -> Option<u32> {
        let words = if self.first_len > 0 {
            let from = self.next / WORD + 1;
            (from..self.first).chain(0..from).find(|word| self.words[*word] != 0)
        } else {
            let found = (self.beyond..self.words.len()).find(|word| self.words[*word] != 0);
            self.beyond = found.unwrap_or(self.words.len());
            found
        };
        words.map(|word| self.take_bit(word, self.words[word]))
    }

    /// Puts back a buffer that was taken.
    #[inline]
    pub fn put(&mut self, slot: u32) {
        let (word, bit) = (slot as usize / WORD, 1 << (slot as usize % WORD));
        debug_assert_eq!(self.words[word] & bit, 0, "a free buffer is put back");
        self.words[word] |= bit;
        self.len += 1;
        if word < self.first {
            self.first_len += 1;
        } else {
            self.beyond = self.beyond.min(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_buffers_are_used_in_turn_while_one_of_them_is_free() {
        let mut free = Free::new(200, 64);
        for number in 0..150 {
            assert_eq!(free.take(), Some(number % 64));
            free.put(number % 64);
        }
        let taken: Vec<_> = std::iter::from_fn(|| free.take()).collect();
        assert_eq!(taken, (22..64).chain(0..22).chain(64..200).collect::<Vec<_>>());
        free.put(170);
        free.put(3);
        assert_eq!([free.take(), free.take(), free.take()], [Some(3), Some(170), None]);
    }

    proptest! {
        #[test]
        fn every_free_buffer_is_taken_once(count in 1_usize..300, first in 0_usize..300, steps: Vec<Option<u16>>) {
            let (mut free, mut taken) = (Free::new(count, first), BTreeSet::new());
            for step in steps {
                match step {
                    None => {
                        let slot = free.take();
                        prop_assert_eq!(slot.is_none(), taken.len() == count);
                        prop_assert!(slot.is_none_or(|slot| (slot as usize) < count && taken.insert(slot)));
                    }
                    Some(which) if !taken.is_empty() => {
                        let slot = *taken.iter().nth(usize::from(which) % taken.len()).unwrap();
                        taken.remove(&slot);
                        free.put(slot);
                    }
                    Some(_) => {}
                }
                prop_assert_eq!(free.len(), count - taken.len());
                prop_assert!((0..count as u32).all(|slot| free.has(slot) != taken.contains(&slot)));
            }
        }
    }
}
