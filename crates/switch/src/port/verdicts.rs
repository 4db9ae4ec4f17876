//! Verdicts of a forwarding program on frames that wait in their sender's ring: the program judges each frame once.
//!
//! A frame that waits is collected again with each look, and may be another one by then: the client can write to its ring. So a verdict is
//! found by a hash of all that the program saw, whose keys no client knows. Equal frames have their verdicts in the order of the ring. What a
//! look could have found and did not is forgotten, and so is what no look found for a second: a client could bring a frame back when the program
//! would no longer let it pass. Words name ports of one view and sets of one instance of the program: those of others are forgotten, too. The
//! place of a frame is no key: the queues of a port are collected in turns.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::batch::MAX_BATCH;

/// What a program is known by.
pub(crate) type Known = dyn Send + Sync;

/// Seconds for which a verdict is kept that no look finds.
const UNSEEN: u32 = 1;

/// What verdicts hold for, besides the program: they name ports of a view, and sets of the instance that a poller has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Version of the view: no two have the same.
    pub(crate) view: u64,
    /// The poller.
    pub(crate) poller: usize,
}

/// The verdicts on the frames of one port that wait. No memory until the port is in a switch that keeps some.
#[derive(Default)]
pub(crate) struct Verdicts(OnceLock<Mutex<Kept>>);

/// The verdicts of one program.
pub(crate) struct Kept {
    program: Option<Weak<Known>>,
    scope: Scope,
    /// The second of the look.
    now: u32,
    /// Of the frames that waited before this look, by hash and place.
    before: Vec<Entry>,
    /// Of the frames that wait after this look, in the order of the ring.
    waiting: Vec<Entry>,
    hasher: RandomState,
}

/// A frame that waits.
#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    /// The verdict. `None`: the frame was rejected, and has no hash either.
    word: Option<u32>,
    /// Place in the order of the ring.
    place: u16,
    /// In the first entry with a hash: how many entries with this hash were found.
    found: u16,
    /// The second in which a look found it last.
    seen: u32,
}

impl Verdicts {
    /// Allocates the memory, as pollers do not.
    pub(crate) fn prepare(&self) {
        self.0.get_or_init(|| Mutex::new(Kept::new()));
    }

    /// For the poller that has the port's input. `None`: none are kept.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, Kept>> {
        Some(self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// More frames may wait than the `looked` ones of a look.
    #[cold]
    pub(crate) fn keep_rest(&self, looked: usize) {
        if let Some(mut kept) = self.lock() {
            kept.keep_rest(looked);
        }
    }

    /// The first frames in the ring were dropped unread.
    #[cold]
    pub(crate) fn drop_first(&self, frames: usize) {
        if let Some(mut kept) = self.lock() {
            let frames = frames.min(kept.waiting.len());
            kept.waiting.drain(..frames);
        }
    }

    /// After a look that found no frames: none waits any more.
    pub(crate) fn forget(&self) {
        if let Some(mut kept) = self.lock() {
            kept.begin(None, Scope::default(), 0);
        }
    }
}

impl Kept {
    fn new() -> Kept {
        let list = || Vec::with_capacity(2 * MAX_BATCH);
        let (before, waiting, hasher) = (list(), list(), RandomState::new());
        Kept { program: None, scope: Scope::default(), now: 0, before, waiting, hasher }
    }

    /// Begins a look at the port's frames in this second. `None`: it has none. Returns true if verdicts of this program are known.
    pub(crate) fn begin(&mut self, program: Option<&Arc<Known>>, scope: Scope, now: u32) -> bool {
        self.now = now;
        self.before.clear();
        std::mem::swap(&mut self.before, &mut self.waiting);
        let is_its = |before: &Weak<Known>| {
            program.is_some_and(|program| std::ptr::addr_eq(before.as_ptr(), Arc::as_ptr(program)))
        };
        if std::mem::replace(&mut self.scope, scope) != scope || !self.program.as_ref().is_some_and(is_its) {
            self.before.clear();
        }
        for (place, entry) in (0..).zip(&mut self.before) {
            (entry.place, entry.found) = (place, 0);
        }
        self.before.sort_unstable_by_key(|entry| (entry.hash, entry.place));
        !self.before.is_empty()
    }

