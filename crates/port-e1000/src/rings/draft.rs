//! A frame of a transmit ring on its way into a batch.

use ringway_memory::{HEAD_BYTES, View};
use ringway_port::gather::{Gather, Pieces};
use ringway_switch::{Batch, DropReason};

use super::context::{Contexts, Sums, TAG};
use super::descriptor::{IC, IFCS, Kind, Transmitted, VLE};
use super::settings::TransmitSettings;

/// Shortest frame in bytes without frame check sequence.
pub(super) const SHORTEST: usize = 60;
/// Bytes of an Ethernet header.
pub(super) const HEADER: usize = 14;
/// Bytes of both addresses, which precede a VLAN tag.
const ADDRESSES: usize = 12;
/// Bytes of a frame check sequence.
const FCS: usize = 4;

/// What a frame's descriptors and the registers request for the frame.
pub(super) struct FrameRequest<'a> {
    pub(super) first: Transmitted,
    pub(super) last: Transmitted,
    pub(super) contexts: &'a Contexts,
    pub(super) settings: &'a TransmitSettings,
}

/// The result of [`FrameRequest::push`].
pub(super) enum Pushed {
    /// The frame is in the batch, was counted as refused, or is empty.
    Whole,
    /// The frame needs segmentation.
    Cut {
        /// True if the frame differs from its context.
        failed: bool,
    },
}

/// The bytes of a frame.
struct Bytes<'a, 'm> {
    /// The frame is the first `len` bytes of these.
    pieces: &'a [View<'m>],
    len: usize,
    /// Whether a short frame is padded.
    pad: bool,
}

impl FrameRequest<'_> {
    /// Adds the frame to the batch. Returns `None` if the frame has to wait for a bounce buffer.
    pub(super) fn push<'m>(&self, mut gather: Gather<'m>, batch: &mut Batch<'m>) -> Option<Pushed> {
        let mut len = gather.len();
        let is_nothing = len == 0;
        if !self.last.has(IFCS) {
            // The driver has appended the frame check sequence itself.
            len = len.saturating_sub(FCS);
        }
        // In a data descriptor, the bit of IC is TSE.
        let is_cut = self.first.kind() == Kind::Data && self.first.has(IC);
        let sums = if is_cut { Sums::default() } else { Sums::asked(self.first, self.last, self.contexts, len) };
        let is_usual = sums.is_usual(len);
        if !is_usual {
            gather.copy_together();
        }
        let pieces = match gather.pieces() {
            Pieces::Wait => return None,
            Pieces::Are(pieces) => pieces,
            Pieces::TooLong => {
                batch.refuse(DropReason::Oversize);
                return Some(if is_cut { Pushed::Cut { failed: true } } else { Pushed::Whole });
            }
        };
        if is_cut {
            return Some(self.push_cut(pieces, len, batch));
        }
        let refused = match len {
            _ if is_nothing => return Some(Pushed::Whole),
            ..HEADER => Some(DropReason::Runt),
            _ if len > self.settings.longest => Some(DropReason::Oversize),
            _ => None,
        };
        if let Some(reason) = refused {
            batch.refuse(reason);
            return Some(Pushed::Whole);
        }
        if !is_usual
            && let Some(frame) = pieces.first().and_then(|piece| piece.sub(0, len))
            && let Err(reason) = sums.insert(frame)
        {
            batch.refuse(reason);
            return Some(Pushed::Whole);
        }
        let sums = if is_usual { sums } else { Sums::default() };
        let finish = |head: &mut [u8], shift| if sums.is_empty() { Ok(None) } else { sums.finish(head, shift) };
        let bytes = Bytes { pieces, len, pad: self.settings.pad };
        match self.draft(bytes, self.last, batch, finish) {
            (head_len, Ok(None)) => batch.seal(head_len, None),
            (head_len, Ok(Some(offload))) => batch.seal_offloaded(head_len, offload),
            (_, Err(reason)) => batch.refuse(reason),
        }
        Some(Pushed::Whole)
    }

    /// Adds a frame that needs segmentation.
    fn push_cut<'m>(&self, pieces: &[View<'m>], len: usize, batch: &mut Batch<'m>) -> Pushed {
        let context = self.contexts.segments;
        let prepare = |head: &mut [u8], shift| context.prepare(head, len, shift);
        // The first descriptor gives the VLAN tag of all segments (SDM 3.3.7.1).
        match self.draft(Bytes { pieces, len, pad: false }, self.first, batch, prepare) {
            (_, Err(reason)) => {
                batch.refuse(reason);
                Pushed::Cut { failed: true }
            }
            (head_len, Ok(offload)) => {
                batch.seal_offloaded(head_len, offload);
                Pushed::Cut { failed: !context.fits(len) }
            }
        }
    }

    /// Drafts a frame in the batch, with the VLAN tag that `tagged` requests. `patch` may change the private head; its second argument is the number of bytes that were inserted
    /// there. Returns the number of bytes in the head, and the result of `patch`.
    fn draft<'m, T>(
        &self,
        bytes: Bytes<'_, 'm>,
        tagged: Transmitted,
        batch: &mut Batch<'m>,
        patch: impl FnOnce(&mut [u8], usize) -> T,
    ) -> (usize, T) {
        let Bytes { pieces, len, pad } = bytes;
        let tag = self.settings.vlan.filter(|_| tagged.has(VLE)).map(|kind| {
            let ([a, b], [c, d]) = (kind.to_be_bytes(), tagged.special().to_be_bytes());
            [a, b, c, d]
        });
        let (head, rests) = batch.draft();
        let (mut at, mut left) = (0, len);
        for piece in pieces {
            let mut used = 0;
            while used < piece.len() && left > 0 && at < HEAD_BYTES {
                let end = if at < ADDRESSES && tag.is_some() { ADDRESSES } else { HEAD_BYTES };
                let part = (piece.len() - used).min(left).min(end - at);
                let _ = piece.sub(used, part).is_some_and(|from| from.read(&mut head.0[at..at + part]));
                (at, used, left) = (at + part, used + part, left - part);
                if let (ADDRESSES, Some(tag)) = (at, tag) {
                    head.0[at..at + TAG].copy_from_slice(&tag);
                    at += TAG;
                }
            }
            let part = (piece.len() - used).min(left);
            if part > 0 {
                rests.extend(piece.sub(used, part));
                left -= part;
            }
        }
        let patched = patch(head.0.get_mut(..at).unwrap_or(&mut []), tag.map_or(0, |_| TAG));
        // Segmented frames are padded later, where a segment needs it: the last segment may be short, too.
        if pad && at < SHORTEST {
            head.0[at..SHORTEST].fill(0);
            at = SHORTEST;
        }
        (at, patched)
    }
}
