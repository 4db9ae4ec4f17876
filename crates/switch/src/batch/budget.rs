//! How much more a batch takes, and what its frames cost.

use super::storage::{Batch, LONGEST};
use crate::frame::{Accepts, Cost, headers};

impl Batch<'_> {
    /// Frames that may still be collected. One that is refused takes its share of the source's turn, too.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        // When views of the rest run short, or there is much to copy, the batch ends early.
        if self.rests.len() > self.parts.entries.len() * 4 || self.parts.bytes + self.parts.extra > self.parts.max_bytes
        {
            return 0;
        }
        let room = self.parts.limit.saturating_sub(self.parts.count + self.parts.refused.total);
        let room = room.min(self.parts.max_frames.saturating_sub(self.parts.count + self.parts.segments));
        match (self.parts.max_bytes - self.parts.bytes - self.parts.extra).checked_div(self.parts.longest) {
            None => room,
            Some(frames) => room.min(frames as usize + 1),
        }
    }

    /// Notes that the source may have more frames, although there is room for them.
    #[inline]
    pub fn note_more(&mut self) {
        self.parts.more = true;
    }

    /// Whether that was noted.
    #[inline]
    pub(crate) fn may_be_more(&self) -> bool {
        self.parts.more
    }

    /// Notes that the source waits for a limit with most of what it sends.
    pub(crate) fn note_waited(&mut self) {
        self.parts.waited = true;
    }

    /// Has the batch end before a frame that would begin after `bytes` bytes (at least 1) or `frames` frames, as they are on a
    /// wire.
    pub(crate) fn bound(&mut self, bytes: u64, frames: u64) {
        let frames = usize::try_from(frames).unwrap_or(usize::MAX);
        (self.parts.limit, self.parts.max_frames) = (self.parts.limit.min(frames), self.parts.max_frames.min(frames));
        if bytes <= self.parts.limit as u64 * LONGEST {
            (self.parts.max_bytes, self.parts.longest) = (self.parts.max_bytes.min(bytes - 1), LONGEST);
        }
    }

    /// What frame `index` takes of a limit.
    #[inline]
    #[must_use]
    pub(crate) fn cost_of(&self, index: usize) -> Cost {
        let entry = &self.parts.entries[index];
        match entry.more.offload() {
            None => Cost::of_one(entry.len as usize),
            Some(place) => {
                let (frames, headers) =
                    headers::on_a_wire(self.head(index), entry.len as usize, &self.parts.offloads[place]);
                Cost { bytes: u64::from(entry.len) + headers, frames }
            }
        }
    }

    /// What all of them take together.
    #[inline]
    #[must_use]
    pub(crate) fn cost(&self) -> Cost {
        if !self.parts.needs.meets(Accepts::SEGMENTED) {
            return Cost { bytes: self.parts.bytes, frames: self.parts.count as u64 };
        }
        (0..self.parts.count).map(|index| self.cost_of(index)).sum()
    }
}
