//! What a batch's frames may do, by their first bytes.

use ringway_memory::{HEAD_BYTES, Head};

use super::frame::{self, Entry};
use super::place::Packed;
use super::{Batch, MIN_FRAME};
use crate::counters::DropReason;
use crate::policy::{Class, Judging};

/// Frames whose heads are compared together.
const ROW: usize = 8;
/// After so many rows that were not alike, frames are looked at one by one.
const MOST_UNLIKE: usize = 2;

impl Batch<'_> {
    /// Rejects the frames that may not pass by their first bytes: all of a frame, or 128. Frames that are like one that
    /// passed are not looked at one by one.
    #[inline]
    pub(crate) fn judge(&mut self, judging: &mut Judging<'_>) {
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
                let long = frame::leading_long(&entries[row..], pattern.len());
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

    /// Gives every frame the VLAN that `classify` finds in its first bytes, which it may change: what is delivered is what
    /// is there then. Rejects those that have none. Frames without tags are in `untagged`, if that is one.
    #[inline]
    pub(crate) fn classify(
        &mut self,
        untagged: Option<Class>,
        classify: impl FnMut(&mut [u8; HEAD_BYTES], usize) -> Result<Class, DropReason>,
    ) {
        // Most sources send no tags at all.
        let heads = &self.parts.heads[..if self.parts.alike { 1 } else { self.parts.count }];
        let (rows, others) = heads.as_chunks::<ROW>();
        let has_tag = |head: &Head| Class::has_tag(&head.0);
        let tagged = rows.iter().any(|row| row.iter().any(has_tag)) || others.iter().any(has_tag);
        self.parts.class = untagged.filter(|_| !tagged);
        if self.parts.class.is_none() {
            self.classify_each(classify);
        }
    }

    #[inline(never)]
    fn classify_each(&mut self, mut classify: impl FnMut(&mut [u8; HEAD_BYTES], usize) -> Result<Class, DropReason>) {
        let mut one = None;
        let mut several = false;
        let frames = self
            .parts
            .heads
            .iter_mut()
            .zip(&mut self.parts.entries[..])
            .zip(&mut self.parts.classes)
            .take(self.parts.count);
        for ((head, entry), place) in frames {
            if self.parts.rejected && entry.destination.0 >= Packed::REJECTED {
                continue;
            }
            match classify(&mut head.0, entry.more.head_len(entry.len)) {
                Ok(class) => {
                    several |= *one.get_or_insert(class) != class;
                    *place = class;
                }
                Err(reason) => {
                    entry.destination = Packed(Packed::REJECTED | reason as u32);
                    self.parts.rejected = true;
                }
            }
        }
        self.parts.class = one.filter(|_| !several);
    }

    /// The VLAN of every frame that is not rejected, where they are in one and alike.
    #[inline]
    pub(crate) fn only_class(&self) -> Option<Class> {
        self.parts.class
    }

    /// The VLAN of frame `index`, where the switch has any.
    #[inline]
    pub(crate) fn class(&self, index: usize) -> Class {
        self.parts.class.unwrap_or(self.parts.classes[index])
    }
}

/// Rejects those of the frames that may not pass; whether there are any.
#[inline(always)]
fn judge_each(heads: &[Head], entries: &mut [Entry], judging: &mut Judging<'_>) -> bool {
    let mut rejected = false;
    for (head, entry) in heads.iter().zip(entries) {
        if let Err(reason) = judging.judge(&head.0, entry.more.head_len(entry.len)) {
            entry.destination = Packed(Packed::REJECTED | reason as u32);
            rejected = true;
        }
    }
    rejected
}
