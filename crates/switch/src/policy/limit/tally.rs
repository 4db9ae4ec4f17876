//! Counters of limits: frames that passed, were refused, and waited. Updated once per batch.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::single_writer::add;

/// Which bucket of a limit was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its own bits, its ceiling, or a sender's share of the bits.
    Bits,
    /// Its own frames.
    Frames,
    /// The bits of the shared bucket, or the port's share of them.
    SharedBits,
    /// The frames of the shared bucket, or the port's share of them.
    SharedFrames,
}

impl Cause {
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Cause::SharedBits | Cause::SharedFrames)
    }
}

/// Counters of a limit or of a shared bucket. They outlive changes of its settings.
#[derive(Debug, Default)]
pub struct Tally {
    frames: AtomicU64,
    bytes: AtomicU64,
    /// Refused frames by [`Cause`].
    refused: [AtomicU64; 4],
    waits: AtomicU64,
    waited: AtomicU64,
}

/// The values of a [`Tally`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TallyReading {
    /// Frames that passed.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames refused because the own bits were used up.
    pub refused_bits: u64,
    /// Frames refused because the own frames were used up.
    pub refused_frames: u64,
    /// Of a port's limit: frames refused because the shared bucket's bits were used up.
    pub refused_shared_bits: u64,
    /// Of a port's limit: frames refused because the shared bucket's frames were used up.
    pub refused_shared_frames: u64,
    /// Number of waits that have ended.
    pub waits: u64,
    /// Sum of these waits in nanoseconds, from when the frames were first found waiting.
    pub waited: u64,
}

impl Tally {
    /// Counts frames that passed. Only for a tally with one writer at a time.
    #[inline]
    pub(crate) fn pass_alone(&self, bytes: u64, frames: u64) {
        add(&self.frames, frames);
        add(&self.bytes, bytes);
    }

    /// Counts frames that passed.
    #[inline]
    pub(crate) fn pass(&self, bytes: u64, frames: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts refused frames.
    pub(crate) fn refuse(&self, cause: Cause, frames: u64) {
        self.refused[cause as usize].fetch_add(frames, Ordering::Relaxed);
    }

    /// Counts a wait of `time` nanoseconds that has ended.
    pub(crate) fn wait(&self, time: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited.fetch_add(time, Ordering::Relaxed);
    }

    /// Reads all counters, one after the other.
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
    /// Frames refused for any cause.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused_bits + self.refused_frames + self.refused_shared_bits + self.refused_shared_frames
    }
}
