//! The memory file of a port's state.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_memory::{Kept, Mapping, SharedMemory};
use ringway_port::front_end::Journal;

use super::bytes::{Reader, Writer};
use super::place::{CONTEXT_WORDS, Noted, PLACES, Place, WORDS};

/// The number of this layout. Change it with the layout of the file, and with each change of what a record says.
const LAYOUT: u64 = 0x5257_4531_0000_0001;
/// Offset of the places of the rings, and bytes of one.
const PLACES_AT: usize = 64;
const PLACE_BYTES: usize = 8 * WORDS;
/// Offset of the records, and bytes of one. The longest has 512 answers that are withheld.
const RECORDS_AT: usize = 4096;
const RECORD_BYTES: usize = 128 << 10;
const BYTES: usize = RECORDS_AT + 2 * RECORD_BYTES;
/// Bytes before a record: its number, its length and its checksum.
const HEAD: usize = 24;

/// The words at the beginning.
const LAYOUT_AT: usize = 0;
/// The number of the last whole record; 0: none.
const RECORD: usize = 1;
/// The low half of a record's number, and the bytes of messages that were handled since.
const PROGRESS: usize = 2;
/// Bytes that are taken from the socket, since the connection began; those that will be when it is done; and what was looked at before, if it is
/// under way.
const TAKEN: usize = 3;
const TARGET: usize = 4;
const TAKING: usize = 5;
/// Answers that the socket refused although they were counted.
const REFUSED: usize = 6;

/// `TAKING`: it is under way.
const UNDER_WAY: u64 = 1 << 63;

/// Why what a predecessor left cannot be used. The text is for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotUsable {
    #[error("it is of another version of Ringway")]
    Layout,
    #[error("it was altered")]
    Altered,
    #[error("the port's settings have changed")]
    Settings,
    #[error("the switch ended while it received a message")]
    Receiving,
    #[error("a file is missing")]
    Missing,
    #[error("a file cannot be used")]
    File,
}

/// The state of a port's NIC, for a successor. Without a keeper it is in memory of this process alone.
#[derive(Debug)]
pub struct State {
    words: Kept<[AtomicU64; 8]>,
    mapping: Arc<Mapping>,
    memory: Option<SharedMemory>,
}

/// A record, and what was handled after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Its number.
    pub(crate) number: u64,
    /// What it says.
    pub(crate) bytes: Vec<u8>,
    /// Bytes of messages that were handled since.
    pub(crate) handled: u32,
    /// Bytes that are taken from the socket since the connection began.
    pub(crate) taken: u64,
    /// What was looked at and what was to be taken of it, if that was under way.
    pub(crate) taking: Option<[usize; 2]>,
    /// Answers that were counted and not sent.
    pub(crate) refused: u64,
}

impl State {
    /// Makes the state of a port that nothing is known of. `kept`: in a file for a keeper.
    ///
    /// # Errors
    /// The kernel has no memory or descriptors left.
    pub(crate) fn new(kept: bool) -> io::Result<State> {
        let memory = if kept { Some(SharedMemory::create("ringway-e1000-state", BYTES)?) } else { None };
        let mapping = match &memory {
            Some(memory) => Arc::clone(memory.mapping()),
            None => Arc::new(Mapping::private(RECORDS_AT)?),
        };
        let state = State::over(mapping, memory)?;
        state.words[LAYOUT_AT].store(LAYOUT, Ordering::Relaxed);
        Ok(state)
    }

    /// Opens the file that a predecessor left.
    ///
    /// # Errors
    /// It is of another version, or too short.
    pub(crate) fn open(file: OwnedFd) -> Result<State, NotUsable> {
        let memory = SharedMemory::open(file, BYTES).map_err(|_| NotUsable::Layout)?;
        let state = State::over(Arc::clone(memory.mapping()), Some(memory)).map_err(|_| NotUsable::Layout)?;
        match state.words[LAYOUT_AT].load(Ordering::Acquire) {
            LAYOUT => Ok(state),
            _ => Err(NotUsable::Layout),
        }
    }

    fn over(mapping: Arc<Mapping>, memory: Option<SharedMemory>) -> io::Result<State> {
        let words = Kept::new(&mapping, |mapping| mapping.view(0, 64)?.words64()?.first_chunk());
        let words = words.ok_or_else(|| io::Error::other("a mapping without words"))?;
        Ok(State { words, mapping, memory })
    }

