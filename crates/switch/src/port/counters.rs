//! What is counted, per port.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::frame::DropReason;
use crate::single_writer::add;

const REASONS: usize = DropReason::ALL.len();

/// One port's counters. Each is written by one thread at a time (the poller that owns the port's input, or the holder of
/// its output lock) and read by anyone.
#[derive(Debug, Default)]
pub struct Counters {
    input: InputCounters,
    output: OutputCounters,
}

/// A counter for each reason.
#[derive(Debug)]
struct PerReason([AtomicU64; REASONS]);

impl Default for PerReason {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; REASONS])
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct InputCounters {
    frames: AtomicU64,
    bytes: AtomicU64,
    kicks: AtomicU64,
    drops: PerReason,
    moves_held: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct OutputCounters {
    frames: AtomicU64,
    bytes: AtomicU64,
    drops: PerReason,
    calls: AtomicU64,
}

impl Counters {
    /// Frames taken from the client. Writer: the owner of the input.
    #[inline]
    pub fn add_in(&self, frames: u64, bytes: u64) {
        add(&self.input.frames, frames);
        add(&self.input.bytes, bytes);
    }

    /// Frames given to the client. Writer: the holder of the output.
    #[inline]
    pub fn add_out(&self, frames: u64, bytes: u64) {
        add(&self.output.frames, frames);
        add(&self.output.bytes, bytes);
    }

    /// Frames lost by this port as their source. Writer: the owner of the input.
    #[inline]
    pub fn drop_in(&self, reason: DropReason, frames: u64) {
        add(&self.input.drops.0[reason as usize], frames);
    }

    /// Frames lost by this port as their receiver. Writer: the holder of the output.
    #[inline]
    pub fn drop_out(&self, reason: DropReason, frames: u64) {
        add(&self.output.drops.0[reason as usize], frames);
    }

    /// A wake-up by the client. Writer: the owner of the input.
    #[inline]
    pub fn add_kick(&self) {
        add(&self.input.kicks, 1);
    }

    /// An address that did not move to this port, as it had moved shortly before. Writer: the owner of the input.
    #[inline]
    pub fn add_move_held(&self) {
        add(&self.input.moves_held, 1);
    }

    /// A wake-up of the client. Writers may be several pollers.
    #[inline]
    pub fn add_call(&self) {
        self.output.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Frames taken from the client so far.
    #[inline]
    #[must_use]
    pub fn in_frames(&self) -> u64 {
        self.input.frames.load(Ordering::Relaxed)
    }

    /// Their bytes.
    #[inline]
    #[must_use]
    pub fn in_bytes(&self) -> u64 {
        self.input.bytes.load(Ordering::Relaxed)
    }

    /// Frames given to the client so far.
    #[inline]
    #[must_use]
    pub fn out_frames(&self) -> u64 {
        self.output.frames.load(Ordering::Relaxed)
    }

    /// Bytes that were given to the client, and frames lost for want of room. For the holder of the output.
    #[inline]
    pub(crate) fn given_and_lost(&self) -> (u64, u64) {
        let full = &self.output.drops.0[DropReason::ReceiverFull as usize];
        (self.output.bytes.load(Ordering::Relaxed), full.load(Ordering::Relaxed))
    }

    /// What was lost by this port as a receiver. For the holder of the output.
    pub(crate) fn lost_out(&self) -> [u64; REASONS] {
        std::array::from_fn(|reason| self.output.drops.0[reason].load(Ordering::Relaxed))
    }

    /// Frames that the client was given or that this port lost as a receiver. For the holder of the output.
    pub(crate) fn given_or_lost(&self) -> u64 {
        self.lost_out().iter().fold(self.out_frames(), |sum, lost| sum.wrapping_add(*lost))
    }

    /// The reason that was counted since `before` was read, which is brought up to date.
    pub(crate) fn lost_since(&self, before: &mut [u64; REASONS]) -> Option<DropReason> {
        let now = self.lost_out();
        let before = std::mem::replace(before, now);
        DropReason::ALL.iter().copied().find(|&reason| now[reason as usize] != before[reason as usize])
    }

    /// All counters at about the same moment.
    #[must_use]
    pub fn read(&self) -> CountersReading {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CountersReading {
            in_frames: get(&self.input.frames),
            in_bytes: get(&self.input.bytes),
            out_frames: get(&self.output.frames),
            out_bytes: get(&self.output.bytes),
            kicks: get(&self.input.kicks),
            calls: get(&self.output.calls),
            moves_held: get(&self.input.moves_held),
            drops: std::array::from_fn(|i| get(&self.input.drops.0[i]).wrapping_add(get(&self.output.drops.0[i]))),
        }
    }
}

/// Counters since the port was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersReading {
    /// Frames taken from the client.
    pub in_frames: u64,
    /// Their bytes.
    pub in_bytes: u64,
    /// Frames given to the client.
    pub out_frames: u64,
    /// Their bytes.
    pub out_bytes: u64,
    /// Wake-ups by the client.
    pub kicks: u64,
    /// Wake-ups of the client.
    pub calls: u64,
    /// Times that an address did not move to this port, as it had moved shortly before.
    pub moves_held: u64,
    drops: [u64; REASONS],
}

impl Default for CountersReading {
    fn default() -> Self {
        Counters::default().read()
    }
}

impl CountersReading {
    /// Both together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            in_frames: self.in_frames.wrapping_add(other.in_frames),
            in_bytes: self.in_bytes.wrapping_add(other.in_bytes),
            out_frames: self.out_frames.wrapping_add(other.out_frames),
            out_bytes: self.out_bytes.wrapping_add(other.out_bytes),
            kicks: self.kicks.wrapping_add(other.kicks),
            calls: self.calls.wrapping_add(other.calls),
            moves_held: self.moves_held.wrapping_add(other.moves_held),
            drops: std::array::from_fn(|i| self.drops[i].wrapping_add(other.drops[i])),
        }
    }

    /// Frames lost for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Every reason that has been counted, with its count.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.dropped(reason))).filter(|&(_, count)| count > 0)
    }
}