    /// The verdict on a frame of the look, if there is one.
    pub(crate) fn take(&mut self, frame: &impl Hash) -> Option<u32> {
        let hash = self.hasher.hash_one(frame);
        let first = self.before.partition_point(|entry| entry.hash < hash);
        let next = first + usize::from(self.before.get(first)?.found);
        let word = self.before.get(next).filter(|entry| entry.hash == hash)?.word;
        self.before[first].found += 1;
        word
    }

    /// Keeps the verdicts that the look did not find: their frames may be behind its own ones. The look finds no others.
    fn keep_rest(&mut self, looked: usize) {
        let mut at = 0;
        while let Some(&Entry { hash, found, .. }) = self.before.get(at) {
            let alike = self.before[at..].iter().take_while(|entry| entry.hash == hash);
            let rest = alike.clone().skip(found.into());
            // A rejected frame of the look is rejected again, or judged.
            let is_fresh = |entry: &&Entry| self.now.saturating_sub(entry.seen) <= UNSEEN;
            let rest = rest.filter(|entry| entry.word.is_some() || usize::from(entry.place) >= looked);
            self.waiting.extend(rest.filter(is_fresh));
            at += alike.count();
        }
        self.before.clear();
        self.waiting.sort_unstable_by_key(|entry| entry.place);
        self.waiting.truncate(MAX_BATCH);
    }

