//! Statistics registers (SDM 13.7, DS 10.2.7): counters that a read clears and that stop at their maximum.

use super::kept::{Reader, Writer};
use super::offsets::{STATISTICS, STATISTICS_END};
use super::rings::{Received, Traffic};

const WORDS: usize = ((STATISTICS_END - STATISTICS) / 4) as usize;
/// Bytes of a frame check sequence. The octet counters include it.
const FCS: u64 = 4;

const MPC: u32 = 0x4010;
const PRC64: u32 = 0x405c;
const GPRC: u32 = 0x4074;
const BPRC: u32 = 0x4078;
const MPRC: u32 = 0x407c;
const GPTC: u32 = 0x4080;
const GORC: u32 = 0x4088;
const GOTC: u32 = 0x4090;
const RNBC: u32 = 0x40a0;
const ROC: u32 = 0x40ac;
const TOR: u32 = 0x40c0;
const TOT: u32 = 0x40c8;
const TPR: u32 = 0x40d0;
const TPT: u32 = 0x40d4;
const PTC64: u32 = 0x40d8;
const MPTC: u32 = 0x40f0;
const BPTC: u32 = 0x40f4;
const TSCTC: u32 = 0x40f8;
const TSCTFC: u32 = 0x40fc;
/// Interrupts asserted (82574L).
const IAC: u32 = 0x4100;
/// Offsets of the low words of the 64-bit counters. The high word follows.
const PAIRS: [u32; 4] = [GORC, GOTC, TOR, TOT];

/// A 64-bit counter.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    value: u64,
    /// The value at the last read of the low word. The next read of the high word belongs to it.
    seen: Option<u64>,
}

impl Pair {
    fn low(&mut self) -> u32 {
        self.seen = Some(self.value);
        self.value as u32
    }

    /// Returns the high word and clears the counter. What was added since the low word was read remains.
    fn high(&mut self) -> u32 {
        let seen = self.seen.take().unwrap_or(self.value);
        self.value -= seen;
        (seen >> 32) as u32
    }
}

/// The statistics registers of a function.
#[derive(Debug)]
pub(super) struct Statistics {
    words: [u32; WORDS],
    pairs: [Pair; PAIRS.len()],
}

impl Default for Statistics {
    fn default() -> Statistics {
        Statistics { words: [0; WORDS], pairs: Default::default() }
    }
}

impl Statistics {
    /// Reads and clears the register at `offset`, which is one of the statistics registers.
    pub(super) fn read(&mut self, offset: u32) -> u32 {
        for (place, pair) in PAIRS.into_iter().zip(&mut self.pairs) {
            match offset.wrapping_sub(place) {
                0 => return pair.low(),
                4 => return pair.high(),
                _ => {}
            }
        }
        self.words.get_mut(index(offset)).map_or(0, std::mem::take)
    }

    pub(super) fn save(&self, to: &mut Writer) {
        to.u32s(&self.words);
        for Pair { value, seen } in self.pairs {
            to.u64(value);
            to.bool(seen.is_some());
            to.u64(seen.unwrap_or(0));
        }
    }

    /// Reads what [`Statistics::save`] has written.
    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Option<()> {
        from.u32s(&mut self.words)?;
        for pair in &mut self.pairs {
            let (value, is_seen, seen) = (from.u64()?, from.bool()?, from.u64()?);
            *pair = Pair { value, seen: is_seen.then_some(seen.min(value)) };
        }
        Some(())
    }

    /// Adds sent frames.
    pub(super) fn sent(&mut self, traffic: &Traffic) {
        let octets = octets(traffic);
        for (offset, count) in
            [(GPTC, traffic.frames), (TPT, traffic.frames), (MPTC, traffic.multicast), (BPTC, traffic.broadcast)]
        {
            self.add(offset, count);
        }
        self.add_sizes(PTC64, traffic);
        self.add_pair(GOTC, octets);
        self.add_pair(TOT, octets);
    }

    /// Adds received and lost frames.
    pub(super) fn received(&mut self, received: &Received) {
        let traffic = &received.traffic;
        let octets = octets(traffic);
        for (offset, count) in [
            (GPRC, traffic.frames),
            (MPRC, traffic.multicast),
            (BPRC, traffic.broadcast),
            (MPC, received.full),
            (RNBC, received.full + received.held),
            (ROC, received.long),
            (TPR, traffic.frames + received.full + received.long),
        ] {
            self.add(offset, count);
        }
        self.add_sizes(PRC64, traffic);
        self.add_pair(GORC, octets);
        self.add_pair(TOR, octets);
    }

    /// Adds segmented frames, and frames whose segmentation failed.
    pub(super) fn segmented(&mut self, segmented: u64, failed: u64) {
        self.add(TSCTC, segmented);
        self.add(TSCTFC, failed);
    }

    /// Adds raised interrupts.
    pub(super) fn interrupts(&mut self, count: u64) {
        self.add(IAC, count);
    }

    fn add_sizes(&mut self, first: u32, traffic: &Traffic) {
        for (place, count) in (0..).zip(traffic.sizes) {
            self.add(first + 4 * place, count);
        }
    }

    fn add(&mut self, offset: u32, count: u64) {
        if let Some(word) = self.words.get_mut(index(offset)) {
            *word = word.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    fn add_pair(&mut self, offset: u32, octets: u64) {
        if let Some(place) = PAIRS.iter().position(|&pair| pair == offset) {
            self.pairs[place].value = self.pairs[place].value.saturating_add(octets);
        }
    }
}

fn index(offset: u32) -> usize {
    (offset.wrapping_sub(STATISTICS) / 4) as usize
}

/// Returns the bytes of frames, with their frame check sequences.
fn octets(traffic: &Traffic) -> u64 {
    traffic.bytes + FCS * traffic.frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(frames: u64, bytes: u64) -> Traffic {
        Traffic { frames, bytes, ..Traffic::default() }
    }

    #[test]
    fn a_counter_is_cleared_by_reading_it() {
        let mut statistics = Statistics::default();
        statistics.sent(&traffic(3, 180));
        assert_eq!((statistics.read(GPTC), statistics.read(GPTC)), (3, 0));
        assert_eq!((statistics.read(GOTC), statistics.read(GOTC + 4), statistics.read(GOTC)), (192, 0, 0));
        assert_eq!(statistics.read(TOT), 192);
    }

    #[test]
    fn counters_stop_at_their_end() {
        let mut statistics = Statistics::default();
        statistics.sent(&traffic(u64::from(u32::MAX) - 1, 0));
        statistics.sent(&traffic(u64::from(u32::MAX), u64::MAX / 2));
        statistics.sent(&traffic(0, u64::MAX / 2 + 1));
        assert_eq!(statistics.read(GPTC), u32::MAX);
        assert_eq!((statistics.read(GOTC), statistics.read(GOTC + 4)), (u32::MAX, u32::MAX));
    }

    #[test]
    fn octets_between_the_two_reads_of_a_pair_are_counted_next_time() {
        let mut statistics = Statistics::default();
        statistics.sent(&traffic(0, u64::from(u32::MAX)));
        assert_eq!(statistics.read(GOTC), u32::MAX);
        statistics.sent(&traffic(0, 7));
        assert_eq!(statistics.read(GOTC + 4), 0, "the high word of what was read, not of what came since");
        assert_eq!((statistics.read(GOTC), statistics.read(GOTC + 4)), (7, 0));
    }
}
