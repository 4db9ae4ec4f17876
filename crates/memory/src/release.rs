//! Where and how memory is unmapped that a client has, too.
//!
//! To unmap a file waits, with a lock that every mmap(2), munmap(2) and growth of the heap in the process needs, while the kernel punches a hole into
//! that file. Its client can make that last for as long as it likes, again and again. So the file is sealed first (F_SEAL_FUTURE_WRITE): to seal it
//! waits for the hole that is being punched, without such a lock, and nobody can punch another one afterwards. The program says on which thread
//! ([`release_by`]), as that one waits.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{SealFlags, fcntl_add_seals};

/// A file that cannot be sealed is unmapped after so many tries in a row ended soon...
const QUIET: u32 = 5;
/// ...within this time...
const SOON: Duration = Duration::from_millis(1);
/// ...at this distance.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Tries to seal a file, after which it is unmapped in any case.
const MOST_TRIES: u32 = 50;

/// Work that a client can make last.
pub type Work = Box<dyn FnOnce() + Send>;

/// What hands work over to a thread that serves the process of this number alone meanwhile.
type HandOver = fn(Option<NonZeroU32>, Work);

static HAND_OVER: OnceLock<HandOver> = OnceLock::new();

/// Has memory that clients share unmapped where `hand_over` says from now on, once for the process. Without this it is unmapped where its last
/// user drops it.
pub fn release_by(hand_over: HandOver) {
    let _ = HAND_OVER.set(hand_over);
}

/// The file of a mapping that a client has, too.
#[derive(Debug)]
pub(crate) struct SharedFile {
    pub(crate) file: Arc<OwnedFd>,
    /// The number of the client's process, or 0.
    pub(crate) owner: AtomicU32,
}

impl SharedFile {
    /// Has `unmap` done after nobody can punch holes into the file.
    pub(crate) fn release(self, unmap: impl FnOnce() + Send + 'static) {
        let owner = NonZeroU32::new(self.owner.load(Ordering::Relaxed));
        let work: Work = Box::new(move || {
            self.seal();
            unmap();
        });
        match HAND_OVER.get() {
            Some(hand_over) => hand_over(owner, work),
            None => work(),
        }
    }

    /// Waits until nobody can punch holes into the file. If its client has forbidden further seals, waits until nobody has punched for a while, again
    /// and again, but not for ever: to try waits for a hole, too.
    fn seal(&self) {
        let mut quiet = 0;
        for _ in 0..MOST_TRIES {
            let began = Instant::now();
            if fcntl_add_seals(&self.file, SealFlags::FUTURE_WRITE).is_ok() {
                return;
            }
            quiet = if began.elapsed() < SOON { quiet + 1 } else { 0 };
            if quiet == QUIET {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