    /// Keeps this program's verdicts on frames that wait, in the order of the ring, as far as there is room. `None`: a frame was rejected. Those
    /// that are kept already are behind: the look was bounded, or the batch was cut once more.
    pub(crate) fn keep<F: Hash>(&mut self, program: &Arc<Known>, frames: impl Iterator<Item = Option<(F, u32)>>) {
        let behind = self.waiting.len();
        self.waiting.extend(frames.take(MAX_BATCH).map(|judged| match judged {
            Some((frame, word)) => {
                Entry { hash: self.hasher.hash_one(frame), word: Some(word), place: 0, found: 0, seen: self.now }
            }
            None => Entry { hash: 0, word: None, place: 0, found: 0, seen: self.now },
        }));
        self.waiting.rotate_left(behind);
        self.waiting.truncate(MAX_BATCH);
        self.program = Some(Arc::downgrade(program));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Arc<Known> {
        Arc::new(0_u8)
    }

    const SCOPE: Scope = Scope { view: 1, poller: 2 };

    /// What is kept in the midst of a look.
    fn fresh() -> Kept {
        Kept { scope: SCOPE, now: 1, ..Kept::new() }
    }

    fn keep(kept: &mut Kept, program: &Arc<Known>, frames: &[(u32, u32)]) {
        kept.keep(program, frames.iter().map(|frame| Some(*frame)));
    }

    #[test]
    fn a_full_list_keeps_the_first_frames_and_allocates_nothing() {
        let (mut kept, program) = (fresh(), program());
        let place = kept.waiting.as_ptr();
        let frames: Vec<(u32, u32)> = (0..4 * MAX_BATCH as u32).map(|number| (number, number)).collect();
        keep(&mut kept, &program, &frames[1..]);
        keep(&mut kept, &program, &frames[..1]);
        assert_eq!((kept.waiting.len(), kept.waiting.as_ptr()), (MAX_BATCH, place));
        assert!(kept.begin(Some(&program), SCOPE, 1));
        kept.keep_rest(0);
        // A look without a program: the port is a mirror's now, or the switch learns.
        kept.keep_rest(0);
        assert_eq!(kept.waiting.len(), MAX_BATCH);
        assert!(kept.begin(Some(&program), SCOPE, 1));
        for &(number, word) in &frames {
            assert_eq!(kept.take(&number), (word < MAX_BATCH as u32).then_some(word));
        }
        kept.keep_rest(0);
        keep(&mut kept, &program, &frames[MAX_BATCH..]);
        assert_eq!(kept.waiting.capacity(), 2 * MAX_BATCH);
    }

    #[test]
    fn verdicts_are_of_one_program_and_for_one_look() {
        let (mut kept, first, second) = (fresh(), program(), program());
        for look in [Some(&second), None] {
            keep(&mut kept, &first, &[(1, 7)]);
            assert!(!kept.begin(look, SCOPE, 1));
            assert_eq!((kept.take(&1), kept.begin(Some(&first), SCOPE, 1)), (None, false));
        }
        // Cut twice.
        keep(&mut kept, &first, &[(1, 8), (1, 9)]);
        keep(&mut kept, &first, &[(1, 6), (1, 7)]);
        assert!(kept.begin(Some(&first), SCOPE, 1));
        assert_eq!([(); 5].map(|()| kept.take(&1)), [Some(6), Some(7), Some(8), Some(9), None]);
        assert!(!kept.begin(Some(&first), SCOPE, 1));
    }

    #[test]
    fn a_bounded_look_keeps_what_it_did_not_find_and_no_other_does() {
        let (mut kept, program) = (fresh(), program());
        let begin = |kept: &mut Kept| {
            keep(kept, &program, &[(1, 1), (2, 2), (1, 3), (4, 4), (1, 5)]);
            assert!(kept.begin(Some(&program), SCOPE, 1));
            assert_eq!(kept.take(&1), Some(1));
        };
        let rest = |kept: &mut Kept| {
            kept.begin(Some(&program), SCOPE, 1);
            [1, 2, 1, 4, 1].map(|number| kept.take(&number))
        };
        begin(&mut kept);
        assert_eq!(rest(&mut kept), [None; 5]);
        // One of two that were found waits.
        begin(&mut kept);
        assert_eq!(kept.take(&2), Some(2));
        kept.keep_rest(2);
        keep(&mut kept, &program, &[(2, 2)]);
        assert_eq!(rest(&mut kept), [Some(3), Some(2), Some(5), Some(4), None]);
        // Another one came, and another queue is the first.
        begin(&mut kept);
        assert_eq!((kept.take(&9), kept.take(&4)), (None, Some(4)));
        kept.keep_rest(3);
        assert_eq!(rest(&mut kept), [Some(3), Some(2), Some(5), None, None]);
    }

    #[test]
    fn a_verdict_that_no_look_finds_is_forgotten_and_so_is_one_of_another_view_or_poller() {
        let (mut kept, program) = (fresh(), program());
        keep(&mut kept, &program, &[(1, 1)]);
        for now in [1, 2] {
            assert!(kept.begin(Some(&program), SCOPE, now));
            kept.keep_rest(0);
        }
        assert!(kept.begin(Some(&program), SCOPE, 3));
        kept.keep_rest(0);
        assert!(!kept.begin(Some(&program), SCOPE, 3));
        for other in [Scope { view: 3, ..SCOPE }, Scope { poller: 3, ..SCOPE }] {
            assert!(!kept.begin(Some(&program), SCOPE, 2));
            keep(&mut kept, &program, &[(1, 1)]);
            assert!(!kept.begin(Some(&program), other, 2));
        }
    }

    #[test]
    fn frames_that_are_dropped_unread_leave_no_verdicts() {
        let (verdicts, program) = (Verdicts::default(), program());
        verdicts.prepare();
        let kept = || verdicts.lock().expect("prepared");
        kept().begin(Some(&program), SCOPE, 1);
        // Two of four were rejected, and one of these is gone with the first.
        kept().keep(&program, [Some((1, 1)), None, Some((1, 3)), None, Some((1, 5))].into_iter());
        kept().begin(Some(&program), SCOPE, 1);
        assert_eq!(kept().take(&1), Some(1));
        verdicts.keep_rest(2);
        verdicts.drop_first(2);
        assert!(kept().begin(Some(&program), SCOPE, 1));
        assert_eq!([(); 2].map(|()| kept().take(&1)), [Some(5), None]);
    }
}
