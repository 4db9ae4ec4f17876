//! A ring of records: any number of writers that never wait, and one reader.
//!
//! ```text
//!        freed                      reserved
//!          |                            |
//!  ........[record][record][..unwritten][........     positions only grow; a place is its position modulo the size
//! ```
//!
//! A writer reserves a record's place by moving `reserved`, fills the place, and writes the record's first word last: a
//! record whose first word is 0 is not there yet. The reader zeroes what it has taken before it moves `freed`, so that every
//! place that can be reserved begins with 0. A place that is dropped unwritten, by a panic, is marked as one to skip. A
//! record never crosses the end of the memory: a record that would cross it is put at the beginning, behind a record of
//! nothing.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_memory::{Mapping, View};

/// Alignment of records in bytes.
const ALIGN: usize = 8;
/// First word of an empty record that fills the memory to its end.
const NOTHING: u64 = u64::MAX;
/// Low half of the first word of a record that was never written. The high half is its length.
const SKIPPED: u32 = u32::MAX - 1;
/// Zeroed at a time.
const ZEROES: [u8; 4096] = [0; 4096];

/// The ring: see the description of the module.
#[derive(Debug)]
pub struct Ring {
    memory: Mapping,
    size: u64,
    reserved: AtomicU64,
    freed: AtomicU64,
}

/// Memory for one record. [`Reservation::publish`] writes its first eight bytes. If it is dropped before that, the reader
/// skips the record.
#[derive(Debug)]
pub struct Reservation<'r> {
    record: View<'r>,
    first_word: u64,
}

impl Ring {
    /// Makes a ring of at least `bytes` bytes, rounded up to a power of two from 4,096 on. Pages are allocated when
    /// first touched.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(bytes: usize) -> io::Result<Ring> {
        let size = bytes.max(4096).next_power_of_two();
        let memory = Mapping::private(size)?;
        Ok(Ring { memory, size: size as u64, reserved: AtomicU64::new(0), freed: AtomicU64::new(0) })
    }

    /// Reserves memory for a record of `len` bytes (at least 8). Returns `None` when there is no room.
    #[inline]
    pub fn reserve(&self, len: usize) -> Option<Reservation<'_>> {
        let stride = len.max(ALIGN).next_multiple_of(ALIGN) as u64;
        let mut at = self.reserved.load(Ordering::Relaxed);
        loop {
            let to_end = self.size - at % self.size;
            let skipped = if stride > to_end { to_end } else { 0 };
            let after = at + skipped + stride;
            // Acquire: the freed memory has been zeroed before.
            let freed = self.freed.load(Ordering::Acquire);
            match after.checked_sub(freed) {
                // `at` is stale: the reader has freed memory beyond `after` since.
                None => {
                    at = self.reserved.load(Ordering::Relaxed);
                    continue;
                }
                Some(used) if used > self.size => return None,
                Some(_) => {}
            }
            match self.reserved.compare_exchange_weak(at, after, Ordering::Relaxed, Ordering::Relaxed) {
                Err(now) => at = now,
                Ok(_) => {
                    if skipped > 0 {
                        self.first_word(at)?.store(NOTHING, Ordering::Release);
                    }
                    let record = self.memory.view(self.offset(at + skipped), len)?;
                    return Some(Reservation { record, first_word: u64::from(SKIPPED) | stride << 32 });
                }
            }
        }
    }

    /// Calls `look` with the oldest record and frees it. `len` computes the record's length from its first word.
    /// Returns `None` when no record is published. Only one thread may read.
    pub fn take<T>(&self, len: impl FnOnce(u64) -> usize, look: impl FnOnce(View<'_>) -> T) -> Option<T> {
        let mut at = self.freed.load(Ordering::Relaxed);
        let mut word = self.first_word(at)?.load(Ordering::Acquire);
        while word == NOTHING || word as u32 == SKIPPED {
            at = self.free(at, if word == NOTHING { self.size - at % self.size } else { word >> 32 });
            word = self.first_word(at)?.load(Ordering::Acquire);
        }
        if word == 0 {
            return None;
        }
        let len = len(word);
        let looked = look(self.memory.view(self.offset(at), len)?);
        self.free(at, len.max(ALIGN).next_multiple_of(ALIGN) as u64);
        Some(looked)
    }

    /// Returns true if there is no record, neither published nor reserved.
    pub fn is_empty(&self) -> bool {
        self.freed.load(Ordering::Relaxed) == self.reserved.load(Ordering::Relaxed)
    }

    /// Frees `len` bytes at `at`. Returns the position after them.
    fn free(&self, at: u64, len: u64) -> u64 {
        let mut zeroed = 0;
        while zeroed < len {
            let part = (len - zeroed).min(ZEROES.len() as u64) as usize;
            let place = self.memory.view(self.offset(at + zeroed), part);
            debug_assert!(place.is_some(), "records do not cross the end");
            let _ = place.is_some_and(|place| place.write(&ZEROES[..part]));
            zeroed += part as u64;
        }
        self.freed.store(at + len, Ordering::Release);
        at + len
    }

    fn offset(&self, at: u64) -> usize {
        (at % self.size) as usize
    }

    fn first_word(&self, at: u64) -> Option<&AtomicU64> {
        self.memory.view(self.offset(at), ALIGN)?.words64()?.first()
    }
}

impl<'r> Reservation<'r> {
    /// Returns the bytes of the record. All are zero.
    #[inline]
    pub fn bytes(&self) -> View<'r> {
        self.record
    }

    /// Writes the first eight bytes and publishes the record. The low four bytes must be neither 0 nor one of the two
    /// largest numbers.
    #[inline]
    pub fn publish(mut self, first_word: u64) {
        debug_assert!((1..SKIPPED).contains(&(first_word as u32)));
        self.first_word = first_word;
    }
}

impl Drop for Reservation<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(word) = self.record.sub(0, ALIGN).and_then(|start| start.words64()).and_then(<[_]>::first) {
            word.store(self.first_word, Ordering::Release);
        }
    }
}
