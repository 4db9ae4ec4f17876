//! What a member's process and the judge tell each other: words in a file that outlives the process.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_memory::Mapping;
use rustix::time::{ClockId, clock_gettime};

/// Most members.
pub const MEMBERS_MOST: usize = 32;

/// What a member is told.
pub const PAUSE: u64 = 0;
/// Send to those that may hear it.
pub const SEND: u64 = 1;
/// Send to the others, too, at times: it must not arrive.
pub const SEND_TO_ALL: u64 = 2;
/// End.
pub const END: u64 = 3;

// Single words.
pub const CONTROL: usize = 0;
/// The incarnation that is attached; 0: none.
pub const ATTACHED: usize = 1;
/// Frames received that are none of the members'.
pub const FOREIGN: usize = 2;
/// Lines in the file of what was wrong.
pub const WRONG: usize = 3;
/// When a frame was received last, in nanoseconds; 0: not since the judge looked.
pub const HEARD: usize = 4;
/// The longest time without a frame, in nanoseconds.
pub const SILENCE: usize = 5;
/// Broadcasts sent.
pub const SENT_TO_ALL: usize = 6;
/// Frames received of all members.
pub const RECEIVED: usize = 7;
// A word for each member.
pub const SENT: usize = 32;
pub const RECEIVED_FROM: usize = 64;
pub const BROADCASTS_FROM: usize = 96;
/// Frames of a sender whose destination is another member: flooded ones.
pub const FLOODED_FROM: usize = 128;
// Two for each member: for unicast and broadcast.
pub const NEWEST_INCARNATION: usize = 160;
pub const NEWEST_NUMBER: usize = 224;
const WORDS: usize = 288;

/// The words of one member.
pub struct Notes(Arc<Mapping>);

impl Notes {
    /// Opens the file, which is made if it is not there.
    pub fn open(path: &Path) -> Self {
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path).expect("a file");
        file.set_len(8 * WORDS as u64).expect("its size");
        Self(Arc::new(Mapping::shared(file.as_fd(), 8 * WORDS).expect("a mapping")))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.0.whole().words64().expect("whole words")[at]
    }

    pub fn get(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    pub fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    pub fn add(&self, at: usize, more: u64) {
        // One writer.
        self.set(at, self.get(at).wrapping_add(more));
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
