//! What a batch's frames may do, by their first bytes.

use ringway_memory::{HEAD_BYTES, Head};

use super::destination::Packed;
use super::entry::{self, Entry};
use super::storage::{Batch, MIN_FRAME};
use crate::frame::DropReason;

/// Frames whose heads are compared together.
const ROW: usize = 8;
/// After so many rows that were not alike, frames are looked at one by one.
const MOST_UNLIKE: usize = 2;

/// Decides about frames by their first bytes, one after the other.
pub(crate) trait Judge {
    /// What a frame that passed has: every other frame that has it passes, too.
    type Pattern: Pattern;

    /// Judges a frame by the `len` first bytes of `head`, 14 or more: all of it, or 128.
    ///
    /// # Errors
    /// Why the frame is dropped.
    fn judge(&mut self, head: &[u8; HEAD_BYTES], len: usize) -> Result<(), DropReason>;

    /// Judges a frame. Returns the pattern of a frame that passes, if it has one.
    fn pattern(&mut self, head: &[u8; HEAD_BYTES], len: usize) -> Option<Self::Pattern>;
}

/// What frames are compared with instead of being judged.
pub(crate) trait Pattern {
    /// Bytes that a frame must have to be compared.
    fn len(&self) -> u32;

    /// Returns how many of these rows have the pattern, from the first on, if their frames are long enough; and whether they have
    /// the Ethernet header of the frame that the pattern is of.
    fn leading<const N: usize>(&self, rows: &[[Head; N]]) -> (usize, bool);
}

impl Batch<'_> {
    /// Rejects the frames that may not pass by their first bytes: all of a frame, or 128. Frames that are like one that
    /// passed are not looked at one by one.
    #[inline]
    pub(crate) fn judge(&mut self, judging: &mut impl Judge) {
        let count = self.parts.count;
        let (rows, others) = self.parts.heads[..count].as_chunks::<ROW>();
        let (entries, other_entries) = self.parts.entries[..count].as_chunks_mut::<ROW>();
        let first = self.parts.heads[0].0.first_chunk();
        let mut pattern = match (rows, &*entries) {
            ([row, _, ..], [entry, ..]) => judging.pattern(&row[0].0, entry[0].more.head_len(entry[0].len)),
            _ => None,
        };
        let (mut unlike, mut alike, mut row) = (0, true, 0);
        while row < rows.len() {
            if let Some(pattern) = pattern.as_ref().filter(|_| unlike < MOST_UNLIKE) {
                let long = entry::leading_long(&entries[row..], pattern.len());
                let (like, same) = pattern.leading(&rows[row..][..long]);
                // The one that they are like was compared with the first.
                alike &= same;
                unlike = if like > 0 { 0 } else { unlike };
                row += like;
            }
            let (Some(heads), Some(entries)) = (rows.get(row), entries.get_mut(row)) else { break };
            self.parts.rejected |= judge_each(heads, entries, judging);
            alike = alike && heads.iter().all(|head| head.0.first_chunk::<MIN_FRAME>() == first);
            (row, unlike) = (row + 1, unlike + 1);
            if row < rows.len() && unlike < MOST_UNLIKE {
                let (head, entry) = (&heads[ROW - 1], &entries[ROW - 1]);
                pattern = judging.pattern(&head.0, entry.more.head_len(entry.len)).or(pattern);
            }
        }
        self.parts.rejected |= judge_each(others, other_entries, judging);
        self.parts.alike = alike && others.iter().all(|head| head.0.first_chunk() == first);
    }
}

/// Rejects those of the frames that may not pass; whether there are any.
#[inline(always)]
fn judge_each(heads: &[Head], entries: &mut [Entry], judging: &mut impl Judge) -> bool {
    let mut rejected = false;
    for (head, entry) in heads.iter().zip(entries) {
        if let Err(reason) = judging.judge(&head.0, entry.more.head_len(entry.len)) {
            entry.destination = Packed(Packed::REJECTED | reason as u32);
            rejected = true;
        }
    }
    rejected
}