    /// Returns the file, if there is a keeper for it.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.memory.as_ref().map(SharedMemory::file)
    }

    /// Returns the words of a ring.
    pub(crate) fn place(&self, ring: usize) -> Option<Place> {
        (ring < PLACES).then(|| Place::new(&self.mapping, PLACES_AT + ring * PLACE_BYTES))?
    }

    /// Returns a copy of the contexts of a ring, as words.
    pub(crate) fn contexts(&self, ring: usize, second: bool) -> [u64; CONTEXT_WORDS] {
        self.place(ring).map_or([0; CONTEXT_WORDS], |place| {
            let contexts = place.contexts(second);
            place.leave();
            contexts
        })
    }

    /// Returns what the words of a ring say.
    pub(crate) fn noted(&self, ring: usize) -> Noted {
        self.place(ring).map_or(Noted::Nothing, Place::leave)
    }

    /// Writes record `number`, the one after the last. A record that is too long for its place is not written: returns false.
    pub(crate) fn write(&self, number: u64, bytes: &[u8]) -> bool {
        let Some(at) = record_at(number).filter(|_| bytes.len() + HEAD <= RECORD_BYTES) else { return false };
        let mut head = Writer::default();
        head.u64(number);
        head.u64(bytes.len() as u64);
        head.u64(checksum(number, bytes).into());
        let all = self.mapping.view(at, HEAD + bytes.len());
        let parts = all.and_then(|all| Some((all.sub(0, HEAD)?, all.behind(HEAD))));
        let Some((first, rest)) = parts else { return false };
        let is_written = first.write(&head.0) && rest.is_none_or(|rest| rest.write(bytes));
        self.words[RECORD].store(number, Ordering::Release);
        is_written
    }

    /// Notes how many bytes of messages were handled since the last record, `number`.
    pub(crate) fn set_handled(&self, number: u64, bytes: u32) {
        self.words[PROGRESS].store(number << 32 | u64::from(bytes), Ordering::Release);
    }

    /// Notes that the socket has refused an answer that was counted.
    pub(crate) fn note_refused(&self) {
        self.words[REFUSED].fetch_add(1, Ordering::Release);
    }

    /// Returns the last record, or `None` if there is none.
    ///
    /// # Errors
    /// The record is not the one that was written.
    pub(crate) fn left(&self) -> Result<Option<Left>, NotUsable> {
        let number = self.words[RECORD].load(Ordering::Acquire);
        if number == 0 {
            return Ok(None);
        }
        let at = record_at(number).ok_or(NotUsable::Altered)?;
        let mut head = [0; HEAD];
        let is_read = self.mapping.view(at, HEAD).is_some_and(|view| view.read(&mut head));
        let mut fields = Reader(&head);
        let fields = (fields.u64(), fields.u64(), fields.u64());
        let (Some(found), Some(len), Some(sum)) = fields else { return Err(NotUsable::Altered) };
        if !is_read || found != number || len > (RECORD_BYTES - HEAD) as u64 {
            return Err(NotUsable::Altered);
        }
        let mut bytes = vec![0; len as usize];
        let is_read = self.mapping.view(at + HEAD, bytes.len()).is_some_and(|view| view.read(&mut bytes));
        if !is_read || u64::from(checksum(number, &bytes)) != sum {
            return Err(NotUsable::Altered);
        }
        let [progress, taking, target, taken, refused] =
            [PROGRESS, TAKING, TARGET, TAKEN, REFUSED].map(|word| self.words[word].load(Ordering::Acquire));
        let handled = if progress >> 32 == number & 0xffff_ffff { progress as u32 } else { 0 };
        let bytes_of = |number: u64| usize::try_from(number).map_err(|_| NotUsable::Altered);
        let (seen, left) = (bytes_of(taking & !UNDER_WAY)?, bytes_of(target.saturating_sub(taken))?);
        let taking = (taking & UNDER_WAY != 0).then_some([seen, left]);
        Ok(Some(Left { number, bytes, handled, taken, taking, refused }))
    }
}

