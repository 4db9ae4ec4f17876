//! The receiving side: compares the received frames, and their order, with what was sent.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::report::CheckReport;
use crate::wire;

/// Most flows, over all senders, that a [`Checker`] follows.
pub const MAX_TRACKED: usize = 65_536;
/// The window for duplicates: how far behind the newest frame of its flow a frame may arrive and still be recognized as
/// late or as a duplicate.
pub const WINDOW: u64 = 1024;
const WORDS: usize = (WINDOW / 64) as usize;

/// How thoroughly received frames are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// Counts frames and bytes, and reads the first byte of each frame.
    Count,
    /// Checks headers, and counts loss, reordering and duplicates.
    #[default]
    Sequence,
    /// Compares each payload byte, too.
    Full,
}

/// Where the sequence numbers of a flow begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// At 0: frames sent before the receiver started count as lost.
    #[default]
    Zero,
    /// At the lowest number that was received.
    FirstSeen,
}

/// The result of the check of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// An intact test frame, with stream and flow and, unless it is too short, its sequence number.
    Intact(u32, Option<u64>),
    Corrupted,
    Foreign,
}

/// Counts received frames by sender and flow. Needs at most 200 bytes for each of at most 65,536 flows.
pub struct Checker {
    level: Level,
    origin: Origin,
    pattern: &'static [u8],
    flows: Vec<Flow>,
    index: HashMap<u32, usize, BuildHasherDefault<FlowHasher>>,
    /// The flow of the previous frame: frames of one flow in a row need no lookup.
    last: (u32, usize),
    totals: CheckReport,
}

impl Checker {
    /// A checker before the first frame.
    #[must_use]
    pub fn new(level: Level, origin: Origin) -> Checker {
        Checker {
            level,
            origin,
            pattern: wire::pattern(),
            flows: Vec::new(),
            index: HashMap::default(),
            last: (0, usize::MAX),
            totals: CheckReport::default(),
        }
    }

    /// Returns how thoroughly frames are checked.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Checks and counts one received frame.
    #[inline]
    pub fn see(&mut self, frame: &[u8]) {
        self.totals.frames += 1;
        self.totals.bytes += frame.len() as u64;
        if self.level == Level::Count {
            std::hint::black_box(frame.first().copied());
            return;
        }
        self.examine(frame);
    }

    /// Counts frames that were received elsewhere at [`Level::Count`].
    #[inline]
    pub(crate) fn add(&mut self, frames: u64, bytes: u64) {
        self.totals.frames += frames;
        self.totals.bytes += bytes;
    }

    fn examine(&mut self, frame: &[u8]) {
        match look(frame, self.pattern, self.level == Level::Full) {
            Seen::Foreign => self.totals.foreign += 1,
            Seen::Corrupted => self.totals.corrupted += 1,
            Seen::Intact(_, None) => self.totals.unsequenced += 1,
            Seen::Intact(key, Some(sequence)) => match self.flow(key) {
                Some(flow) => flow.see(sequence),
                None => self.totals.untracked += 1,
            },
        }
    }

    #[inline]
    fn flow(&mut self, key: u32) -> Option<&mut Flow> {
        if self.last.0 != key || self.last.1 == usize::MAX {
            self.last = (key, self.find(key)?);
        }
        self.flows.get_mut(self.last.1)
    }

    fn find(&mut self, key: u32) -> Option<usize> {
        if let Some(&place) = self.index.get(&key) {
            return Some(place);
        }
        if self.flows.len() == MAX_TRACKED {
            return None;
        }
        let place = self.flows.len();
        self.flows.push(Flow::default());
        self.index.insert(key, place);
        Some(place)
    }

    /// Returns the counts so far, over all flows.
    #[must_use]
    pub fn report(&self) -> CheckReport {
        let mut report = self.totals.clone();
        report.flows = self.flows.len() as u64;
        for flow in &self.flows {
            report.lost += flow.lost(self.origin);
            report.reordered += flow.reordered;
            report.duplicated += flow.duplicated;
            report.stale += flow.stale;
        }
        report
    }

    /// Returns the counts of one flow of one sender, or `None` if no frame of it was received.
    #[must_use]
    pub fn flow_report(&self, stream: u16, flow: u16) -> Option<CheckReport> {
        let found = self.flows.get(*self.index.get(&key(stream, flow))?)?;
        Some(CheckReport {
            frames: found.distinct + found.duplicated + found.stale,
            flows: 1,
            lost: found.lost(self.origin),
            reordered: found.reordered,
            duplicated: found.duplicated,
            stale: found.stale,
            ..CheckReport::default()
        })
    }
}

/// The received sequence numbers of one flow: the newest, and a bit for each of the [`WINDOW`] numbers up to it.
#[derive(Default)]
struct Flow {
    window: [u64; WORDS],
    highest: u64,
    lowest: u64,
    distinct: u64,
    reordered: u64,
    duplicated: u64,
    stale: u64,
}

impl Flow {
    #[inline]
    fn see(&mut self, sequence: u64) {
        if self.distinct == 0 {
            self.lowest = sequence;
        } else if sequence == self.highest + 1 {
            // The usual case. The bit may still be set from a window earlier; it is set again below in any case.
        } else if sequence > self.highest {
            self.forget(sequence);
        } else {
            return self.see_old(sequence);
        }
        self.highest = sequence;
        self.mark(sequence);
        self.distinct += 1;
    }

