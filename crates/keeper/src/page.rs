//! A page of memory that outlives the switch: whose port each thread of the switch serves, and of what the switch died.
//!
//! The keeper makes the page and gives it to each switch. The switch maps it (`ringway_runtime::serving`). A successor reads what is in
//! it with one read(2), before it clears it: a client may have taken the predecessor over, so all numbers and names in it may be forged.
//! They are compared and looked up, never used as they are.
//!
//! ```text
//! byte 0         VERSION
//! byte 8         the death: cause, and the slot of the thread in bits 32 to 63, plus 1
//! byte 16        the control thread's robust futex, of four bytes: the kernel marks it when the thread ends
//! byte 64        slots, one for each thread:  port in use | receiver | turns | thread and duty | giving
//! byte PORTS_AT  ports:                       id | address | length of the label | label
//! ```

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};

/// The version of this layout, in the first word. Another one is not understood.
pub const VERSION: u64 = 0x5249_4e47_0000_0002;
/// The word of the death.
pub const DEATH: usize = 1;
/// The place of the robust futex (`get_robust_list(2)`), in words of four bytes.
pub const LIFE: usize = 4;
/// Most threads with a slot.
pub const SLOTS: usize = 4096;
/// The slot of the control thread.
pub(crate) const FIRST_SLOT: usize = 0;
/// Most ports with an entry.
pub const PORTS: usize = 8192;
/// Bytes of a slot: a cache line, as each is written by a thread of its own.
pub const SLOT_BYTES: usize = 64;
/// Bytes of a port's entry.
pub const PORT_BYTES: usize = 128;
/// Bytes of the page.
pub const BYTES: usize = PORTS_AT + PORTS * PORT_BYTES;
/// Most bytes of a label.
pub const LABEL_MOST: usize = PORT_BYTES - LABEL_AT;
const SLOTS_AT: usize = 64;
const PORTS_AT: usize = SLOTS_AT + SLOTS * SLOT_BYTES;
/// The place of the label in an entry.
const LABEL_AT: usize = 24;
/// What a thread is there for, in bits 32 to 63 of the last word of its slot. A thread without a duty is not watched.
pub const CONTROL: u32 = 1;
/// A poller.
pub const POLLER: u32 = 2;

/// The words of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotWord {
    /// The id of the port whose client the thread serves; 0: none.
    Using,
    /// The address of the port that the thread touches as a receiver; 0: none.
    Receiver,
    /// Changes with each round of the thread's loop.
    Turns,
    /// The number of the thread in bits 0 to 31, its duty above.
    Thread,
    /// Not 0 while the port in use is given frames of others that waited for it.
    Giving,
}

/// The number of a word of a slot.
#[must_use]
pub const fn slot_word(slot: usize, word: SlotWord) -> usize {
    (SLOTS_AT + slot * SLOT_BYTES) / 8 + word as usize
}

/// The number of the first word of a port's entry.
#[must_use]
pub const fn port_word(port: usize) -> usize {
    (PORTS_AT + port * PORT_BYTES) / 8
}

/// The words of an entry.
#[must_use]
pub fn port_words(id: u64, address: u64, label: &str) -> [u64; PORT_BYTES / 8] {
    let mut words = [0; PORT_BYTES / 8];
    let bytes = label.as_bytes();
    let bytes = if bytes.len() <= LABEL_MOST { bytes } else { &[] };
    [words[0], words[1], words[2]] = [id, address, bytes.len() as u64];
    for (word, bytes) in words[LABEL_AT / 8..].iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    words
}

/// Of what a switch died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Of this signal, by its own doing.
    Signal(u8),
    /// It ended with this status, as it could not go on.
    Status(u8),
    /// A thread of it made no progress.
    Hang,
}

const STATUS: u32 = 1 << 16;
const HANG: u32 = 1 << 17;

impl Cause {
    /// The cause in a word of the page.
    #[must_use]
    pub const fn word(self) -> u32 {
        match self {
            Self::Signal(signal) => signal as u32,
            Self::Status(status) => STATUS | status as u32,
            Self::Hang => HANG,
        }
    }

