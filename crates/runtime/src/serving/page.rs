//! The page, as this process writes it: a slot for each thread, an entry for each port. Stores are relaxed: who reads them reads after the end of the
//! process, or sees that a thread stands still.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ringway_keeper::page::{
    BYTES, Cause, DEATH, LIFE, Left, PORTS, SLOTS, SlotWord, VERSION, death_word, port_word, port_words, slot_word,
};
use ringway_memory::{Mapping, SharedMemory};
use ringway_switch::note_giving_in;
use rustix::thread::gettid;

/// The words of the page. None: nothing is noted, as in tests of parts.
static WORDS: OnceLock<&'static [AtomicU64]> = OnceLock::new();
/// Its robust futex.
static LIFE_WORD: OnceLock<&'static AtomicU32> = OnceLock::new();
/// The numbers that are not in use, the lowest ones last.
static FREE_SLOTS: Mutex<Vec<u16>> = Mutex::new(Vec::new());
static FREE_PORTS: Mutex<Vec<u16>> = Mutex::new(Vec::new());
/// Words that nobody reads, of threads without a slot that have ended.
static FREE_WORDS: Mutex<Vec<Words>> = Mutex::new(Vec::new());

/// The words for the port in use, the receiver and the turns.
type Words = [&'static AtomicU64; 3];

thread_local! {
    /// The slot of the thread, plus 1; 0: none. Without a destructor and with a constant value, so that a signal handler can use it.
    static SLOT: Cell<u16> = const { Cell::new(0) };
}

fn lock<T>(free: &'static Mutex<Vec<T>>) -> MutexGuard<'static, Vec<T>> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Uses this page, which is emptied, or memory that nobody else reads. Slots and entries are those of this process from now on.
///
/// # Errors
/// The page cannot be had: the other memory is used.
pub(super) fn begin(page: Option<OwnedFd>) -> io::Result<()> {
    let shared = page.map(|page| {
        Left::clear(&page)?;
        Ok::<_, io::Error>(Arc::clone(SharedMemory::open(page, BYTES)?.mapping()))
    });
    let (memory, had) = match shared.transpose() {
        Ok(Some(shared)) => (shared, Ok(())),
        Ok(None) => (Arc::new(Mapping::private(BYTES)?), Ok(())),
        Err(why) => (Arc::new(Mapping::private(BYTES)?), Err(why)),
    };
    // Threads write to it until the process ends.
    let memory: &'static Arc<Mapping> = Box::leak(Box::new(memory));
    let words = memory.view(0, BYTES).and_then(|view| view.words64()).unwrap_or_default();
    let numbers = |most: usize| (0..most as u16).rev().collect();
    if WORDS.set(words).is_ok() && !words.is_empty() {
        (*lock(&FREE_SLOTS), *lock(&FREE_PORTS)) = (numbers(SLOTS), numbers(PORTS));
        words[0].store(VERSION, Ordering::Relaxed);
        let life = memory.view(0, BYTES).and_then(|view| view.words32()?.get(LIFE));
        life.map(|word| LIFE_WORD.set(word));
    }
    had
}

/// The robust futex of the page.
pub(super) fn life() -> Option<&'static AtomicU32> {
    LIFE_WORD.get().copied()
}

/// Returns a word of the page.
fn word(number: usize) -> Option<&'static AtomicU64> {
    WORDS.get()?.get(number)
}

