//! The counters of a port.

use std::sync::atomic::{AtomicU64, Ordering};

use super::event::CallReason;
use super::tuner::Totals;
use crate::frame::DropReason;
use crate::single_writer::add;

const REASONS: usize = DropReason::ALL.len();
/// The drop reasons that the receiver's client causes: by no room, by delay, by its buffers, its filters or its state.
const BY_RECEIVER: [DropReason; 5] = [
    DropReason::ReceiverFull,
    DropReason::ReceiverSlow,
    DropReason::ReceiverTooSmall,
    DropReason::ReceiverFiltered,
    DropReason::ReceiverDown,
];

/// One port's counters. Each is written by one thread at a time (the poller that owns the port's input, or the holder of
/// its output lock) and read by anyone.
#[derive(Debug, Default)]
pub struct Counters {
    input: InputCounters,
    output: OutputCounters,
}

/// A counter for each drop reason.
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
    coalesced: AtomicU64,
}

impl Counters {
    /// Counts frames taken from the client. Writer: the owner of the input.
    #[inline]
    pub fn add_in(&self, frames: u64, bytes: u64) {
        add(&self.input.frames, frames);
        add(&self.input.bytes, bytes);
    }

    /// Counts frames given to the client. Writer: the holder of the output.
    #[inline]
    pub fn add_out(&self, frames: u64, bytes: u64) {
        add(&self.output.frames, frames);
        add(&self.output.bytes, bytes);
    }

    /// Counts frames that were appended to others before they were given to the client. Writer: the holder of the output.
    #[inline]
    pub(crate) fn add_coalesced(&self, frames: u64) {
        add(&self.output.coalesced, frames);
    }

    /// Counts frames that were dropped at this port as their source. Writer: the owner of the input.
    #[inline]
    pub fn drop_in(&self, reason: DropReason, frames: u64) {
        add(&self.input.drops.0[reason as usize], frames);
    }

    /// Counts frames that were dropped at this port as their receiver. Writer: the holder of the output.
    #[inline]
    pub fn drop_out(&self, reason: DropReason, frames: u64) {
        add(&self.output.drops.0[reason as usize], frames);
    }

    /// Counts frames that were not given to the client. Writer: any thread.
    pub fn drop_out_beside(&self, reason: DropReason, frames: u64) {
        self.output.drops.0[reason as usize].fetch_add(frames, Ordering::Relaxed);
    }

    /// Counts a wake-up by the client. Writer: the owner of the input.
    #[inline]
    pub fn add_kick(&self) {
        add(&self.input.kicks, 1);
    }

    /// Counts an address that did not move to this port because it had moved shortly before. Writer: the owner of the
    /// input.
    #[inline]
    pub fn add_move_held(&self) {
        add(&self.input.moves_held, 1);
    }

    /// Counts a wake-up of the client. Several pollers may write at the same time.
    #[inline]
    pub fn add_call(&self) {
        self.output.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of frames taken from the client.
    #[inline]
    #[must_use]
    pub fn in_frames(&self) -> u64 {
        self.input.frames.load(Ordering::Relaxed)
    }

    /// Number of bytes taken from the client.
    #[inline]
    #[must_use]
    pub fn in_bytes(&self) -> u64 {
        self.input.bytes.load(Ordering::Relaxed)
    }

    /// Number of frames given to the client.
    #[inline]
    #[must_use]
    pub fn out_frames(&self) -> u64 {
        self.output.frames.load(Ordering::Relaxed)
    }

    /// The frames and bytes in the direction of a call.
    pub(crate) fn totals(&self, reason: CallReason) -> Totals {
        let (frames, bytes) = match reason {
            CallReason::Frames => (&self.output.frames, &self.output.bytes),
            CallReason::Room => (&self.input.frames, &self.input.bytes),
        };
        Totals { frames: frames.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }

    /// Number of bytes given to the client, and number of frames dropped because the client had no room. For the holder
    /// of the output.
    #[inline]
    pub(crate) fn delivered_and_lost(&self) -> (u64, u64) {
        let full = &self.output.drops.0[DropReason::ReceiverFull as usize];
        (self.output.bytes.load(Ordering::Relaxed), full.load(Ordering::Relaxed))
    }

    /// Number of frames dropped because they were too long for the client's buffers. For the holder of the output.
    pub(crate) fn too_long(&self) -> u64 {
        self.output.drops.0[DropReason::ReceiverTooSmall as usize].load(Ordering::Relaxed)
    }

    /// Number of frames that were dropped at this port as their receiver because of its client: the reasons `receiver_*`.
    #[must_use]
    pub fn lost_by_receiver(&self) -> u64 {
        let lost = |reason: DropReason| self.output.drops.0[reason as usize].load(Ordering::Relaxed);
        BY_RECEIVER.into_iter().fold(0, |sum, reason| sum.wrapping_add(lost(reason)))
    }

    /// Number of frames dropped at this port as their receiver, by reason. For the holder of the output.
    pub(crate) fn lost_out(&self) -> [u64; REASONS] {
        std::array::from_fn(|reason| self.output.drops.0[reason].load(Ordering::Relaxed))
    }

    /// Number of frames that were given to the client or dropped at this port as their receiver. For the holder of the
    /// output.
    pub(crate) fn delivered_or_lost(&self) -> u64 {
        self.lost_out().iter().fold(self.out_frames(), |sum, lost| sum.wrapping_add(*lost))
    }

    /// Returns the first drop reason whose counter has changed since `before` was read, and updates `before`.
    pub(crate) fn lost_since(&self, before: &mut [u64; REASONS]) -> Option<DropReason> {
        let now = self.lost_out();
        let before = std::mem::replace(before, now);
        DropReason::ALL.iter().copied().find(|&reason| now[reason as usize] != before[reason as usize])
    }

    /// Reads all counters at about the same moment.
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
            coalesced: get(&self.output.coalesced),
            moves_held: get(&self.input.moves_held),
            drops: std::array::from_fn(|i| get(&self.input.drops.0[i]).wrapping_add(get(&self.output.drops.0[i]))),
        }
    }
}

