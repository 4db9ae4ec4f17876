//! Adding frames to a batch.

use ringway_memory::{HEAD_BYTES, Head, View, read_heads};

use super::entry::{EMPTY, Entry, Extras};
use super::frame::Frame;
use super::storage::{Batch, MIN_FRAME};
use crate::frame::tunnel::{self, MOST_HEADERS};
use crate::frame::{Accepts, DropReason, Gso, Offload, Tunnel, headers};

/// Most pieces of a frame behind its first 128 bytes. Software offload may add a few more.
const MAX_RESTS: usize = 250;
/// Bytes that a segment counts towards the byte limit of a batch, for the work of cutting it.
pub(super) const SEGMENT_COST: u64 = 512;

impl<'m> Batch<'m> {
    /// Adds a frame that lies in one piece: the first `len` bytes of `buffer`. The caller has checked `room`.
    /// A frame that cannot be forwarded is counted instead.
    #[inline]
    pub fn push(&mut self, buffer: View<'m>, len: usize) {
        if len < MIN_FRAME {
            self.refuse(DropReason::Runt);
            return;
        }
        let (Some(head), Some(entry)) =
            (self.parts.heads.get_mut(self.parts.count), self.parts.entries.get_mut(self.parts.count))
        else {
            return;
        };
        let first_rest = self.rests.len() as u32;
        let mut extras = Extras::NOTHING;
        if len > HEAD_BYTES {
            let Some(rest) = buffer.sub(HEAD_BYTES, len - HEAD_BYTES) else {
                self.refuse(DropReason::BadLength);
                return;
            };
            self.rests.push(rest);
            extras = Extras::new(HEAD_BYTES, 1, None);
        }
        buffer.read_head(len, head);
        *entry = Entry { len: len as u32, first_rest, extras, ..EMPTY };
        self.parts.count += 1;
        self.parts.bytes += len as u64;
    }

