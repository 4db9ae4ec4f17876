//! Frames on their way through one pass.

use ringway_memory::{HEAD_BYTES, Head, Mapping, View, recycled};

use super::entry::{EMPTY, Entry, More};
use super::losses::Losses;
use crate::frame::{Accepts, Class, DropReason, Offload};

/// Most frames in a batch.
pub const MAX_BATCH: usize = 1024;
/// Shortest frame: an Ethernet header.
pub(super) const MIN_FRAME: usize = 14;
/// A batch with more bytes is full, so that no source's turn takes much longer than another's.
const MAX_BYTES: u64 = 2 << 20;
/// Longest frame that any port takes, in bytes.
pub(super) const LONGEST: u64 = (64 << 10) + 128;
/// Most bytes of all frames together: one may begin when the batch is all but full.
pub(crate) const MOST_BYTES: usize = (MAX_BYTES + LONGEST) as usize;

/// Frames collected from one port: of each a private copy of its first 128 bytes, its length, and views of the rest,
/// which is still in the client's memory.
#[derive(Debug)]
pub struct Batch<'m> {
    /// All but the views, in a box: a batch is moved a few times a pass.
    pub(super) parts: Box<Parts>,
    pub(super) rests: Vec<View<'m>>,
}

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) heads: Box<[Head]>,
    pub(super) entries: Box<[Entry]>,
    /// Of each, where the switch has VLANs.
    pub(super) classes: Box<[Class]>,
    /// That of all, if they are alike.
    pub(super) class: Option<Class>,
    /// What the offloads need, together.
    pub(super) needs: Accepts,
    /// Some frame was rejected.
    pub(super) rejected: bool,
    /// All have the Ethernet header of the first.
    pub(super) alike: bool,
    /// All go where the first goes.
    pub(super) together: bool,
    /// The source may have more, although there is room.
    pub(super) more: bool,
    /// It waited for its limit.
    pub(super) waited: bool,
    pub(super) count: usize,
    pub(super) limit: usize,
    /// With more frames, segments counted, it is full.
    pub(super) max_frames: usize,
    /// Segments but for the first of each frame.
    pub(super) segments: usize,
    /// With more bytes it is full.
    pub(super) max_bytes: u64,
    /// How long its frames may be, where it has to end at `max_bytes` to a frame; 0: it need not.
    pub(super) longest: u64,
    pub(super) bytes: u64,
    /// What segmentation may cost, as bytes.
    pub(super) extra: u64,
    /// Where the rests of the frame that is drafted begin.
    pub(super) drafted: usize,
    pub(super) offloads: Vec<Offload>,
    pub(super) refused: Refused,
    pub(super) losses: Losses,
}

/// Frames that did not make it into the batch, by reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) counts: [u32; DropReason::ALL.len()],
    pub(super) total: usize,
}

impl Refused {
    const NONE: Refused = Refused { counts: [0; DropReason::ALL.len()], total: 0 };
}

/// The memory of a batch between two passes.
#[derive(Debug)]
pub struct BatchStorage(Batch<'static>);

impl BatchStorage {
    /// Memory for up to `limit` frames (1 to [`MAX_BATCH`]; values outside are brought to the nearest).
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, MAX_BATCH);
        let parts = Parts {
            heads: vec![Head::default(); limit].into(),
            entries: vec![EMPTY; limit].into(),
            classes: vec![Class::default(); limit].into(),
            class: None,
            needs: Accepts::NOTHING,
            rejected: false,
            alike: false,
            together: false,
            more: false,
            waited: false,
            count: 0,
            limit,
            max_frames: usize::MAX,
            segments: 0,
            max_bytes: MAX_BYTES,
            longest: 0,
            bytes: 0,
            extra: 0,
            drafted: 0,
            offloads: Vec::with_capacity(limit),
            refused: Refused::NONE,
            losses: Losses::new(limit),
        };
        // See `room`: a frame of most pieces may follow the last look, and one more piece per other frame.
        let rests = Vec::with_capacity(limit * 5 + usize::from(u8::MAX));
        Self(Batch { parts: Box::new(parts), rests })
    }

    /// An empty batch that may hold views of any life.
    #[inline(always)]
    #[must_use]
    pub fn into_batch<'m>(self) -> Batch<'m> {
        let Batch { mut parts, rests } = self.0;
        parts.clear();
        Batch { parts, rests: recycled(rests) }
    }
}

