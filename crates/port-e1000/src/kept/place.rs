//! The words in which a ring notes how far it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_memory::{Kept, Mapping};

/// The rings of a NIC: the index of their places.
pub(crate) const TRANSMIT: usize = 0;
pub(crate) const TRANSMIT_SECOND: usize = 1;
pub(crate) const RECEIVE: usize = 2;
pub(super) const PLACES: usize = 3;

/// Words of a place: the position, the ring's base, and from `CONTEXTS` on two copies of the contexts.
pub(super) const WORDS: usize = 16;
const POSITION: usize = 0;
const BASE: usize = 1;
const CONTEXTS: usize = 8;
/// Words of the contexts of a transmit ring.
pub(crate) const CONTEXT_WORDS: usize = 4;

/// What the ring does.
const ON: u64 = 1;
const BROKEN: u64 = 2;

/// How far a ring is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The ring's size in descriptors: fewer than 65,536.
    pub(crate) count: u32,
    /// The first descriptor that is not completed.
    pub(crate) head: u32,
    /// The first descriptor that is not taken.
    pub(crate) next: u32,
    /// Which copy of the contexts holds.
    pub(crate) contexts: bool,
}

/// What a place says of its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// It was not in use.
    Nothing,
    /// It was in use.
    On {
        /// Where it is, in the guest's memory.
        base: u64,
        position: Position,
    },
    /// It had a fault and rested.
    Broken,
}

/// The words of one ring. One thread at a time writes them. When the place is dropped with its ring, the words say that the ring is not in use.
#[derive(Debug)]
pub(crate) struct Place {
    words: Kept<[AtomicU64; WORDS]>,
    /// The words stay as they are when this is dropped.
    stays: bool,
}

impl Place {
    /// The words that begin at this offset of the mapping.
    pub(super) fn new(mapping: &Arc<Mapping>, at: usize) -> Option<Place> {
        let words = Kept::new(mapping, |mapping| mapping.view(at, 8 * WORDS)?.words64()?.first_chunk())?;
        Some(Place { words, stays: false })
    }

    /// Notes that the ring is in use at `base`.
    pub(crate) fn begin(&self, base: u64, position: Position) {
        self.words[BASE].store(base, Ordering::Relaxed);
        self.set(position);
    }

    /// Notes how far the ring is: one store.
    #[inline(always)]
    pub(crate) fn set(&self, position: Position) {
        let Position { count, head, next, contexts } = position;
        let word =
            ON << 52 | u64::from(contexts) << 48 | u64::from(count) << 32 | u64::from(next) << 16 | u64::from(head);
        self.words[POSITION].store(word, Ordering::Release);
    }

    /// Writes the copy of the contexts which does not hold. It holds from the next [`Place::set`] on that says so.
    pub(crate) fn set_contexts(&self, second: bool, contexts: [u64; CONTEXT_WORDS]) {
        let first = CONTEXTS + if second { CONTEXT_WORDS } else { 0 };
        self.words[first..].iter().zip(contexts).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    pub(crate) fn contexts(&self, second: bool) -> [u64; CONTEXT_WORDS] {
        let first = CONTEXTS + if second { CONTEXT_WORDS } else { 0 };
        std::array::from_fn(|index| self.words[first + index].load(Ordering::Relaxed))
    }

    /// Notes that the ring rests after a fault.
    pub(crate) fn set_broken(mut self) {
        self.words[POSITION].store(BROKEN << 52, Ordering::Release);
        self.stays = true;
    }

    /// Lets go of the words as they are. Returns what they say.
    pub(super) fn leave(mut self) -> Noted {
        self.stays = true;
        self.noted()
    }

    fn noted(&self) -> Noted {
        let word = self.words[POSITION].load(Ordering::Acquire);
        let base = self.words[BASE].load(Ordering::Relaxed);
        let part = |shift: u32| (word >> shift & 0xffff) as u32;
        match word >> 52 {
            0 => Noted::Nothing,
            ON => {
                let position =
                    Position { count: part(32), head: part(0), next: part(16), contexts: word >> 48 & 1 != 0 };
                Noted::On { base, position }
            }
            _ => Noted::Broken,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.stays {
            self.words[POSITION].store(0, Ordering::Release);
        }
    }
}
