//! Verdicts of a forwarding program on frames that wait in their sender's ring: the program judges each frame once.
//!
//! A frame that waits is collected again with each look, and may be another one by then: the client can write to its ring. So a verdict is
//! found by a hash of all that the program saw, whose keys no client knows. Frames may also come back in another order, or never.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::batch::MAX_BATCH;

/// Most verdicts of a port. Of more frames that wait, some are judged again.
const MOST: usize = 4 * MAX_BATCH;
/// Seconds after which a frame that was not seen again counts as gone.
const GONE: u32 = 1;

/// What a program is known by.
pub(crate) type Known = dyn Send + Sync;

/// The verdicts on the frames of one port that wait.
#[derive(Default)]
pub(crate) struct Verdicts(Mutex<Kept>);

/// The verdicts of one program.
#[derive(Default)]
pub(crate) struct Kept {
    program: Option<Weak<Known>>,
    by_hash: HashMap<u64, Verdict>,
}

struct Verdict {
    word: u32,
    /// Frames that are alike.
    frames: u32,
    /// The second in which they were seen last.
    seen: u32,
}

impl Verdicts {
    /// For the poller that has the port's input.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Forgets the verdicts of other programs. Returns true if there are some of this one.
    pub(crate) fn follow(&mut self, program: &Arc<Known>) -> bool {
        let is_its =
            self.program.as_ref().is_some_and(|before| std::ptr::addr_eq(before.as_ptr(), Arc::as_ptr(program)));
        if !is_its {
            self.by_hash.clear();
        }
        !self.by_hash.is_empty()
    }

    /// Takes the verdict on a frame, if there is one.
    pub(crate) fn take(&mut self, frame: &impl Hash, now: u32) -> Option<u32> {
        let hash = self.by_hash.hasher().hash_one(frame);
        let kept = self.by_hash.get_mut(&hash)?;
        let (word, is_there) = (kept.word, now.wrapping_sub(kept.seen) <= GONE);
        kept.frames -= 1;
        if kept.frames == 0 || !is_there {
            self.by_hash.remove(&hash);
        }
        is_there.then_some(word)
    }

    /// Keeps this program's verdict on a frame that waits.
    pub(crate) fn keep(&mut self, program: &Arc<Known>, frame: &impl Hash, word: u32, now: u32) {
        if self.by_hash.len() >= MOST {
            self.by_hash.retain(|_, kept| now.wrapping_sub(kept.seen) <= GONE);
            if self.by_hash.len() >= MOST {
                return;
            }
        }
        if self.by_hash.is_empty() {
            self.program = Some(Arc::downgrade(program));
        }
        let kept =
            self.by_hash.entry(self.by_hash.hasher().hash_one(frame)).or_insert(Verdict { word, frames: 0, seen: now });
        if kept.word != word {
            kept.frames = 0;
        }
        (kept.word, kept.frames, kept.seen) = (word, kept.frames + 1, now);
    }
}
