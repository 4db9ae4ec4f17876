//! A table of a fixed size.

use crate::flow::{are_equal, hash};
use crate::memory::filled;
use crate::switch;

/// Values by keys of N words, in memory that is taken once: what is in it stays until it is removed. For things that come and go by themselves, take a
/// [`Cache`](crate::Cache).
pub struct Table<const N: usize, V: 'static> {
    seed: u64,
    capacity: usize,
    len: usize,
    /// Twice the capacity or more, so that runs of used slots are short.
    slots: &'static mut [Option<([u64; N], V)>],
}

impl<const N: usize, V: Copy> Table<N, V> {
    /// An empty table for so many keys. `None` if there is no memory: a key takes 8 bytes for each word, its value, and 8 bytes, two to four times.
    #[must_use]
    pub fn new(capacity: usize) -> Option<Table<N, V>> {
        Table::seeded(capacity, switch::random())
    }

    pub(crate) fn seeded(capacity: usize, seed: u64) -> Option<Table<N, V>> {
        let slots = capacity.max(1).checked_mul(2)?.checked_next_power_of_two()?;
        Some(Table { seed, capacity, len: 0, slots: filled(slots, None)? })
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn home(&self, key: &[u64; N]) -> usize {
        hash(key, self.seed) as usize & (self.slots.len() - 1)
    }

    /// The slot of a key, or the free one that it would get.
    #[inline]
    fn place(&self, key: &[u64; N]) -> usize {
        let mut at = self.home(key);
        // Ends, as half of the slots are free.
        while matches!(&self.slots[at], Some((other, _)) if !are_equal(other, key)) {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// The value of a key.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u64; N]) -> Option<V> {
        self.slots[self.place(key)].map(|(_, value)| value)
    }

    /// The value of a key, to change it.
    #[inline]
    pub fn get_mut(&mut self, key: &[u64; N]) -> Option<&mut V> {
        let at = self.place(key);
        self.slots[at].as_mut().map(|(_, value)| value)
    }

    /// Sets the value of a key. Returns false if the table is full.
    #[must_use]
    pub fn insert(&mut self, key: [u64; N], value: V) -> bool {
        let at = self.place(&key);
        if self.slots[at].is_none() {
            if self.len == self.capacity {
                return false;
            }
            self.len += 1;
        }
        self.slots[at] = Some((key, value));
        true
    }

    /// Removes a key. Returns its value.
    pub fn remove(&mut self, key: &[u64; N]) -> Option<V> {
        let mask = self.slots.len() - 1;
        let mut free = self.place(key);
        let (_, removed) = self.slots[free].take()?;
        self.len -= 1;
        // Keys behind it move up, if their way from home leads over the free slot.
        let mut at = (free + 1) & mask;
        while let Some((key, _)) = &self.slots[at] {
            let way = at.wrapping_sub(self.home(key)) & mask;
            if way >= at.wrapping_sub(free) & mask {
                self.slots[free] = self.slots[at].take();
                free = at;
            }
            at = (at + 1) & mask;
        }
        Some(removed)
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| *slot = None);
        self.len = 0;
    }

    /// All keys and values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u64; N], V)> {
        self.slots.iter().filter_map(|slot| slot.as_ref().map(|(key, value)| (key, *value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_table_does_what_a_map_of_the_standard_library_does() {
        for seed in 0..50 {
            let mut table = Table::<2, u32>::seeded(40, seed).unwrap();
            let mut model = HashMap::new();
            let mut state = seed + 1;
            for step in 0..2000 {
                state = hash(&[state], seed);
                let key = [state >> 8 & 63, 7];
                match state & 3 {
                    0 => assert_eq!(table.remove(&key), model.remove(&key)),
                    1 => assert_eq!(table.get(&key), model.get(&key).copied()),
                    _ => {
                        let fits = model.len() < 40 || model.contains_key(&key);
                        assert_eq!(table.insert(key, step), fits);
                        if fits {
                            model.insert(key, step);
                        }
                    }
                }
                assert_eq!(table.len(), model.len());
            }
            let all: HashMap<_, _> = table.iter().map(|(key, value)| (*key, value)).collect();
            assert_eq!(all, model);
            table.clear();
            assert!(table.is_empty() && table.iter().next().is_none());
        }
    }

    #[test]
    fn a_table_that_no_memory_can_hold_is_none() {
        assert!(Table::<4, u64>::seeded(usize::MAX / 4, 0).is_none());
    }
}
