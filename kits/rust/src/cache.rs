//! A table that forgets what has not been used for longest.

use crate::flow::{are_equal, hash};
use crate::memory::filled;
use crate::switch;

/// A new key replaces one of so many, the one that was used longest ago.
const WAYS: usize = 4;

/// Values by keys of N words, in memory that is taken once. The table forgets a key that nobody has used for `lifetime`, and
/// earlier if it is in the way of a new one, so that a sender of many flows cannot fill it for good.
pub struct Cache<const N: usize, V: 'static> {
    seed: u64,
    lifetime: u64,
    sets: &'static mut [[Entry<N, V>; WAYS]],
}

#[derive(Clone, Copy)]
struct Entry<const N: usize, V> {
    /// When it was used; 0: never.
    used: u64,
    key: [u64; N],
    value: V,
}

impl<const N: usize, V: Copy + Default> Cache<N, V> {
    /// An empty cache for so many keys. It forgets a key that nobody has used for `lifetime` nanoseconds. `None` if there is no memory: a key takes 8
    /// bytes for each word, its value, and 8 bytes.
    #[must_use]
    pub fn new(capacity: usize, lifetime: u64) -> Option<Cache<N, V>> {
        Cache::seeded(capacity, lifetime, switch::random())
    }

    fn seeded(capacity: usize, lifetime: u64, seed: u64) -> Option<Cache<N, V>> {
        let sets = (capacity / WAYS).max(1).checked_next_power_of_two()?;
        let empty = Entry { used: 0, key: [0; N], value: V::default() };
        Some(Cache { seed, lifetime, sets: filled(sets, [empty; WAYS])? })
    }

    #[inline]
    fn set(&mut self, key: &[u64; N]) -> &mut [Entry<N, V>; WAYS] {
        let at = hash(key, self.seed) as usize & (self.sets.len() - 1);
        &mut self.sets[at]
    }

    /// The value of a key that is in use, to read and to change it. It is used now (nanoseconds of [`now`](crate::now)).
    #[inline]
    pub fn get(&mut self, key: &[u64; N], now: u64) -> Option<&mut V> {
        let lifetime = self.lifetime;
        let entry = self.set(key).iter_mut().find(|entry| are_equal(&entry.key, key) && entry.used != 0)?;
        if now.saturating_sub(entry.used) > lifetime {
            return None;
        }
        entry.used = now.max(1);
        Some(&mut entry.value)
    }

    /// Sets the value of a key, which is used now. Returns the key that it replaces, if that was still in use.
    #[inline]
    pub fn insert(&mut self, key: [u64; N], value: V, now: u64) -> Option<([u64; N], V)> {
        let lifetime = self.lifetime;
        let set = self.set(&key);
        let known = set.iter().position(|entry| are_equal(&entry.key, &key) && entry.used != 0);
        let oldest = || (0..WAYS).min_by_key(|&way| set[way].used).unwrap_or(0);
        let entry = &mut set[known.unwrap_or_else(oldest)];
        let before = core::mem::replace(entry, Entry { used: now.max(1), key, value });
        let was_in_use =
            before.used != 0 && !are_equal(&before.key, &key) && now.saturating_sub(before.used) <= lifetime;
        if was_in_use {
            Some((before.key, before.value))
        } else {
            None
        }
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &[u64; N]) {
        self.set(key).iter_mut().filter(|entry| are_equal(&entry.key, key)).for_each(|entry| entry.used = 0);
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        self.sets.iter_mut().flatten().for_each(|entry| entry.used = 0);
    }

    /// All keys and values that were used within the lifetime, in no order.
    pub fn iter(&self, now: u64) -> impl Iterator<Item = (&[u64; N], V)> {
        let lifetime = self.lifetime;
        let all = self.sets.iter().flatten();
        all.filter(move |entry| entry.used != 0 && now.saturating_sub(entry.used) <= lifetime)
            .map(|entry| (&entry.key, entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn what_is_not_used_for_its_lifetime_is_forgotten() {
        let mut cache = Cache::<1, u32>::seeded(64, 100, 1).unwrap();
        assert_eq!(cache.insert([0], 7, 1000), None);
        assert_eq!(cache.get(&[0], 1100), Some(&mut 7));
        assert_eq!(cache.get(&[0], 1200).copied(), Some(7), "used at 1100");
        assert_eq!((cache.iter(1300).count(), cache.iter(1301).count()), (1, 0));
        assert_eq!(cache.get(&[0], 1301), None);
        assert_eq!(cache.get(&[1], 1000), None);
        assert_eq!(cache.insert([0], 8, 2000), None);
        cache.remove(&[0]);
        assert_eq!(cache.get(&[0], 2000), None);
    }

    #[test]
    fn a_new_key_replaces_the_one_that_was_used_longest_ago() {
        // One set.
        let mut cache = Cache::<1, u64>::seeded(WAYS, 1000, 1).unwrap();
        (0..4).for_each(|key| assert_eq!(cache.insert([key], key, 10 + key), None));
        assert_eq!(cache.get(&[0], 30), Some(&mut 0));
        assert_eq!(cache.insert([4], 4, 40), Some(([1], 1)));
        assert_eq!(cache.insert([4], 5, 41), None, "its own value");
        let mut keys: Vec<u64> = cache.iter(50).map(|(key, _)| key[0]).collect();
        keys.sort_unstable();
        assert_eq!(keys, [0, 2, 3, 4]);
        assert_eq!(cache.insert([9], 9, 2000), None, "what was too old is not reported");
        cache.clear();
        assert_eq!(cache.iter(2000).count(), 0);
    }
}