    fn of(word: u32) -> Option<Self> {
        match word {
            HANG => Some(Self::Hang),
            1..=64 => u8::try_from(word).ok().map(Self::Signal),
            _ => u8::try_from(word.checked_sub(STATUS)?).ok().map(Self::Status),
        }
    }
}

/// As the keeper tells how a switch ended.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Hang => f.write_str("hang"),
        }
    }
}

/// Who has caused a death, as far as can be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Blame {
    /// Nobody: it was killed from outside, or the thread that died served no port.
    #[default]
    Nobody,
    /// The client of this port, whose memory and messages alone were read. The label is `SWITCH:PORT`.
    Port(String),
    /// The thread gave frames of the first of these to the second, and either is to blame; or frames of others to a single one.
    Either(Vec<String>),
}

/// Makes the page. It can neither shrink nor grow: who reads it finds all of it.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn create() -> io::Result<OwnedFd> {
    let page = memfd_create("ringway-serving", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&page, BYTES as u64)?;
    fcntl_add_seals(&page, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(page)
}

/// Notes a death for the next switch. The one that died is dead.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn note_hang(page: impl AsFd, slot: usize) -> io::Result<()> {
    let word = death_word(Cause::Hang, Some(slot));
    rustix::io::pwrite(page, &word.to_ne_bytes(), 8 * DEATH as u64)?;
    Ok(())
}

/// Returns true if the switch has noted of what it dies, or the page cannot be read.
pub(crate) fn has_noted_death(page: impl AsFd) -> bool {
    let mut word = [0; 8];
    !rustix::io::pread(page, &mut word, 8 * DEATH as u64).is_ok_and(|read| read == 8 && word == [0; 8])
}

/// The word that names the cause and the thread.
#[must_use]
pub const fn death_word(cause: Cause, slot: Option<usize>) -> u64 {
    let slot = match slot {
        Some(slot) => slot as u64 + 1,
        None => 0,
    };
    slot << 32 | cause.word() as u64
}

/// What a watched thread is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) slot: usize,
    pub(crate) duty: u32,
    /// Its number.
    pub(crate) thread: u32,
    pub(crate) turns: u64,
}

/// What a page had in it at one moment.
#[derive(Debug)]
pub struct Left(Vec<u8>);

impl Left {
    /// Reads a page. Of another version, it is empty.
    ///
    /// # Errors
    /// The kernel refuses, or the file is too short.
    pub fn read(page: &OwnedFd) -> io::Result<Self> {
        Self::read_bytes(page, BYTES)
    }

    /// Reads the slots only.
    pub(crate) fn read_slots(page: &OwnedFd) -> io::Result<Self> {
        Self::read_bytes(page, PORTS_AT)
    }

    fn read_bytes(page: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let file = File::from(page.try_clone()?);
        let mut all = vec![0; bytes];
        file.read_exact_at(&mut all, 0)?;
        Ok(Self::of(all))
    }

