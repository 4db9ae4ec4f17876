//! Notes of taken frames: values for the statistics, and where the next frame begins.

use ringway_memory::HEAD_BYTES;
use ringway_switch::Frame;

use super::traffic::{Group, Traffic};

/// A frame, or several in a row that are alike and take a descriptor each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Bytes of each.
    len: u32,
    frames: u16,
    /// The descriptor after the last; the ring's size for its first one.
    next: u16,
    group: Group,
    /// Of a frame to be cut the bytes of its headers and of a segment.
    header: u8,
    size: u16,
}

impl Mark {
    pub(super) const NONE: Mark = Mark { len: 0, frames: 0, next: 0, group: Group::None, header: 0, size: 0 };

    /// Of a frame that is not to be cut.
    #[inline(always)]
    pub(super) fn whole(head: &[u8; HEAD_BYTES], len: usize, next: u32) -> Mark {
        Mark { len: len as u32, frames: 1, next: next as u16, group: Group::of(head), ..Mark::NONE }
    }

    /// Of frames to one station each, before descriptor `next`.
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

    /// The descriptor after the frames; the ring's size for its first one.
    pub(super) fn next(self) -> u32 {
        self.next.into()
    }

    /// How many there are.
    pub(super) fn frames(self) -> usize {
        self.frames.into()
    }

    /// The first `frames` of them, if there are more.
    pub(super) fn first(self, frames: usize) -> Mark {
        let frames = self.frames.min(frames.try_into().unwrap_or(u16::MAX));
        let fewer = self.frames.saturating_sub(frames);
        Mark { frames, next: self.next.saturating_sub(fewer), ..self }
    }

    /// Counts the frames, or what one is cut into.
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