impl Parts {
    #[inline(always)]
    fn clear(&mut self) {
        (self.class, self.needs, self.rejected, self.more) = (None, Accepts::NOTHING, false, false);
        (self.alike, self.together, self.waited) = (false, false, false);
        (self.count, self.limit) = (0, self.entries.len());
        (self.max_frames, self.segments) = (usize::MAX, 0);
        (self.max_bytes, self.longest) = (MAX_BYTES, 0);
        (self.bytes, self.extra, self.drafted) = (0, 0, 0);
        self.offloads.clear();
        if self.refused.total > 0 {
            self.refused = Refused::NONE;
        }
    }
}

impl<'m> Batch<'m> {
    /// Gives the memory back for the next pass.
    #[inline(always)]
    #[must_use]
    pub fn into_storage(self) -> BatchStorage {
        BatchStorage(Batch { parts: self.parts, rests: recycled(self.rests) })
    }

    /// Frames in the batch.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.count
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.count == 0
    }

    /// Bytes of all frames in the batch.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.bytes
    }

    /// What the offloads of all frames need, together.
    #[inline]
    pub(crate) fn needs(&self) -> Accepts {
        self.parts.needs
    }

    /// Copies what is behind the first bytes of the frames to `area`, in one piece each, and has them lie there. What does not
    /// fit stays where it is.
    #[cold]
    pub(crate) fn copy_rests_to(&mut self, area: &'m Mapping) {
        let (mut used, mut kept) = (0, 0);
        for entry in &mut self.parts.entries[..self.parts.count] {
            let (first, count) = (entry.first_rest as usize, entry.more.rests());
            // Also where there is no rest: it is asked for all the same, and must be inside of what is left.
            entry.first_rest = kept as u32;
            if count == 0 {
                continue;
            }
            let head_len = entry.more.head_len(entry.len);
            let copy = area.view(used, entry.len as usize - head_len);
            match copy {
                Some(copy) => {
                    let mut at = 0;
                    for rest in &self.rests[first..first + count] {
                        at += copy.sub(at, rest.len()).filter(|to| to.copy_from(*rest)).map_or(0, |to| to.len());
                    }
                    used += copy.len();
                    self.rests[kept] = copy;
                    entry.more = More::new(head_len, 1, entry.more.offload());
                    kept += 1;
                }
                None => {
                    self.rests.copy_within(first..first + count, kept);
                    kept += count;
                }
            }
        }
        self.rests.truncate(kept);
    }

    /// What was refused while collecting.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        let all: &[DropReason] = if self.parts.refused.total > 0 { DropReason::ALL } else { &[] };
        all.iter()
            .map(|&reason| (reason, u64::from(self.parts.refused.counts[reason as usize])))
            .filter(|&(_, n)| n > 0)
    }

    /// The private copy of the beginning of frame `index`. Bytes beyond the frame are unspecified.
    #[inline]
    #[must_use]
    pub fn head(&self, index: usize) -> &[u8; HEAD_BYTES] {
        &self.parts.heads[index].0
    }

    /// Takes the frames from `len` on out of the batch.
    pub fn truncate(&mut self, len: usize) {
        while self.parts.count > len {
            self.parts.count -= 1;
            self.parts.bytes -= u64::from(self.parts.entries[self.parts.count].len);
        }
    }

    /// Bytes of frame `index`.
    #[inline]
    #[must_use]
    pub fn frame_len(&self, index: usize) -> usize {
        self.parts.entries[index].len as usize
    }
}
