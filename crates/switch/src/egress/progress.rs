//! Progress of a delivery. After a panic, this tells which frames are in no counter yet.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::port::Counters;

const NOT_BEGUN: usize = usize::MAX;

/// The frames that one port is being given. One poller uses it; the fields are atomic because the wrappers that refer to it are
/// `Send`, as every output is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Number of frames that the port is being given, without those that the port's limit or the senders' shares
    /// refused. [`NOT_BEGUN`] before the first port.
    frames: AtomicUsize,
    /// Number of these that were appended to others.
    joined: AtomicUsize,
    /// The port's counter of delivered frames before this delivery.
    before: AtomicU64,
}

impl Progress {
    /// Notes that a new batch begins: no port was given frames yet.
    #[inline(always)]
    pub(super) fn clear(&self) {
        self.frames.store(NOT_BEGUN, Ordering::Relaxed);
    }

    /// Notes that a port is being given this number of frames.
    #[inline(always)]
    pub(super) fn begin(&self, frames: usize, counters: &Counters) {
        self.frames.store(frames, Ordering::Relaxed);
        self.joined.store(0, Ordering::Relaxed);
        self.before.store(counters.out_frames(), Ordering::Relaxed);
    }

    /// Notes that this number of frames were refused, and counted. Before the first port this does nothing: frames for a detour may
    /// be refused then.
    pub(super) fn refuse(&self, frames: usize) {
        if self.is_begun() {
            self.frames.store(self.frames().saturating_sub(frames), Ordering::Relaxed);
        }
    }

    /// Notes that this number of frames were appended to others, and counted.
    pub(super) fn join(&self, frames: usize) {
        self.joined.store(self.joined() + frames, Ordering::Relaxed);
    }

    /// Number of frames that were appended to others.
    pub(super) fn joined(&self) -> usize {
        self.joined.load(Ordering::Relaxed)
    }

    /// Notes that the delivery has ended: all frames are in a counter.
    pub(super) fn end(&self) {
        self.frames.store(0, Ordering::Relaxed);
    }

    /// Number of frames that the port, with these `counters`, was given. Those that were cut count as their segments.
    pub(super) fn given(&self, counters: &Counters) -> u64 {
        counters.out_frames().wrapping_sub(self.before.load(Ordering::Relaxed))
    }

    pub(super) fn is_begun(&self) -> bool {
        self.frames() != NOT_BEGUN
    }

    /// Number of frames that the port is being given, or was given last.
    #[inline(always)]
    pub(super) fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// Number of frames of this delivery that are not in the port's `counters`.
    pub(super) fn missing(&self, counters: &Counters) -> u64 {
        if !self.is_begun() {
            return 0;
        }
        (self.frames() as u64).saturating_sub(self.given(counters) + self.joined() as u64)
    }
}

/// Progress of a delivery from the backlog of a port in quarantine.
#[derive(Debug, Default)]
pub(super) struct BacklogProgress {
    frames: usize,
    /// The sum of the port's counters of delivered and dropped frames before this delivery.
    before: u64,
}

impl BacklogProgress {
    pub(super) fn begin(&mut self, frames: usize, counters: &Counters) {
        (self.frames, self.before) = (frames, counters.delivered_or_lost());
    }

    pub(super) fn end(&mut self) {
        self.frames = 0;
    }

    /// Number of frames of this delivery that are not in the port's `counters`.
    pub(super) fn missing(&self, counters: &Counters) -> u64 {
        (self.frames as u64).saturating_sub(counters.delivered_or_lost().wrapping_sub(self.before))
    }
}
