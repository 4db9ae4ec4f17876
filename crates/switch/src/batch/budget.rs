//! How many more frames fit into a batch, and what its frames cost.

use super::collect::SEGMENT_COST;
use super::storage::{Batch, LONGEST};
use crate::frame::{Accepts, Cost, Gso, headers};

/// The work of cutting a segment, in bytes to copy: some 0.3 us.
const CUT: u64 = 2048;

impl Batch<'_> {
    /// Number of frames that may still be collected. A refused frame counts towards the source's turn, too.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        // The batch ends early when few views are left, or when there are many bytes to copy.
        if self.rests.len() > self.parts.entries.len() * 4
            || self.parts.bytes + self.parts.segmentation_cost > self.parts.max_bytes
        {
            return 0;
        }
        let room = self.parts.limit.saturating_sub(self.parts.count + self.parts.refused.places);
        let room = room.min(self.parts.max_frames.saturating_sub(self.parts.count + self.parts.segments));
        match (self.parts.max_bytes - self.parts.bytes - self.parts.segmentation_cost)
            .checked_div(self.parts.longest_frame)
        {
            None => room,
            Some(frames) => room.min(frames as usize + 1),
        }
    }

    /// Notes that the source may have more frames, although there is room for them.
    #[inline]
    pub fn note_more(&mut self) {
        self.parts.source_has_more = true;
    }

    /// Notes descriptors and pieces of chains that the source had to follow for its frames.
    pub fn note_steps(&mut self, steps: u64) {
        self.parts.steps += steps;
    }

    /// What [`Batch::note_steps`] has noted.
    pub(crate) fn steps(&self) -> u64 {
        self.parts.steps
    }

    /// Returns true if the source may have more frames ([`Batch::note_more`]).
    #[inline]
    pub(crate) fn may_be_more(&self) -> bool {
        self.parts.source_has_more
    }

    /// Notes that most frames of the source wait for a limit.
    pub(crate) fn note_waited(&mut self) {
        self.parts.source_waits = true;
    }

    /// Ends the batch before a frame that would begin after `bytes` bytes (at least 1) or `frames` frames. Both count
    /// frames as they are on a wire, after segmentation.
    pub(crate) fn bound(&mut self, bytes: u64, frames: u64) {
        let frames = usize::try_from(frames).unwrap_or(usize::MAX);
        (self.parts.limit, self.parts.max_frames) = (self.parts.limit.min(frames), self.parts.max_frames.min(frames));
        if bytes <= self.parts.limit as u64 * LONGEST {
            (self.parts.max_bytes, self.parts.longest_frame) = (self.parts.max_bytes.min(bytes - 1), LONGEST);
        }
    }

    /// The cost of frame `index` against a limit.
    #[inline]
    #[must_use]
    pub(crate) fn cost_of(&self, index: usize) -> Cost {
        let entry = &self.parts.entries[index];
        match entry.extras.offload() {
            None => Cost::of_one(entry.len as usize),
            Some(place) => {
                let (frames, headers) =
                    headers::on_a_wire(self.head(index), entry.len as usize, &self.parts.offloads[place]);
                Cost { bytes: u64::from(entry.len) + headers, frames }
            }
        }
    }

    /// The work of delivering all frames to receivers for which they have to be cut, in bytes to copy.
    #[inline]
    pub(crate) fn work(&self) -> u64 {
        self.parts.bytes + self.parts.segmentation_cost / SEGMENT_COST * CUT
    }

    /// The work of delivering frame `index` to a receiver for which it has to be cut, in bytes to copy.
    pub(crate) fn work_of(&self, index: usize) -> u64 {
        let Cost { bytes, frames } = self.cost_of(index);
        bytes + frames * if self.is_segmented(index) { CUT } else { SEGMENT_COST }
    }

    /// Returns true if frame `index` may have to be cut for its receivers.
    pub(crate) fn is_segmented(&self, index: usize) -> bool {
        let offload = self.parts.entries[index].extras.offload();
        offload.is_some_and(|place| self.parts.offloads[place].gso != Gso::None)
    }

    /// The cost of all frames against a limit.
    #[inline]
    #[must_use]
    pub(crate) fn cost(&self) -> Cost {
        if !self.parts.needs.meets(Accepts::SEGMENTED) {
            return Cost { bytes: self.parts.bytes, frames: self.parts.count as u64 };
        }
        (0..self.parts.count).map(|index| self.cost_of(index)).sum()
    }
}