impl Journal for State {
    fn taking(&self, seen: usize, bytes: usize) {
        let taken = self.words[TAKEN].load(Ordering::Relaxed);
        self.words[TARGET].store(taken.wrapping_add(bytes as u64), Ordering::Release);
        self.words[TAKING].store(UNDER_WAY | seen as u64, Ordering::Release);
    }

    fn taken(&self, bytes: usize) {
        let taken = self.words[TAKEN].load(Ordering::Relaxed);
        self.words[TAKEN].store(taken.wrapping_add(bytes as u64), Ordering::Release);
        self.words[TAKING].store(0, Ordering::Release);
    }
}

/// Offset of the place of a record.
fn record_at(number: u64) -> Option<usize> {
    (number != 0).then(|| RECORDS_AT + (number % 2) as usize * RECORD_BYTES)
}

fn checksum(number: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_ne_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::kept::place::Position;
    use crate::kept::{RECEIVE, TRANSMIT};

    fn reopened(state: &State) -> Result<State, NotUsable> {
        State::open(state.file().expect("a file").try_clone_to_owned().expect("a descriptor"))
    }

    #[test]
    fn a_successor_reads_the_last_record_and_what_was_handled_since() {
        let state = State::new(true).expect("memory");
        assert_eq!(state.left(), Ok(None));
        for number in 1..5u64 {
            let bytes = vec![number as u8; 100 * number as usize];
            assert!(state.write(number, &bytes));
            let left = reopened(&state).expect("the layout").left().expect("whole").expect("a record");
            assert_eq!((left.number, left.handled), (number, 0), "what was handled before is in the record");
            assert_eq!(left.bytes, bytes);
            state.set_handled(number, 40);
            let left = || reopened(&state).expect("the layout").left().expect("whole").expect("a record");
            state.taking(70, 40);
            assert_eq!((left().handled, left().taken, left().taking), (40, 40 * (number - 1), Some([70, 40])));
            state.taken(40);
            assert_eq!((left().taken, left().taking), (40 * number, None));
        }
        assert!(!state.write(5, &vec![0; RECORD_BYTES]), "too long");
    }

    #[test]
    fn a_file_that_was_cut_or_altered_or_is_of_another_version_is_refused() {
        let state = State::new(true).expect("memory");
        assert!(state.write(1, &[7; 1000]));
        let at = record_at(1).expect("a place");
        for byte in [0, 8, 16, HEAD, HEAD + 999] {
            let view = state.mapping.view(at + byte, 1).expect("inside");
            let mut before = [0];
            assert!(view.read(&mut before) && view.write(&[before[0] ^ 1]));
            assert_eq!(reopened(&state).expect("the layout").left(), Err(NotUsable::Altered), "byte {byte}");
            assert!(view.write(&before));
        }
        assert!(reopened(&state).expect("the layout").left().is_ok());
        state.words[LAYOUT_AT].store(LAYOUT + 1, Ordering::Relaxed);
        assert_eq!(reopened(&state).err(), Some(NotUsable::Layout));
        let short = SharedMemory::create("short", 4096).expect("memory");
        let short = short.file().as_fd().try_clone_to_owned().expect("a descriptor");
        assert_eq!(State::open(short).err(), Some(NotUsable::Layout));
    }

    #[test]
    fn the_words_of_rings_outlast_their_process_and_say_when_a_ring_is_not_in_use() {
        let state = State::new(true).expect("memory");
        let noted = |ring| reopened(&state).expect("the layout").noted(ring);
        let place = state.place(RECEIVE).expect("a place");
        let position = Position { count: 65_528, head: 65_527, next: 40_000, contexts: true };
        place.begin(0x1_0000_0010, position);
        place.set_contexts(true, [1, 2, 3, 4]);
        assert_eq!(noted(RECEIVE), Noted::On { base: 0x1_0000_0010, position });
        assert_eq!(noted(TRANSMIT), Noted::Nothing);
        assert_eq!((place.contexts(true), place.contexts(false)), ([1, 2, 3, 4], [0; 4]));
        place.set_broken();
        assert_eq!(noted(RECEIVE), Noted::Broken);
        drop(state.place(RECEIVE));
        assert_eq!(noted(RECEIVE), Noted::Nothing);
        assert!(state.place(PLACES).is_none());
    }
}