/// Notes of what the process dies, and in which thread, if that is the calling one: the first one that dies. Async-signal-safe.
pub(super) fn note_death(cause: Cause, is_of_this_thread: bool) {
    let Some(death) = word(DEATH) else { return };
    let slot = usize::from(SLOT.try_with(Cell::get).unwrap_or(0)).checked_sub(1).filter(|_| is_of_this_thread);
    let mine = death_word(cause, slot);
    let before = death.load(Ordering::Relaxed);
    // What follows from a thread's own death replaces it: the library's handler for stack overflows ends the process by another signal.
    if before == 0 || before >> 32 == mine >> 32 {
        let _ = death.compare_exchange(before, mine, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// What one thread notes: its slot of the page, or words that nobody reads, if there is none.
#[derive(Debug)]
pub struct Note {
    slot: Option<u16>,
    using: &'static AtomicU64,
    receiver: &'static AtomicU64,
    turns: &'static AtomicU64,
}

impl Note {
    /// A slot for a thread that is still to come.
    #[must_use]
    pub fn new() -> Note {
        let slot = lock(&FREE_SLOTS).pop();
        let of = |at| word(slot_word(slot?.into(), at));
        match (of(SlotWord::Using), of(SlotWord::Receiver), of(SlotWord::Turns)) {
            (Some(using), Some(receiver), Some(turns)) => Note { slot, using, receiver, turns },
            // Other threads of the process may read the words after the thread's end.
            _ => {
                let new = || Box::leak(Box::new([const { AtomicU64::new(0) }; 3])).each_ref();
                let [using, receiver, turns] = lock(&FREE_WORDS).pop().unwrap_or_else(new);
                Note { slot: None, using, receiver, turns }
            }
        }
    }

    /// The calling thread is the one that notes here.
    pub(super) fn enter_thread(&self, duty: u32) {
        let Some(slot) = self.slot else { return };
        SLOT.set(slot + 1);
        note_giving_in(word(slot_word(slot.into(), SlotWord::Giving)));
        if let Some(thread) = word(slot_word(slot.into(), SlotWord::Thread)) {
            let number = gettid().as_raw_nonzero().get() as u32;
            thread.store(u64::from(duty) << 32 | u64::from(number), Ordering::Relaxed);
        }
    }

    /// From now on the thread serves the port with this id; 0: none.
    #[inline(always)]
    pub fn serve(&self, id: u64) {
        self.using.store(id, Ordering::Relaxed);
    }

    /// The id of the port that the thread serves; 0: none.
    #[inline]
    #[must_use]
    pub fn using(&self) -> u64 {
        self.using.load(Ordering::Relaxed)
    }

    /// Notes a round of the thread's loop.
    #[inline(always)]
    pub fn turn(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The word for the port that the thread touches as a receiver.
    #[must_use]
    pub fn receiver(&self) -> &'static AtomicU64 {
        self.receiver
    }
}

impl Default for Note {
    fn default() -> Note {
        Note::new()
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let Some(slot) = self.slot else {
            let words = [self.using, self.receiver, self.turns];
            words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            return lock(&FREE_WORDS).push(words);
        };
        // Of the thread itself, if it ends, or of one that never began.
        if SLOT.get() == slot + 1 {
            SLOT.set(0);
            note_giving_in(None);
        }
        for at in [SlotWord::Thread, SlotWord::Using, SlotWord::Receiver, SlotWord::Turns, SlotWord::Giving] {
            word(slot_word(slot.into(), at)).into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        lock(&FREE_SLOTS).push(slot);
    }
}

/// The name of a port, for who reads the page.
#[derive(Debug)]
pub struct Entry {
    place: u16,
    id: u64,
}

impl Entry {
    /// The entry of the port with this id and address, whose label is `SWITCH:PORT`. `None`: there are too many.
    #[must_use]
    pub fn new(id: u64, address: u64, label: &str) -> Option<Entry> {
        let place = lock(&FREE_PORTS).pop()?;
        let first = port_word(place.into());
        let words = port_words(id, address, label);
        // The id last: an entry without one is none.
        for (at, value) in words.iter().enumerate().rev() {
            let order = if at == 0 { Ordering::Release } else { Ordering::Relaxed };
            word(first + at)?.store(*value, order);
        }
        Some(Entry { place, id })
    }

    /// The entry of a port that a thread other than a poller's serves.
    pub(super) fn of_thread(label: &str) -> Option<Entry> {
        // Above the ids of pollers' ports.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        Entry::new(NEXT.fetch_add(1, Ordering::Relaxed), 0, label)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(id) = word(port_word(self.place.into())) {
            id.store(0, Ordering::Relaxed);
        }
        lock(&FREE_PORTS).push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn threads_without_a_slot_use_words_of_those_that_have_ended() {
        assert!(lock(&FREE_SLOTS).is_empty(), "no page was begun");
        let (one, other) = (Note::new(), Note::new());
        assert!(!ptr::eq(one.using, other.using) && !ptr::eq(one.turns, other.turns), "each has words of its own");
        other.serve(7);
        let words = other.using;
        drop(other);
        let next = Note::new();
        assert!(ptr::eq(next.using, words));
        assert_eq!((next.using(), one.using()), (0, 0));
    }
}
