//! The VLANs of a batch's frames.

use ringway_memory::{HEAD_BYTES, Head};

use super::destination::Packed;
use super::storage::Batch;
use crate::frame::{Class, DropReason};

/// Frames that are checked at once.
const ROW: usize = 8;

impl Batch<'_> {
    /// Sets the VLAN of every frame to the one that `classify` finds in its first bytes, and rejects frames for which
    /// it returns an error. `classify` may change these bytes, and the changed bytes are delivered. If no frame has a
    /// tag and `untagged` is a VLAN, all frames are in that VLAN and `classify` is not called.
    #[inline]
    pub(crate) fn classify(
        &mut self,
        untagged: Option<Class>,
        classify: impl FnMut(&mut [u8; HEAD_BYTES], usize) -> Result<Class, DropReason>,
    ) {
        // Most sources send no tags at all.
        let heads = &self.parts.heads[..if self.parts.same_header { 1 } else { self.parts.count }];
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
            match classify(&mut head.0, entry.extras.head_len(entry.len)) {
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

    /// The class of all frames that are not rejected, if they have the same class.
    #[inline]
    pub(crate) fn only_class(&self) -> Option<Class> {
        self.parts.class
    }

    /// The class of frame `index`. Only meaningful if the switch has VLANs.
    #[inline]
    pub(crate) fn class(&self, index: usize) -> Class {
        self.parts.class.unwrap_or(self.parts.classes[index])
    }
}
