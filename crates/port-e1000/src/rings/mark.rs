//! Notes of taken frames: values for the statistics, and where the next frame begins.

use ringway_memory::HEAD_BYTES;
use ringway_switch::Frame;

use super::traffic::{Group, Traffic};

/// Describes a collected frame, or a run of frames of equal length that take one descriptor each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Bytes of each frame.
    len: u32,
    frames: u16,
    /// The descriptor after the last frame. The ring's size stands for descriptor 0.
    next: u16,
    group: Group,
    /// For a frame to be segmented: bytes of its headers, and payload bytes of a segment.
    header: u8,
    size: u16,
}

impl Mark {
    pub(super) const NONE: Mark = Mark { len: 0, frames: 0, next: 0, group: Group::None, header: 0, size: 0 };

    /// Describes a frame that is not segmented.
    #[inline(always)]
    pub(super) fn whole(head: &[u8; HEAD_BYTES], len: usize, next: u32) -> Mark {
        Mark { len: len as u32, frames: 1, next: next as u16, group: Group::of(head), ..Mark::NONE }
    }

    /// Describes `frames` unicast frames of equal length, whose descriptors end before `next`.
    #[inline(always)]
    pub(super) fn alike(frames: usize, len: usize, next: u32) -> Mark {
        Mark { len: len as u32, frames: frames as u16, next: next as u16, ..Mark::NONE }
    }

    pub(super) fn of(frame: &Frame<'_, '_>, next: u32) -> Mark {
        let whole = Mark::whole(&frame.head().0, frame.len(), next);
        match frame.offload().filter(|offload| offload.gso_size > 0) {
            None => whole,
            Some(cut) => Mark { header: cut.hdr_len as u8, size: cut.gso_size, ..whole },
        }
    }

    /// Returns the descriptor after the frames. The ring's size stands for descriptor 0.
    pub(super) fn next(self) -> u32 {
        self.next.into()
    }

    /// Returns the number of frames.
    pub(super) fn frames(self) -> usize {
        self.frames.into()
    }

    /// Returns a mark of at most the first `frames` of the frames.
    pub(super) fn first(self, frames: usize) -> Mark {
        let frames = self.frames.min(frames.try_into().unwrap_or(u16::MAX));
        let fewer = self.frames.saturating_sub(frames);
        Mark { frames, next: self.next.saturating_sub(fewer), ..self }
    }

    /// Counts the frames, or the segments of a segmented frame.
    #[inline(always)]
    pub(super) fn count(self, traffic: &mut Traffic) {
        match self.size {
            0 => traffic.add(self.group, self.len as usize, self.frames.into()),
            _ => self.count_segments(traffic),
        }
    }

    #[cold]
    fn count_segments(self, traffic: &mut Traffic) {
        let (header, size) = (usize::from(self.header), usize::from(self.size));
        let payload = (self.len as usize).saturating_sub(header);
        let (whole, rest) = (payload.checked_div(size).unwrap_or(0), payload.checked_rem(size).unwrap_or(0));
        traffic.add(self.group, header.saturating_add(size), whole as u64);
        if rest > 0 {
            traffic.add(self.group, header.saturating_add(rest), 1);
        }
    }
}
