//! Frames to send, taken from a capture file.

use std::path::Path;
use std::time::Duration;

use super::read::{CaptureError, CaptureProblem, CaptureReader};
use crate::source::Source;
use crate::wire::{MAX_FRAME, MIN_FRAME};

/// When the frames of a file are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// As soon as there is room, or at the rate of the sending loop.
    #[default]
    Fast,
    /// With the time distances of the capture.
    Recorded,
}

/// Settings of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayOptions {
    /// When frames are sent.
    pub timing: Timing,
    /// How often the file is sent. `None`: repeated until the run ends.
    pub loops: Option<u64>,
    /// Most bytes of frames held in memory.
    pub memory: usize,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions { timing: Timing::Fast, loops: Some(1), memory: 1 << 30 }
    }
}

/// A capture file in memory, as a source of frames.
#[derive(Debug)]
pub struct Replay {
    bytes: Vec<u8>,
    frames: Vec<Stored>,
    options: ReplayOptions,
    /// `next`: index of the next frame. `round`: how often the file was sent.
    next: usize,
    round: u64,
    /// Time from the start of one round to the start of the next: the time span of the file, and one mean gap.
    period: Duration,
    skipped: u64,
    cut: u64,
}

#[derive(Debug, Clone, Copy)]
struct Stored {
    start: usize,
    len: u32,
    /// Time since the first frame.
    time: Duration,
}

impl Replay {
    /// Reads the whole file.
    ///
    /// # Errors
    /// The file cannot be read, is damaged or too large, or has no frame that can be sent.
    pub fn open(path: &Path, options: ReplayOptions) -> Result<Replay, CaptureError> {
        let mut reader = CaptureReader::open(path)?;
        let mut replay = Replay {
            bytes: Vec::new(),
            frames: Vec::new(),
            options,
            next: 0,
            round: 0,
            period: Duration::ZERO,
            skipped: 0,
            cut: 0,
        };
        let mut first = None;
        while let Some(record) = reader.next_frame()? {
            let len = record.data.len();
            if !(MIN_FRAME..=MAX_FRAME).contains(&len) {
                replay.skipped += 1;
                continue;
            }
            if replay.bytes.len() + len > options.memory {
                return Err(reader.refuse(CaptureProblem::TooLarge(options.memory)));
            }
            replay.cut += u64::from(record.original_len as usize > len);
            // If the clock was set back during the capture, frames must not be delayed or reordered.
            let before = replay.frames.last().map_or(Duration::ZERO, |stored| stored.time);
            let time = record.time.saturating_sub(*first.get_or_insert(record.time)).max(before);
            replay.frames.push(Stored { start: replay.bytes.len(), len: len as u32, time });
            replay.bytes.extend_from_slice(record.data);
        }
        let Some(last) = replay.frames.last() else { return Err(reader.refuse(CaptureProblem::Empty)) };
        let gaps = u32::try_from(replay.frames.len() - 1).unwrap_or(u32::MAX).max(1);
        replay.period = last.time + last.time / gaps;
        Ok(replay)
    }

    /// Returns the number of frames in one round.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns true if there is nothing to send. Never true for a replay that [`open`](Replay::open) returned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of frames that cannot be sent: below 14 or above 65,535 bytes.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the number of frames that the capture truncated. They are sent as they are in the file.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut
    }

    #[inline]
    fn current(&self) -> Option<Stored> {
        if self.options.loops.is_some_and(|loops| self.round >= loops) {
            return None;
        }
        self.frames.get(self.next).copied()
    }
}

impl Source for Replay {
    #[inline]
    fn next_len(&self) -> Option<usize> {
        self.current().map(|stored| stored.len as usize)
    }

    #[inline]
    fn fill(&mut self, frame: &mut [u8]) {
        let Some(stored) = self.current() else { return };
        frame.copy_from_slice(&self.bytes[stored.start..][..stored.len as usize]);
        self.next += 1;
        if self.next == self.frames.len() {
            self.next = 0;
            self.round += 1;
        }
    }

    #[inline]
    fn due(&self) -> Duration {
        match (self.options.timing, self.current()) {
            (Timing::Recorded, Some(stored)) => {
                let rounds = u32::try_from(self.round).unwrap_or(u32::MAX);
                self.period.saturating_mul(rounds).saturating_add(stored.time)
            }
            _ => Duration::ZERO,
        }
    }
}