/// A reading of a port's counters, counted from the creation of the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersReading {
    /// Frames taken from the client.
    pub in_frames: u64,
    /// Bytes taken from the client.
    pub in_bytes: u64,
    /// Frames given to the client.
    pub out_frames: u64,
    /// Bytes given to the client.
    pub out_bytes: u64,
    /// Wake-ups by the client.
    pub kicks: u64,
    /// Wake-ups of the client.
    pub calls: u64,
    /// Frames that were appended to others. The frame that they are parts of counts once, as given or as lost.
    pub coalesced: u64,
    /// Number of times an address did not move to this port because it had moved shortly before.
    pub moves_held: u64,
    drops: [u64; REASONS],
}

impl Default for CountersReading {
    fn default() -> Self {
        Counters::default().read()
    }
}

impl CountersReading {
    /// Returns the sum of two readings.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            in_frames: self.in_frames.wrapping_add(other.in_frames),
            in_bytes: self.in_bytes.wrapping_add(other.in_bytes),
            out_frames: self.out_frames.wrapping_add(other.out_frames),
            out_bytes: self.out_bytes.wrapping_add(other.out_bytes),
            kicks: self.kicks.wrapping_add(other.kicks),
            calls: self.calls.wrapping_add(other.calls),
            coalesced: self.coalesced.wrapping_add(other.coalesced),
            moves_held: self.moves_held.wrapping_add(other.moves_held),
            drops: std::array::from_fn(|i| self.drops[i].wrapping_add(other.drops[i])),
        }
    }

    /// All counters, each with a name that stays the same from version to version.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { in_frames, in_bytes, out_frames, out_bytes, kicks, calls, coalesced, moves_held, drops } =
            self.clone();
        let others = [
            ("in_frames", in_frames),
            ("in_bytes", in_bytes),
            ("out_frames", out_frames),
            ("out_bytes", out_bytes),
            ("kicks", kicks),
            ("calls", calls),
            ("coalesced", coalesced),
            ("moves_held", moves_held),
        ];
        others.into_iter().chain(DropReason::ALL.iter().map(|reason| reason.name()).zip(drops))
    }

    /// The counters that have these names. What has another name is left out.
    pub fn of_named<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let mut all = Self::default();
        for (name, count) in counters {
            match name {
                "in_frames" => all.in_frames = count,
                "in_bytes" => all.in_bytes = count,
                "out_frames" => all.out_frames = count,
                "out_bytes" => all.out_bytes = count,
                "kicks" => all.kicks = count,
                "calls" => all.calls = count,
                "coalesced" => all.coalesced = count,
                "moves_held" => all.moves_held = count,
                _ => {
                    if let Some(at) = DropReason::ALL.iter().position(|reason| reason.name() == name) {
                        all.drops[at] = count;
                    }
                }
            }
        }
        all
    }

    /// Number of frames dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// The drop reasons with a count above zero, with their counts.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.dropped(reason))).filter(|&(_, count)| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reasons_that_a_receiver_causes_are_those_that_say_so() {
        let named = DropReason::ALL.iter().copied().filter(|reason| reason.name().starts_with("receiver_"));
        assert!(named.eq(BY_RECEIVER));
    }
}