    #[cold]
    fn see_old(&mut self, sequence: u64) {
        if self.highest - sequence >= WINDOW {
            self.stale += 1;
        } else if self.window[word(sequence)] & bit(sequence) != 0 {
            self.duplicated += 1;
        } else {
            self.mark(sequence);
            self.lowest = self.lowest.min(sequence);
            self.distinct += 1;
            self.reordered += 1;
        }
    }

    #[inline]
    fn mark(&mut self, sequence: u64) {
        self.window[word(sequence)] |= bit(sequence);
    }

    /// Clears the bits of the numbers between the newest and `sequence`.
    #[cold]
    fn forget(&mut self, sequence: u64) {
        if sequence - self.highest > WINDOW {
            self.window = [0; WORDS];
        } else {
            for skipped in self.highest + 1..sequence {
                self.window[word(skipped)] &= !bit(skipped);
            }
        }
    }

    fn lost(&self, origin: Origin) -> u64 {
        if self.distinct == 0 {
            return 0;
        }
        let first = match origin {
            Origin::Zero => 0,
            Origin::FirstSeen => self.lowest,
        };
        (self.highest - first + 1) - self.distinct
    }
}

fn word(sequence: u64) -> usize {
    (sequence % WINDOW / 64) as usize
}

fn bit(sequence: u64) -> u64 {
    1 << (sequence % 64)
}

fn key(stream: u16, flow: u16) -> u32 {
    u32::from(stream) << 16 | u32::from(flow)
}

/// Returns stream, flow and sequence number of a test frame, without checking it.
pub(crate) fn identify(frame: &[u8]) -> Option<(u16, u16, Option<u64>)> {
    let test = test_header(frame)?;
    let stream = u16::from_be_bytes(*frame.get(test + 2..)?.first_chunk()?);
    let flow = u16::from_be_bytes(*frame.get(test + 4..)?.first_chunk()?);
    let sequence = frame.get(test + wire::SEQUENCE..).and_then(|rest| rest.first_chunk());
    Some((stream, flow, sequence.map(|bytes| u64::from_be_bytes(*bytes))))
}

/// Returns where the test header starts, or `None` if this is no test frame.
#[inline]
fn test_header(frame: &[u8]) -> Option<usize> {
    let kind: [u8; 2] = *frame.get(12..)?.first_chunk()?;
    let test = match kind {
        wire::TYPE_IPV4 if frame.len() >= wire::UDP_FRAME && frame[36..38] == wire::UDP_PORT => wire::UDP_TEST,
        wire::TYPE_LOCAL => wire::ETHERNET,
        _ => return None,
    };
    match frame[test..].first_chunk() {
        Some(&(wire::MAGIC_CONSTANT | wire::MAGIC_VARYING)) => Some(test),
        None if test == wire::ETHERNET => Some(test),
        _ => None,
    }
}

/// Returns true if a test frame is unchanged. Frames that are too short for a check pass.
pub(crate) fn is_intact(frame: &[u8]) -> bool {
    matches!(look(frame, wire::pattern(), true), Seen::Intact(..))
}

#[inline]
fn look(frame: &[u8], pattern: &[u8], payload: bool) -> Seen {
    let Some(test) = test_header(frame) else { return Seen::Foreign };
    let header = &frame[test..];
    let Some(&[m0, m1, s0, s1, f0, f1, ref rest @ ..]) = header.first_chunk::<{ wire::TEST }>() else {
        return look_short(header);
    };
    let [q0, q1, q2, q3, q4, q5, q6, q7, c0, c1, c2, c3] = *rest;
    let stream = u16::from_be_bytes([s0, s1]);
    let flow = u16::from_be_bytes([f0, f1]);
    let sequence = u64::from_be_bytes([q0, q1, q2, q3, q4, q5, q6, q7]);
    let prefix_sum = if test == wire::UDP_TEST {
        let Some(prefix) = frame.first_chunk() else { return Seen::Corrupted };
        wire::prefix_sum(prefix)
    } else {
        let mut prefix = [0; wire::PREFIX];
        let short = wire::ETHERNET + wire::SEQUENCE;
        prefix[..short].copy_from_slice(&frame[..short]);
        wire::prefix_sum(&prefix)
    };
    if wire::check(prefix_sum, sequence, frame.len()) != u32::from_be_bytes([c0, c1, c2, c3]) {
        return Seen::Corrupted;
    }
    if payload {
        let bytes = &header[wire::TEST..];
        let varying = [m0, m1] == wire::MAGIC_VARYING;
        let start = if varying { wire::pattern_start(stream, flow, sequence) } else { 0 };
        if pattern.get(start..start + bytes.len()) != Some(bytes) {
            return Seen::Corrupted;
        }
    }
    Seen::Intact(key(stream, flow), Some(sequence))
}

/// Checks a frame that ends inside its test header: there is no checksum, and perhaps no sequence number.
#[cold]
fn look_short(header: &[u8]) -> Seen {
    let (Some(&[_, _, s0, s1, f0, f1]), sequence) =
        (header.first_chunk(), header.get(wire::SEQUENCE..).and_then(|rest| rest.first_chunk()))
    else {
        return Seen::Intact(0, None);
    };
    let key = key(u16::from_be_bytes([s0, s1]), u16::from_be_bytes([f0, f1]));
    Seen::Intact(key, sequence.map(|bytes| u64::from_be_bytes(*bytes)))
}

/// Hashes (stream, flow) pairs. A sender that chooses them gains nothing by collisions.
#[derive(Default)]
struct FlowHasher(u64);

impl Hasher for FlowHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, word: u32) {
        let product = (self.0 ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
