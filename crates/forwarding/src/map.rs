//! The map that the instances of a program share.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::ENTRIES_MAX;

/// Parts of the map, each behind a lock of its own.
const SHARDS: usize = 16;

type Shard = HashMap<Box<[u8]>, Box<[u8]>>;

/// A map from bytes to bytes with a bounded number of entries.
#[derive(Debug)]
pub(crate) struct SharedMap {
    shards: [Mutex<Shard>; SHARDS],
    entries: AtomicUsize,
    hash: RandomState,
}

impl SharedMap {
    pub(crate) fn new() -> SharedMap {
        SharedMap { shards: Default::default(), entries: AtomicUsize::new(0), hash: RandomState::new() }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let place = self.hash.hash_one(key) as usize % SHARDS;
        self.shards[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `read` with the value of a key.
    pub(crate) fn get<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.shard(key).get(key).map(|value| read(value))
    }

    /// Sets the value of a key. Returns false if there is no room for another one.
    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> bool {
        let mut shard = self.shard(key);
        if let Some(present) = shard.get_mut(key) {
            match present.len() == value.len() {
                true => present.copy_from_slice(value),
                false => *present = value.into(),
            }
            return true;
        }
        if self.entries.fetch_add(1, Ordering::Relaxed) >= ENTRIES_MAX {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        shard.insert(key.into(), value.into());
        true
    }

    /// Removes a key. Returns false if there was none.
    pub(crate) fn remove(&self, key: &[u8]) -> bool {
        let removed = self.shard(key).remove(key).is_some();
        if removed {
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_takes_no_new_key_and_gives_the_room_of_removed_ones_back() {
        let map = SharedMap::new();
        for number in 0..ENTRIES_MAX as u32 {
            assert!(map.set(&number.to_le_bytes(), b"v"));
        }
        assert!(!map.set(b"one more", b"v"));
        assert!(map.set(&7_u32.to_le_bytes(), b"another length"));
        assert_eq!(map.get(&7_u32.to_le_bytes(), <[u8]>::to_vec), Some(b"another length".to_vec()));
        assert!(map.remove(&7_u32.to_le_bytes()) && !map.remove(&7_u32.to_le_bytes()));
        assert!(map.set(b"one more", b"v"));
        assert_eq!(map.len(), ENTRIES_MAX);
    }
}
