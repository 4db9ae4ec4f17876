//! Verdicts of a forwarding program on frames that wait in their sender's ring: the program judges each frame once.
//!
//! A frame that waits is collected again with each look, and may be another one by then: the client can write to its ring. So a verdict is
//! found by a hash of all that the program saw, whose keys no client knows, near its place in the order of the ring. What a look could have
//! found and did not is forgotten. Frames behind others that were dropped unread may be judged again.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::batch::MAX_BATCH;

/// So many verdicts are compared with a frame.
const NEAR: usize = 8;

/// What a program is known by.
pub(crate) type Known = dyn Send + Sync;

/// The verdicts on the frames of one port that wait. No memory until the port is in a switch that keeps some.
#[derive(Default)]
pub(crate) struct Verdicts(OnceLock<Mutex<Kept>>);

/// The verdicts of one program, each with the hash of its frame, in the order of the ring.
pub(crate) struct Kept {
    program: Option<Weak<Known>>,
    /// Of the frames that waited before this look.
    before: Vec<(u64, u32)>,
    /// Those before this place were found, or passed over.
    place: usize,
    /// The look's last frame was not found.
    is_lost: bool,
    /// Of the frames that wait after this look.
    waiting: Vec<(u64, u32)>,
    hasher: RandomState,
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

    /// More frames wait behind those of a look than it could have.
    #[cold]
    pub(crate) fn keep_rest(&self) {
        if let Some(mut kept) = self.lock() {
            kept.keep_rest();
        }
    }

    /// After a look that found no frames: none waits any more.
    pub(crate) fn forget(&self) {
        if let Some(mut kept) = self.lock() {
            kept.begin(None);
        }
    }
}

impl Kept {
    fn new() -> Kept {
        let list = || Vec::with_capacity(MAX_BATCH);
        Kept { program: None, before: list(), place: 0, is_lost: false, waiting: list(), hasher: RandomState::new() }
    }

    /// Begins a look at the port's frames. `None`: it has none. Returns true if verdicts of this program are known.
    pub(crate) fn begin(&mut self, program: Option<&Arc<Known>>) -> bool {
        self.before.clear();
        (self.place, self.is_lost) = (0, false);
        std::mem::swap(&mut self.before, &mut self.waiting);
        let is_its = |before: &Weak<Known>| {
            program.is_some_and(|program| std::ptr::addr_eq(before.as_ptr(), Arc::as_ptr(program)))
        };
        if !self.program.as_ref().is_some_and(is_its) {
            self.before.clear();
        }
        !self.before.is_empty()
    }

    /// The verdict on the look's next frame, if there is one. There need not be one for a frame that was rejected.
    pub(crate) fn take(&mut self, frame: &impl Hash, is_rejected: bool) -> Option<u32> {
        self.is_lost |= !is_rejected;
        let near = self.before.get(self.place..)?;
        if near.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one(frame);
        let at = near.iter().take(NEAR).position(|(of, _)| *of == hash)?;
        let word = near[at].1;
        (self.place, self.is_lost) = (self.place + at + 1, false);
        Some(word)
    }

    /// Keeps the verdicts on frames behind those of the look, which was bounded. Not if frames in front are others than before.
    fn keep_rest(&mut self) {
        if !self.is_lost && self.waiting.is_empty() {
            self.waiting.extend_from_slice(&self.before[self.place..]);
        }
    }

    /// Keeps this program's verdicts on frames that wait, in the order of the ring, as far as there is room. Those that are kept already
    /// are behind: the batch was cut once more.
    pub(crate) fn keep<F: Hash>(&mut self, program: &Arc<Known>, frames: impl Iterator<Item = (F, u32)>) {
        let behind = self.waiting.len();
        let frames = frames.take(MAX_BATCH - behind);
        self.waiting.extend(frames.map(|(frame, word)| (self.hasher.hash_one(frame), word)));
        self.waiting.rotate_left(behind);
        self.program = Some(Arc::downgrade(program));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Arc<Known> {
        Arc::new(0_u8)
    }

    #[test]
    fn a_full_list_costs_a_frame_no_more_than_a_short_one() {
        let (mut kept, program) = (Kept::new(), program());
        let place = kept.waiting.as_ptr();
        kept.keep(&program, (0..4 * MAX_BATCH).map(|number| (number, number as u32)));
        kept.keep(&program, [(0, 0)].into_iter());
        assert_eq!((kept.waiting.len(), kept.waiting.as_ptr()), (MAX_BATCH, place), "nothing was allocated");
        assert!(kept.begin(Some(&program)));
        // Nothing beyond the nearest is looked at.
        assert_eq!(
            (kept.take(&NEAR, false), kept.take(&(NEAR - 1), false), kept.place),
            (None, Some(NEAR as u32 - 1), NEAR)
        );
        assert_eq!((kept.take(&0, false), kept.take(&(MAX_BATCH - 1), false), kept.place), (None, None, NEAR));
        for number in NEAR..4 * MAX_BATCH {
            assert_eq!(kept.take(&number, false), (number < MAX_BATCH).then_some(number as u32));
        }
    }

    #[test]
    fn verdicts_are_of_one_program_and_for_one_look() {
        let (mut kept, first, second) = (Kept::new(), program(), program());
        for look in [Some(&second), None] {
            kept.keep(&first, [(1, 7)].into_iter());
            assert!(!kept.begin(look));
            assert_eq!((kept.take(&1, false), kept.begin(Some(&first))), (None, false));
        }
        // Cut twice.
        kept.keep(&first, [(1, 8), (1, 9)].into_iter());
        kept.keep(&first, [(1, 6), (1, 7)].into_iter());
        assert!(kept.begin(Some(&first)));
        assert_eq!([(); 5].map(|()| kept.take(&1, false)), [Some(6), Some(7), Some(8), Some(9), None]);
        assert!(!kept.begin(Some(&first)));
    }

    #[test]
    fn a_bounded_look_keeps_what_it_could_not_find_and_no_other_does() {
        let (mut kept, program) = (Kept::new(), program());
        let begin = |kept: &mut Kept| {
            kept.keep(&program, [(1, 1), (2, 2), (3, 3), (4, 4)].into_iter());
            assert!(kept.begin(Some(&program)));
            assert_eq!(kept.take(&1, false), Some(1));
        };
        let rest = |kept: &mut Kept| {
            kept.begin(Some(&program));
            [1, 2, 3, 4].map(|number| kept.take(&number, false).is_some())
        };
        begin(&mut kept);
        assert_eq!(rest(&mut kept), [false; 4]);
        // One of two that were found waits.
        begin(&mut kept);
        assert_eq!(kept.take(&2, false), Some(2));
        kept.keep_rest();
        kept.keep(&program, [(2, 2)].into_iter());
        assert_eq!(rest(&mut kept), [false, true, true, true]);
        // Another one came.
        begin(&mut kept);
        assert_eq!(kept.take(&9, false), None);
        kept.keep_rest();
        assert_eq!(rest(&mut kept), [false; 4]);
    }
}
