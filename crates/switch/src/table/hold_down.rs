//! Hold-down of moved addresses: an address that two ports use in alternation moves a few times a minute, not with each
//! frame.
//!
//! ```text
//! record, 64 bits:  tag (21) | hold-downs (3) | home (16) | second (24)   0 = empty
//! bucket:           8 records = one cache line                            an address has one bucket
//! ```
//!
//! An address moves at once the first time. Then it does not move again until its hold-down has ended: a second after the first
//! move, twice as long after each further move, [`LONGEST_SECONDS`] at most. A clock of whole seconds shortens a hold-down by up to a
//! second and never lengthens it.
//!
//! The port that an address was at before its first move is its *home*, and the address may return there at any time. So one frame
//! that came in at a wrong port (a broadcast that an uplink reflected, a forged source) takes an address away until the station
//! sends its next frame, not until the hold-down has ended. A return changes nothing of the hold-down, so there are two moves at
//! most for each hold-down.
//!
//! A record expires [`MEMORY_SECONDS`] seconds after the end of its last hold-down. If a bucket is full, a new record replaces
//! the one that would expire first. A full bucket therefore never refuses a move. Records of addresses that moved often
//! stay longest, so a flood of addresses that move once displaces its own records.
//!
//! All operations are lock-free. The tag and the bucket are 27 bits of a keyed hash that clients cannot compute. Two addresses that
//! share them share a hold-down.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::frame::Owner;

/// Longest hold-down, in seconds.
pub(crate) const LONGEST_SECONDS: u32 = 60;
/// Seconds from the end of a hold-down until its record expires.
pub(crate) const MEMORY_SECONDS: u32 = 60;

const WAYS: usize = 8;
const BUCKETS: usize = 64;
/// Most addresses with a record.
#[cfg(test)]
pub(crate) const MOST: usize = BUCKETS * WAYS;

const SECOND_BITS: u32 = 24;
const SECONDS: u32 = (1 << SECOND_BITS) - 1;
/// Seconds by which the clock of another poller may be ahead.
const SKEW: u32 = 8;
const HOME_AT: u32 = SECOND_BITS;
const NUMBER_AT: u32 = HOME_AT + 16;
const MOST_NUMBER: u8 = 7;
const TAG_AT: u32 = NUMBER_AT + 3;

/// The record of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    tag: u32,
    /// Hold-downs in a row, this one included: 1 to [`MOST_NUMBER`].
    number: u8,
    home: Owner,
    /// When the hold-down began, modulo 2^24.
    second: u32,
}

impl Record {
    fn first(tag: u32, home: Owner, now: u32) -> Record {
        Record { tag, number: 1, home, second: now & SECONDS }
    }

    fn next(self, now: u32) -> Record {
        Record { number: (self.number + 1).min(MOST_NUMBER), second: now & SECONDS, ..self }
    }

    fn from_word(word: u64) -> Option<Record> {
        (word != 0).then(|| Record {
            tag: (word >> TAG_AT) as u32,
            number: (word >> NUMBER_AT) as u8 & MOST_NUMBER,
            home: Owner::from_bits((word >> HOME_AT) as u16),
            second: word as u32 & SECONDS,
        })
    }

    fn word(self) -> u64 {
        u64::from(self.tag) << TAG_AT
            | u64::from(self.number) << NUMBER_AT
            | u64::from(self.home.bits()) << HOME_AT
            | u64::from(self.second)
    }

    /// Seconds that the hold-down lasts.
    fn hold(self) -> u32 {
        (1 << (self.number - 1)).min(LONGEST_SECONDS)
    }

    /// Seconds since it began; 0 where another poller's clock was ahead.
    fn age(self, now: u32) -> u32 {
        let age = now.wrapping_sub(self.second) & SECONDS;
        if age > SECONDS - SKEW { 0 } else { age }
    }

    fn holds(self, now: u32) -> bool {
        self.age(now) < self.hold()
    }

    /// Seconds until the record expires.
    fn memory(self, now: u32) -> u32 {
        (self.hold() + MEMORY_SECONDS).saturating_sub(self.age(now))
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

/// Hold-down records of all addresses (see the module's comment).
#[derive(Debug)]
pub(crate) struct HoldDown {
    records: Box<[Bucket]>,
    /// Refused moves of each record.
    refused: Box<[Bucket]>,
    all_refused: AtomicU64,
}

impl HoldDown {
    pub(crate) fn new() -> HoldDown {
        let buckets = || (0..BUCKETS).map(|_| Bucket::default()).collect();
        HoldDown { records: buckets(), refused: buckets(), all_refused: AtomicU64::new(0) }
    }

    /// Returns true if the address with this hash may move, and begins its hold-down. Otherwise counts the refusal.
    pub(crate) fn admits(&self, hash: u64, from: Owner, to: Owner, now: u32) -> bool {
        let (bucket, tag) = place(hash);
        // Retried if another poller changed the record meanwhile. After a few failures the address moves without a
        // record.
        for _ in 0..WAYS {
            let (way, found) = self.find(bucket, tag, now);
            let known = Record::from_word(found).filter(|record| record.tag == tag && record.memory(now) > 0);
            let new = match known {
                None => Record::first(tag, from, now),
                Some(record) if record.home == to => return true,
                Some(record) if record.holds(now) => {
                    self.refused[bucket].0[way].fetch_add(1, Ordering::Relaxed);
                    self.all_refused.fetch_add(1, Ordering::Relaxed);
                    return false;
                }
                Some(record) => record.next(now),
            };
            let record = &self.records[bucket].0[way];
            if record.compare_exchange(found, new.word(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                if Record::from_word(found).is_none_or(|before| before.tag != tag) {
                    self.refused[bucket].0[way].store(0, Ordering::Relaxed);
                }
                return true;
            }
        }
        true
    }

    /// The index of a tag's record, or of the record that expires first, and the word at that index.
    fn find(&self, bucket: usize, tag: u32, now: u32) -> (usize, u64) {
        let mut oldest = (u32::MAX, (0, 0));
        for (way, word) in self.records[bucket].0.iter().enumerate() {
            let word = word.load(Ordering::Relaxed);
            let record = Record::from_word(word);
            if record.is_some_and(|record| record.tag == tag) {
                return (way, word);
            }
            let memory = record.map_or(0, |record| record.memory(now));
            if memory < oldest.0 {
                oldest = (memory, (way, word));
            }
        }
        oldest.1
    }

    /// Refused moves of the address with this hash since its record began.
    pub(crate) fn refused(&self, hash: u64) -> u64 {
        let (bucket, tag) = place(hash);
        let (way, found) = self.find(bucket, tag, 0);
        match Record::from_word(found) {
            Some(record) if record.tag == tag => self.refused[bucket].0[way].load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// Refused moves of all addresses.
    pub(crate) fn all_refused(&self) -> u64 {
        self.all_refused.load(Ordering::Relaxed)
    }
}

/// The bucket and the tag of a hash.
fn place(hash: u64) -> (usize, u32) {
    (hash as usize % BUCKETS, (hash >> TAG_AT) as u32)
}