    /// What these bytes mean.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        let left = Self(bytes);
        if left.word(0) == VERSION { left } else { Self(Vec::new()) }
    }

    /// Empties a page.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn clear(page: impl AsFd) -> io::Result<()> {
        Ok(fallocate(page, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, BYTES as u64)?)
    }

    /// Words that are not there are 0.
    fn word(&self, number: usize) -> u64 {
        let bytes = self.0.get(8 * number..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    /// Who caused the death of a switch that ended like this, as the keeper says it. `never_served`: a switch that could not go on,
    /// and ended without a word, died of the port that its control thread was opening.
    #[must_use]
    pub fn blame(&self, end: &str, never_served: bool) -> Blame {
        let death = self.word(DEATH);
        let slot = match Cause::of(death as u32).filter(|cause| cause.to_string() == end) {
            Some(_) => usize::try_from(death >> 32).ok().and_then(|slot| slot.checked_sub(1)),
            None if never_served && end.starts_with("status ") => Some(FIRST_SLOT),
            None => None,
        };
        let Some(slot) = slot.filter(|slot| *slot < SLOTS) else { return Blame::Nobody };
        let named = |at: usize, number: u64| (number != 0).then(|| self.label(at, number));
        let using = named(0, self.word(slot_word(slot, SlotWord::Using)));
        let receiver = named(1, self.word(slot_word(slot, SlotWord::Receiver)));
        let is_giving = self.word(slot_word(slot, SlotWord::Giving)) != 0;
        match (using, receiver) {
            (Some(Some(port)), None) if is_giving => Blame::Either(vec![port]),
            (Some(Some(port)), None) => Blame::Port(port),
            // A port that gets what waited for it is both.
            (Some(Some(port)), Some(Some(receiver))) if port != receiver => Blame::Either(vec![port, receiver]),
            (_, Some(Some(receiver))) => Blame::Either(vec![receiver]),
            // A port that nobody knows has a part in it: what can be told of others is not enough.
            _ => Blame::Nobody,
        }
    }

    /// The label of the port whose entry has this number in the word `at`.
    fn label(&self, at: usize, number: u64) -> Option<String> {
        let entry =
            (0..PORTS).map(port_word).find(|first| self.word(first + at) == number && self.word(*first) != 0)?;
        let length = usize::try_from(self.word(entry + 2)).ok().filter(|length| (1..=LABEL_MOST).contains(length))?;
        let bytes = self.0.get(8 * entry + LABEL_AT..)?.get(..length)?;
        let label = std::str::from_utf8(bytes).ok()?;
        (!label.contains(char::is_control)).then(|| label.to_owned())
    }

    /// The threads that have to make progress.
    pub(crate) fn watched(&self) -> impl Iterator<Item = Watched> {
        (0..SLOTS).filter_map(|slot| {
            let thread = self.word(slot_word(slot, SlotWord::Thread));
            let (duty, thread) = ((thread >> 32) as u32, thread as u32);
            let turns = self.word(slot_word(slot, SlotWord::Turns));
            (matches!(duty, CONTROL | POLLER) && thread != 0).then_some(Watched { slot, duty, thread, turns })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with ports `lan0:a` and `lan0:b`, of the ids 7 and 8 and the addresses 70 and 80, in which the thread of slot 3 died so.
    fn page(death: u64, using: u64, receiver: u64) -> Vec<u64> {
        let mut words = vec![0; BYTES / 8];
        words[0] = VERSION;
        words[DEATH] = death;
        words[slot_word(3, SlotWord::Using)] = using;
        words[slot_word(3, SlotWord::Receiver)] = receiver;
        for (place, id, label) in [(0, 7, "lan0:a"), (PORTS - 1, 8, "lan0:b")] {
            words[port_word(place)..][..PORT_BYTES / 8].copy_from_slice(&port_words(id, 10 * id, label));
        }
        words
    }

    fn left(words: &[u64]) -> Left {
        Left::of(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
    }

    const SEGV: u64 = death_word(Cause::Signal(11), Some(3));

    #[test]
    fn a_port_that_was_visited_alone_is_blamed_and_two_that_exchanged_frames_are_both_suspects() {
        let blame = |using, receiver| left(&page(SEGV, using, receiver)).blame("signal 11", false);
        let [a, b] = ["lan0:a", "lan0:b"].map(str::to_owned);
        assert_eq!(blame(7, 0), Blame::Port(a.clone()));
        assert_eq!(blame(8, 0), Blame::Port(b.clone()));
        assert_eq!(blame(7, 80), Blame::Either(vec![a.clone(), b.clone()]));
        assert_eq!(blame(7, 70), Blame::Either(vec![a]), "what others left for it");
        assert_eq!(blame(0, 80), Blame::Either(vec![b.clone()]), "a call");
        assert_eq!(blame(9, 80), Blame::Either(vec![b]));
        assert_eq!([blame(0, 0), blame(9, 0), blame(7, 90)], [Blame::Nobody, Blame::Nobody, Blame::Nobody]);
    }

    #[test]
    fn a_port_that_was_given_what_others_had_left_for_it_is_no_more_than_a_suspect() {
        let blame = |using, receiver| {
            let mut words = page(SEGV, using, receiver);
            words[slot_word(3, SlotWord::Giving)] = 1;
            left(&words).blame("signal 11", false)
        };
        let [a, b] = ["lan0:a", "lan0:b"].map(str::to_owned);
        assert_eq!(blame(7, 0), Blame::Either(vec![a.clone()]));
        assert_eq!(blame(7, 70), Blame::Either(vec![a.clone()]));
        assert_eq!(blame(7, 80), Blame::Either(vec![a, b]));
        assert_eq!([blame(0, 0), blame(9, 0)], [Blame::Nobody, Blame::Nobody]);
    }

    #[test]
    fn who_was_killed_from_outside_blames_nobody_whatever_the_page_says() {
        for end in ["signal 9", "signal 6", "status 11", "", "hang"] {
            assert_eq!(left(&page(SEGV, 7, 0)).blame(end, false), Blame::Nobody, "{end}");
        }
        assert_eq!(left(&page(0, 7, 0)).blame("signal 11", false), Blame::Nobody, "no handler ran");
        assert_eq!(left(&page(death_word(Cause::Signal(11), None), 7, 0)).blame("signal 11", false), Blame::Nobody);
    }

    #[test]
    fn a_start_that_ends_without_a_word_died_of_the_port_that_it_was_opening() {
        let mut words = page(0, 0, 0);
        words[slot_word(0, SlotWord::Using)] = 7;
        let blame = |end, never_served| left(&words).blame(end, never_served);
        assert_eq!(blame("status 70", true), Blame::Port("lan0:a".to_owned()));
        assert_eq!([blame("status 70", false), blame("signal 9", true)], [Blame::Nobody, Blame::Nobody]);
    }

    #[test]
    fn every_cause_is_read_as_it_was_written_and_no_other() {
        for cause in [Cause::Signal(1), Cause::Signal(64), Cause::Status(0), Cause::Status(255), Cause::Hang] {
            assert_eq!(Cause::of(cause.word()), Some(cause));
        }
        for word in [0, 65, STATUS - 1, STATUS + 256, HANG + 1, u32::MAX] {
            assert_eq!(Cause::of(word), None, "{word}");
        }
    }

    #[test]
    fn numbers_and_names_that_were_forged_blame_nobody() {
        let all = |words: &[u64]| left(words).blame("signal 11", false);
        let mut words = page(u64::from(u32::MAX) << 32 | 11, 7, 0);
        assert_eq!(all(&words), Blame::Nobody, "no such slot");
        words = page(SEGV, 7, 0);
        for length in [0, LABEL_MOST as u64 + 1, u64::MAX] {
            words[port_word(0) + 2] = length;
            assert_eq!(all(&words), Blame::Nobody, "{length} bytes");
        }
        words[port_word(0) + 2] = 6;
        words[port_word(0) + LABEL_AT / 8] = u64::from_ne_bytes(*b"a\nb:cd\0\0");
        assert_eq!(all(&words), Blame::Nobody, "no name");
        words[port_word(0) + LABEL_AT / 8] = u64::MAX;
        assert_eq!(all(&words), Blame::Nobody, "no text");
        words = page(SEGV, 7, 0);
        words[0] += 1;
        assert_eq!(all(&words), Blame::Nobody, "another version");
        let bytes: Vec<u8> = page(SEGV, 7, 0).iter().flat_map(|word| word.to_ne_bytes()).collect();
        for length in (0..bytes.len()).step_by(4093) {
            let cut = Left::of(bytes[..length].to_owned());
            let _ = (cut.blame("signal 11", false), cut.watched().count());
        }
    }

    #[test]
    fn a_page_keeps_its_size_and_is_emptied() {
        let page = create().expect("a page");
        assert!(ftruncate(&page, 0).is_err(), "who reads it finds all of it");
        rustix::io::pwrite(&page, &VERSION.to_ne_bytes(), 0).expect("written");
        note_hang(&page, 5).expect("written");
        let left = Left::read(&page).expect("read");
        assert_eq!(left.word(DEATH), death_word(Cause::Hang, Some(5)));
        Left::clear(&page).expect("emptied");
        assert!(Left::read(&page).expect("read").0.is_empty(), "no version");
    }
}
