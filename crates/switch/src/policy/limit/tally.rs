//! What limits came to: what passed them, what they refused and how long they had frames wait. Counted once per batch.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::single_writer::add;

/// What of a limit was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its own bits, those of its ceiling or of a sender's share.
    Bits,
    /// Its own frames.
    Frames,
    /// What the shared bucket has of bits, or its share of them.
    SharedBits,
    /// The same of frames.
    SharedFrames,
}

impl Cause {
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Cause::SharedBits | Cause::SharedFrames)
    }
}

/// Counters of a limit, or of a bucket that several share, for as long as there is one whatever its settings.
#[derive(Debug, Default)]
pub struct Tally {
    frames: AtomicU64,
    bytes: AtomicU64,
    /// By what was used up.
    refused: [AtomicU64; 4],
    waits: AtomicU64,
    waited: AtomicU64,
}

/// A tally at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TallyReading {
    /// Frames that passed.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames refused for want of bits.
    pub refused_bits: u64,
    /// Frames refused for want of frames.
    pub refused_frames: u64,
    /// Of a port's limit: frames refused as the shared bucket had no bits for them.
    pub refused_shared_bits: u64,
    /// Of a port's limit: frames refused as the shared bucket had no frames for them.
    pub refused_shared_frames: u64,
    /// Times that frames passed that had waited.
    pub waits: u64,
    /// For how long together, in nanoseconds: from when they were seen to wait.
    pub waited: u64,
}

impl Tally {
    /// Frames have passed that only one at a time counts.
    #[inline]
    pub(crate) fn pass_alone(&self, bytes: u64, frames: u64) {
        add(&self.frames, frames);
        add(&self.bytes, bytes);
    }

    /// Frames have passed.
    #[inline]
    pub(crate) fn pass(&self, bytes: u64, frames: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Frames were refused.
    pub(crate) fn refuse(&self, cause: Cause, frames: u64) {
        self.refused[cause as usize].fetch_add(frames, Ordering::Relaxed);
    }

    /// Frames have passed that had waited for so many nanoseconds.
    pub(crate) fn wait(&self, time: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited.fetch_add(time, Ordering::Relaxed);
    }

    /// All of it at about the same moment.
    #[must_use]
    pub fn read(&self) -> TallyReading {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let refused = |cause: Cause| get(&self.refused[cause as usize]);
        TallyReading {
            frames: get(&self.frames),
            bytes: get(&self.bytes),
            refused_bits: refused(Cause::Bits),
            refused_frames: refused(Cause::Frames),
            refused_shared_bits: refused(Cause::SharedBits),
            refused_shared_frames: refused(Cause::SharedFrames),
            waits: get(&self.waits),
            waited: get(&self.waited),
        }
    }
}

impl TallyReading {
    /// Frames refused for whatever reason.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused_bits + self.refused_frames + self.refused_shared_bits + self.refused_shared_frames
    }
}
