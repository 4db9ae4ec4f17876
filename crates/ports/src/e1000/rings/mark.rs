//! What is remembered of a frame that was taken, in one word: what the statistics need, and where the next one begins.

use ringway_memory::HEAD_BYTES;
use ringway_switch::Frame;

use super::traffic::{Group, Traffic};

/// From the lowest bits up: bytes (20), group (2), the descriptor after it (16), and of a frame to be cut the bytes of its
/// headers (8) and of a segment (16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

const GROUP: u32 = 20;
const NEXT: u32 = 22;
const HEADER: u32 = 38;
const SIZE: u32 = 46;

impl Mark {
    pub(super) const NONE: Mark = Mark(0);

    /// Of a frame that is not to be cut.
    #[inline(always)]
    pub(super) fn whole(head: &[u8; HEAD_BYTES], len: usize, next: u32) -> Mark {
        Mark(len as u64 | (Group::of(head) as u64) << GROUP | u64::from(next) << NEXT)
    }

    pub(super) fn of(frame: &Frame<'_, '_>, next: u32) -> Mark {
        let Mark(word) = Mark::whole(&frame.head().0, frame.len(), next);
        let cut = frame.offload().filter(|offload| offload.gso_size > 0);
        Mark(word | cut.map_or(0, |cut| u64::from(cut.hdr_len) << HEADER | u64::from(cut.gso_size) << SIZE))
    }

    /// The descriptor after the frame; the ring's size for its first one.
    pub(super) fn next(self) -> u32 {
        (self.0 >> NEXT & 0xffff) as u32
    }

    /// Counts the frame, or what it is cut into.
    #[inline(always)]
    pub(super) fn count(self, traffic: &mut Traffic) {
        let (len, group) = ((self.0 & 0xf_ffff) as usize, Group::from_bits(self.0 >> GROUP));
        match (self.0 >> SIZE) as usize {
            0 => traffic.add(group, len, 1),
            size => self.count_segments(group, len, size, traffic),
        }
    }

    #[cold]
    fn count_segments(self, group: Group, len: usize, size: usize, traffic: &mut Traffic) {
        let header = (self.0 >> HEADER & 0xff) as usize;
        let payload = len - header;
        traffic.add(group, header + size, (payload / size) as u64);
        if !payload.is_multiple_of(size) {
            traffic.add(group, header + payload % size, 1);
        }
    }
}
