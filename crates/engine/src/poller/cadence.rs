//! The rounds after which a poller reads the clock, and the pause after an empty round.
//!
//! The clock is read once for up to 16 rounds that find nothing or move few frames. The first 64 empty rounds do not pause the core
//! between them. After a burst each empty round pauses 4 times.

/// Rounds between two readings of the clock, if these are empty or move few frames.
const ROUNDS_PER_READING: u32 = 16;
/// Frames that may move between two readings. A reading takes as long as moving a frame.
const FRAMES_PER_READING: u64 = 32;
/// Empty rounds (a few hundred nanoseconds together) before the poller executes pause instructions, which give way to
/// the core's other hardware thread. A pause takes longer than a round, so it would delay an answer that is about to
/// arrive.
const EMPTY_ROUNDS: u32 = 64;
/// A round that moves more frames belongs to a burst.
const FEW_FRAMES: u64 = 4;
/// Pauses after an empty round that follows a burst. In a packed ring the driver may still be writing descriptors into
/// the same cache lines, so the poller leaves them alone for a moment.
const BURST_PAUSES: u32 = 4;

/// The cadence of one poller (see the module's comment).
#[derive(Debug, Default)]
pub(super) struct Cadence {
    /// Rounds since the last reading of the clock.
    rounds: u32,
    /// Frames since the last reading of the clock.
    frames: u64,
    /// Empty rounds since the last frames.
    empty: u32,
    /// The last frames belonged to a burst.
    burst: bool,
}

impl Cadence {
    /// Records a round that moved `frames` frames, at least one. Returns true if the poller must read the clock now.
    #[inline(always)]
    pub(super) fn moved(&mut self, frames: u64) -> bool {
        (self.rounds, self.frames) = (self.rounds + 1, self.frames + frames);
        (self.empty, self.burst) = (0, frames > FEW_FRAMES);
        self.rounds >= ROUNDS_PER_READING || self.frames >= FRAMES_PER_READING
    }

    /// Records a round that moved nothing. Returns true if the poller must read the clock now. That also happens if
    /// earlier rounds moved frames, to separate their time from that of the following empty rounds.
    #[inline(always)]
    pub(super) fn found_nothing(&mut self) -> bool {
        self.rounds += 1;
        self.empty = self.empty.saturating_add(1);
        self.rounds >= ROUNDS_PER_READING || self.frames > 0
    }

    /// The number of pause instructions to execute after an empty round.
    #[inline(always)]
    pub(super) fn pauses(&self) -> u32 {
        if self.burst { BURST_PAUSES } else { (self.empty > EMPTY_ROUNDS).into() }
    }

    /// Notes a reading of the clock. Returns true if frames moved since the last one.
    #[inline]
    pub(super) fn read(&mut self) -> bool {
        self.rounds = 0;
        std::mem::take(&mut self.frames) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of rounds until the clock is read.
    fn rounds(frames: u64) -> u32 {
        let mut cadence = Cadence::default();
        let mut rounds = 1;
        while !if frames > 0 { cadence.moved(frames) } else { cadence.found_nothing() } {
            rounds += 1;
        }
        assert_eq!(cadence.read(), frames > 0);
        rounds
    }

    #[test]
    fn the_clock_is_read_often_enough_for_limits_and_seldom_enough_for_small_batches() {
        assert_eq!([0, 1, 2, 3, 8, 32, 256].map(rounds), [16, 16, 16, 11, 4, 1, 1]);
    }

    #[test]
    fn the_time_of_rounds_that_moved_frames_ends_with_the_first_empty_round() {
        let mut cadence = Cadence::default();
        assert!(!cadence.moved(1));
        assert!(cadence.found_nothing() && cadence.read());
        assert!(!cadence.found_nothing());
    }

    #[test]
    fn an_empty_round_is_followed_by_a_pause_after_a_burst_or_many_empty_rounds() {
        let mut cadence = Cadence::default();
        let mut pauses = |frames: Option<u64>| {
            match frames {
                Some(frames) => cadence.moved(frames),
                None => cadence.found_nothing(),
            };
            cadence.pauses()
        };
        assert!((0..EMPTY_ROUNDS).all(|_| pauses(None) == 0));
        assert_eq!(pauses(None), 1);
        pauses(Some(FEW_FRAMES + 1));
        assert_eq!([pauses(None), pauses(None)], [BURST_PAUSES; 2]);
        pauses(Some(1));
        assert_eq!(pauses(None), 0);
    }
}
