//! The VLANs of a batch's frames.

use ringway_memory::{HEAD_BYTES, Head};

use super::destination::Packed;
use super::storage::Batch;
use crate::frame::{Class, DropReason};

/// Frames that are looked at together.
const ROW: usize = 8;

impl Batch<'_> {
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
