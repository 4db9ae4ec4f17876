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

/// What records are aligned to, in bytes.
const ALIGN: usize = 8;
/// The first word of a record of nothing, which ends with the memory.
const NOTHING: u64 = u64::MAX;
/// The low half of the first word of a record that nobody wrote; the high half is its length.
const SKIPPED: u32 = u32::MAX - 1;
/// Bytes zeroed at a time.
const ZEROES: [u8; 4096] = [0; 4096];

/// See the module's description.
#[derive(Debug)]
pub struct Ring {
    memory: Mapping,
    size: u64,
    reserved: AtomicU64,
    freed: AtomicU64,
}

/// A place for one record. Its first eight bytes are written by [`Place::publish`]; dropped before that, it is skipped.
#[derive(Debug)]
pub struct Place<'r> {
    record: View<'r>,
    first_word: u64,
}

impl Ring {
    /// A ring of at least `bytes`, a power of two from 4,096 on. Pages are taken when first touched.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(bytes: usize) -> io::Result<Ring> {
        let size = bytes.max(4096).next_power_of_two();
        let memory = Mapping::private(size)?;
        Ok(Ring { memory, size: size as u64, reserved: AtomicU64::new(0), freed: AtomicU64::new(0) })
    }

    /// A place for a record of `len` bytes, at least 8; none when there is no room.
    #[inline]
    pub fn reserve(&self, len: usize) -> Option<Place<'_>> {
        let stride = len.max(ALIGN).next_multiple_of(ALIGN) as u64;
        let mut at = self.reserved.load(Ordering::Relaxed);
        loop {
            let to_end = self.size - at % self.size;
            let skipped = if stride > to_end { to_end } else { 0 };
            let after = at + skipped + stride;
            // Acquire: what was freed has been zeroed.
            let freed = self.freed.load(Ordering::Acquire);
            match after.checked_sub(freed) {
                // Other writers have reserved, and the reader has freed, beyond `after` since `at` was read.
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
                    return Some(Place { record, first_word: u64::from(SKIPPED) | stride << 32 });
                }
            }
        }
    }

    /// The oldest record, whose first word is what was published; none when it is not there yet. `len` tells its length from
    /// its first word. For the one reader.
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

    /// Whether there is nothing to take, now or as soon as a writer has finished.
    pub fn is_empty(&self) -> bool {
        self.freed.load(Ordering::Relaxed) == self.reserved.load(Ordering::Relaxed)
    }

    /// Gives `len` bytes at `at` back. Returns the position behind them.
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

impl<'r> Place<'r> {
    /// The bytes of the record. All are zero.
    #[inline]
    pub fn bytes(&self) -> View<'r> {
        self.record
    }

    /// Writes the first eight bytes, of which the low four must not be 0 nor one of the two largest numbers, and shows the record
    /// to the reader.
    #[inline]
    pub fn publish(mut self, first_word: u64) {
        debug_assert!((1..SKIPPED).contains(&(first_word as u32)));
        self.first_word = first_word;
    }
}

impl Drop for Place<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(word) = self.record.sub(0, ALIGN).and_then(|start| start.words64()).and_then(<[_]>::first) {
            word.store(self.first_word, Ordering::Release);
        }
    }
}