    /// Adds frames that lie in one piece each, in order, while there is room. Frames must have 14 bytes or more: a
    /// shorter one ends the row. Returns how many frames were added.
    #[inline(always)]
    pub fn fill(&mut self, frames: &[View<'m>]) -> usize {
        let (first, count) = (self.parts.count, frames.len().min(self.room()));
        let (mut others, mut bytes) = (false, 0);
        for (entry, frame) in self.parts.entries[first..][..count].iter_mut().zip(frames) {
            others |= !(MIN_FRAME..=HEAD_BYTES).contains(&frame.len());
            bytes += frame.len() as u64;
            *entry = Entry { len: frame.len() as u32, ..EMPTY };
        }
        if others {
            return self.fill_from_buffers(frames.iter().map(|frame| (*frame, frame.len())));
        }
        read_heads(&frames[..count], &mut self.parts.heads[first..]);
        self.parts.count += count;
        self.parts.bytes += bytes;
        count
    }

    /// Adds frames that are the first bytes of a buffer each, in order, while there is room. `frames` gives each buffer
    /// and the frame's length. A frame shorter than 14 bytes or longer than its buffer ends the row. Returns how many
    /// frames were added.
    #[inline(always)]
    pub fn fill_from_buffers(&mut self, frames: impl Iterator<Item = (View<'m>, usize)>) -> usize {
        let (first, end) = (self.parts.count, self.parts.count + self.room());
        let budget = self.parts.max_bytes.saturating_sub(self.parts.bytes);
        let (mut count, mut bytes) = (0, 0);
        let places = self.parts.heads[first..end].iter_mut().zip(&mut self.parts.entries[first..end]);
        for ((head, entry), (buffer, len)) in places.zip(frames) {
            if len < MIN_FRAME || len > buffer.len() {
                break;
            }
            *entry = Entry { len: len as u32, ..EMPTY };
            if len > HEAD_BYTES {
                let Some(rest) = buffer.sub(HEAD_BYTES, len - HEAD_BYTES).filter(|_| bytes + len as u64 <= budget)
                else {
                    break;
                };
                (entry.first_rest, entry.extras) = (self.rests.len() as u32, Extras::new(HEAD_BYTES, 1, None));
                self.rests.push(rest);
            }
            buffer.read_head(len, head);
            bytes += len as u64;
            count += 1;
        }
        self.parts.count += count;
        self.parts.bytes += bytes;
        count
    }

    /// Adds a frame that lies in several pieces, in order. The caller has checked `room`. Extras than 250 pieces behind the
    /// first 128 bytes are refused.
    pub fn push_pieces(&mut self, pieces: impl IntoIterator<Item = View<'m>, IntoIter: Clone>) {
        let pieces = pieces.into_iter();
        let len: usize = pieces.clone().map(|piece| piece.len()).sum();
        if len < MIN_FRAME {
            self.refuse(DropReason::Runt);
            return;
        }
        let (Some(head), Some(entry)) =
            (self.parts.heads.get_mut(self.parts.count), self.parts.entries.get_mut(self.parts.count))
        else {
            return;
        };
        let first_rest = self.rests.len();
        let mut head_len = 0;
        for piece in pieces {
            let part = piece.len().min(HEAD_BYTES - head_len);
            if part > 0 && !piece.read(&mut head.0[head_len..head_len + part]) {
                continue;
            }
            head_len += part;
            if let Some(rest) = piece.sub(part, piece.len() - part).filter(|rest| rest.len() > 0) {
                self.rests.push(rest);
            }
        }
        let rests = self.rests.len() - first_rest;
        if rests > MAX_RESTS {
            self.rests.truncate(first_rest);
            self.refuse(DropReason::Oversize);
            return;
        }
        let extras = Extras::new(head_len, rests, None);
        *entry = Entry { len: len as u32, first_rest: first_rest as u32, extras, ..EMPTY };
        self.parts.count += 1;
        self.parts.bytes += len as u64;
    }

    /// Adds a frame with an offload that lies in one piece: the first `len` bytes of `buffer`. The caller has checked
    /// `room`. A frame that contradicts its offload is refused.
    pub fn push_offloaded(&mut self, buffer: View<'m>, len: usize, offload: Offload) {
        let index = self.parts.count;
        self.push(buffer, len);
        self.attach(index, offload);
    }

    /// Adds a frame with an offload that lies in several pieces, in order ([`Batch::push_pieces`]). A frame that
    /// contradicts its offload is refused.
    pub fn push_pieces_offloaded(
        &mut self,
        pieces: impl IntoIterator<Item = View<'m>, IntoIter: Clone>,
        offload: Offload,
    ) {
        let index = self.parts.count;
        self.push_pieces(pieces);
        self.attach(index, offload);
    }

    /// Returns the place for a frame that is built in the batch: its first bytes, and the list to append views of the
    /// rest to. The caller has checked `room`.
    #[inline]
    pub fn draft(&mut self) -> (&mut Head, &mut Vec<View<'m>>) {
        self.parts.draft_first_rest = self.rests.len();
        (&mut self.parts.heads[self.parts.count], &mut self.rests)
    }

    /// Adds the frame that was built in the place from [`Batch::draft`]: `head_len` bytes of the head and all views
    /// appended since. The offload is not checked.
    #[inline]
    pub fn seal(&mut self, head_len: usize, offload: Option<Offload>) {
        let rests = &self.rests[self.parts.draft_first_rest..];
        let len = head_len + rests.iter().map(View::len).sum::<usize>();
        let extras = Extras::new(head_len, rests.len(), offload.map(|_| self.parts.offloads.len()));
        if let Some(offload) = offload {
            self.parts.needs |= Accepts::needed_by(&offload);
            self.parts.offloads.push(offload);
        }
        self.parts.entries[self.parts.count] =
            Entry { len: len as u32, first_rest: self.parts.draft_first_rest as u32, extras, ..EMPTY };
        self.parts.count += 1;
        self.parts.bytes += len as u64;
    }

    /// Adds a frame of another batch, as it is. The caller has checked `room`.
    pub(crate) fn push_copy(&mut self, frame: &Frame<'_, 'm>) {
        let (head, rests) = self.draft();
        *head = *frame.head();
        rests.extend_from_slice(frame.rest());
        self.seal(frame.head_len(), frame.offload().copied());
    }

    /// Adds the frame that was built in the place from [`Batch::draft`], with an offload from a client. A frame that
    /// contradicts its offload is refused.
    pub fn seal_offloaded(&mut self, head_len: usize, offload: Offload) {
        let index = self.parts.count;
        self.seal(head_len, None);
        self.attach(index, offload);
    }

    /// Sets the offload of frame `index`, the last one, or removes the frame if it contradicts the offload. Does
    /// nothing if the frame was refused before.
    fn attach(&mut self, index: usize, offload: Offload) {
        if index >= self.parts.count {
            return;
        }
        let frame = self.frame(index);
        let len = frame.len();
        let admitted = match offload.tunnel {
            None => headers::admit(frame.first_bytes(), len, offload),
            Some(tunnel) => admit_tunnelled(&frame, offload, tunnel),
        };
        let entry = &mut self.parts.entries[index];
        match admitted {
            Ok((offload, segments)) => {
                let extras = entry.extras;
                entry.extras = Extras::new(extras.head_len(entry.len), extras.rests(), Some(self.parts.offloads.len()));
                self.parts.offloads.push(offload);
                self.parts.needs |= Accepts::needed_by(&offload);
                self.parts.segmentation_cost += segments as u64 * SEGMENT_COST;
                self.parts.segments += segments - 1;
            }
            Err(reason) => {
                if entry.extras.rests() > 0 {
                    self.rests.truncate(entry.first_rest as usize);
                }
                self.parts.count = index;
                self.parts.bytes -= len as u64;
                self.refuse(reason);
            }
        }
    }

    /// Writes the checksum that frame `index` has as its offload into the private copy of its first bytes. The frame has no offload then. Returns
    /// false if the field is not all in that copy.
    #[cold]
    pub(crate) fn finish_checksum(&mut self, index: usize) -> bool {
        let frame = self.frame(index);
        let Some(offload) = frame.offload().filter(|offload| offload.gso == Gso::None) else { return false };
        let (start, head_len) = (usize::from(offload.csum_start), frame.head_len());
        let (field, value) = (start + usize::from(offload.csum_offset), frame.sum_from(start).checksum());
        let head = &mut self.parts.heads[index].0[..head_len];
        let Some(bytes) = head.get_mut(field..field + value.len()) else { return false };
        bytes.copy_from_slice(&value);
        let entry = &mut self.parts.entries[index];
        entry.extras = Extras::new(head_len, entry.extras.rests(), None);
        true
    }

    /// Counts a frame that the port could not put into the batch.
    #[cold]
    pub fn refuse(&mut self, reason: DropReason) {
        self.refuse_lost(reason, 1);
        self.parts.refused.taken += 1;
    }

    /// Counts frames that were lost before the port could take them. Together they take the place of one frame in the batch,
    /// and are no frames that the port has taken.
    #[cold]
    pub fn refuse_lost(&mut self, reason: DropReason, frames: u32) {
        let count = &mut self.parts.refused.counts[reason as usize];
        *count = count.saturating_add(frames);
        self.parts.refused.places += 1;
    }
}

#[cold]
fn admit_tunnelled(frame: &Frame<'_, '_>, offload: Offload, tunnel: Tunnel) -> Result<(Offload, usize), DropReason> {
    let mut head = [0; MOST_HEADERS];
    let there = frame.read(&mut head);
    tunnel::admit(&head[..there], frame.len(), offload, tunnel)
}
