//! Admission of a batch's frames by their first bytes.

use ringway_memory::{HEAD_BYTES, Head};

use super::destination::Packed;
use super::entry::{self, Entry};
use super::storage::{Batch, MIN_FRAME};
use crate::frame::DropReason;

/// Frames whose heads are compared at once.
const ROW: usize = 8;
/// After this many rows that did not match, frames are judged one by one.
const MAX_MISMATCHES: usize = 2;

/// Decides whether a frame passes, by its first bytes.
pub(crate) trait Judge {
    /// What other frames are compared with: a frame that matches the pattern of a frame that passed also passes.
    type Pattern: Pattern;

    /// Judges a frame by the first `len` bytes of `head`: the whole frame, or 128 bytes; 14 at least.
    ///
    /// # Errors
    /// Why the frame is dropped.
    fn judge(&mut self, head: &[u8; HEAD_BYTES], len: usize) -> Result<(), DropReason>;

    /// Judges a frame and returns its pattern if it passes and has one.
    fn pattern(&mut self, head: &[u8; HEAD_BYTES], len: usize) -> Option<Self::Pattern>;
}

/// A pattern of a frame that passed. Frames that match it need not be judged.
pub(crate) trait Pattern {
    /// Bytes that a frame must have at least for the comparison.
    fn len(&self) -> u32;

    /// Returns how many leading rows match the pattern, and whether their frames also have the Ethernet header of the
    /// pattern's frame. All frames of `rows` have [`Pattern::len`] bytes or more.
    fn leading<const N: usize>(&self, rows: &[[Head; N]]) -> (usize, bool);
}

impl Batch<'_> {
    /// Rejects the frames that `judging` refuses, by their first bytes (the whole frame, or 128). Rows of frames that
    /// match the pattern of a frame that passed are not judged one by one.
    #[inline]
    pub(crate) fn judge(&mut self, judging: &mut impl Judge) {
        let count = self.parts.count;
        let (rows, others) = self.parts.heads[..count].as_chunks::<ROW>();
        let (entries, other_entries) = self.parts.entries[..count].as_chunks_mut::<ROW>();
        let first = self.parts.heads[0].0.first_chunk();
        let mut pattern = match (rows, &*entries) {
            ([row, _, ..], [entry, ..]) => judging.pattern(&row[0].0, entry[0].extras.head_len(entry[0].len)),
            _ => None,
        };
        let (mut mismatches, mut same_header, mut row) = (0, true, 0);
        while row < rows.len() {
            if let Some(pattern) = pattern.as_ref().filter(|_| mismatches < MAX_MISMATCHES) {
                let long = entry::leading_long(&entries[row..], pattern.len());
                let (like, same) = pattern.leading(&rows[row..][..long]);
                // The frame of the pattern was compared with the first frame.
                same_header &= same;
                mismatches = if like > 0 { 0 } else { mismatches };
                row += like;
            }
            let (Some(heads), Some(entries)) = (rows.get(row), entries.get_mut(row)) else { break };
            self.parts.rejected |= judge_each(heads, entries, judging);
            same_header = same_header && heads.iter().all(|head| head.0.first_chunk::<MIN_FRAME>() == first);
            (row, mismatches) = (row + 1, mismatches + 1);
            if row < rows.len() && mismatches < MAX_MISMATCHES {
                let (head, entry) = (&heads[ROW - 1], &entries[ROW - 1]);
                pattern = judging.pattern(&head.0, entry.extras.head_len(entry.len)).or(pattern);
            }
        }
        self.parts.rejected |= judge_each(others, other_entries, judging);
        self.parts.same_header = same_header && others.iter().all(|head| head.0.first_chunk() == first);
    }
}

/// Rejects the frames that `judging` refuses. Returns true if there are any.
#[inline(always)]
fn judge_each(heads: &[Head], entries: &mut [Entry], judging: &mut impl Judge) -> bool {
    let mut rejected = false;
    for (head, entry) in heads.iter().zip(entries) {
        if let Err(reason) = judging.judge(&head.0, entry.extras.head_len(entry.len)) {
            entry.destination = Packed(Packed::REJECTED | reason as u32);
            rejected = true;
        }
    }
    rejected
}
