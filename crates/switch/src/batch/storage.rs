//! The frames of one pass, and the memory for them.

use ringway_memory::{HEAD_BYTES, Head, Mapping, View, recycle};

use super::entry::{EMPTY, Entry, Extras};
use super::lost_frames::LostFrames;
use super::settling::Settling;
use crate::frame::{Accepts, Class, DropReason, Offload};

/// Most frames in a batch.
pub const MAX_BATCH: usize = 1024;
/// Shortest frame: an Ethernet header.
pub(super) const MIN_FRAME: usize = 14;
/// A batch with more bytes is full, so that the turns of all sources take about equally long.
pub(crate) const MAX_BYTES: u64 = 2 << 20;
/// Longest frame that any port takes, in bytes.
pub(super) const LONGEST: u64 = (64 << 10) + 128;
/// Most bytes of all frames of a batch: the last frame may begin when the batch is nearly full.
pub(crate) const MOST_BYTES: usize = (MAX_BYTES + LONGEST) as usize;

/// Frames collected from one port. Each has a private copy of its first 128 bytes, its length, and views of the rest,
/// which is still in the client's memory.
#[derive(Debug)]
pub struct Batch<'m> {
    /// All but the views. Boxed, because a batch is moved a few times a pass.
    pub(super) parts: Box<Parts>,
    pub(super) rests: Vec<View<'m>>,
}

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) heads: Box<[Head]>,
    pub(super) entries: Box<[Entry]>,
    /// The class of each frame, if the switch has VLANs.
    pub(super) classes: Box<[Class]>,
    /// The class of all frames, if it is the same.
    pub(super) class: Option<Class>,
    /// The union of what the frames' offloads need.
    pub(super) needs: Accepts,
    /// True if some frame was rejected.
    pub(super) rejected: bool,
    /// True if all frames have the Ethernet header of the first.
    pub(super) same_header: bool,
    /// True if all frames have the destination of the first.
    pub(super) same_destination: bool,
    /// True if the source may have more frames although there is room.
    pub(super) source_has_more: bool,
    /// True if most frames of the source wait for a limit.
    pub(super) source_waits: bool,
    /// True if no address is learned from the frames.
    pub(super) is_unlearned: bool,
    pub(super) count: usize,
    pub(super) limit: usize,
    /// Most frames, each segment counted as a frame.
    pub(super) max_frames: usize,
    /// Segments, without the first of each frame.
    pub(super) segments: usize,
    /// With more bytes the batch is full.
    pub(super) max_bytes: u64,
    /// Longest possible frame, if the batch must not pass `max_bytes` by a whole frame; otherwise 0.
    pub(super) longest_frame: u64,
    pub(super) bytes: u64,
    /// Descriptors and pieces of chains that the source had to follow.
    pub(super) steps: u64,
    /// The cost of segmentation, in bytes.
    pub(super) segmentation_cost: u64,
    /// Index of the first view of the frame that is being built.
    pub(super) draft_first_rest: usize,
    pub(super) offloads: Vec<Offload>,
    pub(super) refused: Refused,
    pub(super) losses: LostFrames,
    /// Frames whose source addresses are learned when they leave their sender's ring.
    pub(super) sources: Vec<u16>,
    /// A forwarding program's verdicts. `None` until a program has a batch.
    pub(super) settling: Option<Box<Settling>>,
}

/// Number of refused frames by reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) counts: [u32; DropReason::ALL.len()],
    /// Places that they take in the batch.
    pub(super) places: usize,
    /// Those that the port took from its client. The others were lost before.
    pub(super) taken: usize,
}

impl Refused {
    const NONE: Refused = Refused { counts: [0; DropReason::ALL.len()], places: 0, taken: 0 };
}

/// The memory of a batch between two passes.
#[derive(Debug)]
pub struct BatchStorage(pub(super) Batch<'static>);

impl BatchStorage {
    /// Memory for up to `limit` frames. `limit` is clamped to 1..=[`MAX_BATCH`].
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
            same_header: false,
            same_destination: false,
            source_has_more: false,
            source_waits: false,
            is_unlearned: false,
            count: 0,
            limit,
            max_frames: usize::MAX,
            segments: 0,
            max_bytes: MAX_BYTES,
            longest_frame: 0,
            bytes: 0,
            steps: 0,
            segmentation_cost: 0,
            draft_first_rest: 0,
            offloads: Vec::with_capacity(limit),
            refused: Refused::NONE,
            losses: LostFrames::new(limit),
            sources: Vec::with_capacity(limit),
            settling: None,
        };
        // `room` allows 4 views a frame. A frame with the most pieces may follow, and each frame may get one more view.
        let mut rests = vec![View::private(&mut []); limit * 5 + usize::from(u8::MAX)];
        // Written once, so that the kernel has brought the memory in.
        rests.clear();
        Self(Batch { parts: Box::new(parts), rests })
    }

    /// Has the kernel bring in the memory that each pass uses.
    #[cold]
    pub(crate) fn make_resident(&self) {
        const PAGE: usize = 4096;
        let parts = &self.0.parts;
        for head in parts.heads.iter().step_by(PAGE / size_of::<Head>()) {
            std::hint::black_box(head.0[0]);
        }
        for entry in parts.entries.iter().step_by(PAGE / size_of::<Entry>()) {
            std::hint::black_box(entry.len);
        }
    }

    /// An empty batch for views of any lifetime.
    #[inline(always)]
    #[must_use]
    pub fn into_batch<'m>(self) -> Batch<'m> {
        let Batch { mut parts, rests } = self.0;
        parts.clear();
        Batch { parts, rests: recycle(rests) }
    }
}

impl Parts {
    #[inline(always)]
    fn clear(&mut self) {
        (self.class, self.needs, self.rejected, self.source_has_more) = (None, Accepts::NOTHING, false, false);
        (self.same_header, self.same_destination, self.source_waits) = (false, false, false);
        (self.is_unlearned, self.count, self.limit) = (false, 0, self.entries.len());
        (self.max_frames, self.segments) = (usize::MAX, 0);
        (self.max_bytes, self.longest_frame) = (MAX_BYTES, 0);
        (self.bytes, self.steps, self.segmentation_cost, self.draft_first_rest) = (0, 0, 0, 0);
        self.offloads.clear();
        if self.refused.places > 0 {
            self.refused = Refused::NONE;
        }
    }
}

impl<'m> Batch<'m> {
    /// Returns the memory for the next pass.
    #[inline(always)]
    #[must_use]
    pub fn into_storage(self) -> BatchStorage {
        BatchStorage(Batch { parts: self.parts, rests: recycle(self.rests) })
    }

    /// Number of frames in the batch.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.count
    }

    /// Returns true if the batch has no frames.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.count == 0
    }

    /// Returns true if a frame can be added whose source address is learned, or is not (netmap's `NS_NO_LEARN`): the
    /// frames of one batch are all of the same kind. The first frame decides.
    pub fn takes_unlearned(&mut self, is_unlearned: bool) -> bool {
        if self.is_empty() {
            self.parts.is_unlearned = is_unlearned;
        }
        self.parts.is_unlearned == is_unlearned
    }

    /// Returns true if no address is learned from the frames of the batch.
    #[inline]
    #[must_use]
    pub fn is_unlearned(&self) -> bool {
        self.parts.is_unlearned
    }

    /// Bytes of all frames in the batch.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.bytes
    }

    /// What a receiver must accept to take all frames as they are.
    #[inline]
    pub(crate) fn needs(&self) -> Accepts {
        self.parts.needs
    }

    /// Copies the rest of each frame to `area`, in one piece each, and makes the frame refer to the copy. A rest that
    /// does not fit stays where it is.
    #[cold]
    pub(crate) fn copy_rests_to(&mut self, area: &'m Mapping) {
        let (mut used, mut kept) = (0, 0);
        for entry in &mut self.parts.entries[..self.parts.count] {
            let (first, count) = (entry.first_rest as usize, entry.extras.rests());
            // Set even if there is no rest: `Frame::rest` takes an empty slice from here, which must be within bounds.
            entry.first_rest = kept as u32;
            if count == 0 {
                continue;
            }
            let head_len = entry.extras.head_len(entry.len);
            let copy = area.view(used, entry.len as usize - head_len);
            match copy {
                Some(copy) => {
                    let mut at = 0;
                    for rest in &self.rests[first..first + count] {
                        at += copy.sub(at, rest.len()).filter(|to| to.copy_from(*rest)).map_or(0, |to| to.len());
                    }
                    used += copy.len();
                    self.rests[kept] = copy;
                    entry.extras = Extras::new(head_len, 1, entry.extras.offload());
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

    /// Returns true if some frame has an offload.
    #[inline(always)]
    pub(crate) fn has_offloads(&self) -> bool {
        !self.parts.offloads.is_empty()
    }

    /// Number of frames that were refused while collecting.
    #[inline(always)]
    pub(crate) fn refused_frames(&self) -> u64 {
        self.parts.refused.taken as u64
    }

    /// The number of refused frames by reason, for reasons with any.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        let all: &[DropReason] = if self.parts.refused.places > 0 { DropReason::ALL } else { &[] };
        all.iter()
            .map(|&reason| (reason, u64::from(self.parts.refused.counts[reason as usize])))
            .filter(|&(_, n)| n > 0)
    }

    /// The private copy of the first bytes of frame `index`. Bytes beyond the frame are unspecified.
    #[inline]
    #[must_use]
    pub fn head(&self, index: usize) -> &[u8; HEAD_BYTES] {
        &self.parts.heads[index].0
    }

    /// The length and the first bytes of the frames from index `first` to before `end`.
    #[inline(always)]
    pub(crate) fn lengths_and_heads(
        &self,
        first: usize,
        end: usize,
    ) -> impl Iterator<Item = (usize, &[u8; HEAD_BYTES])> {
        let (entries, heads) = (&self.parts.entries[first..end], &self.parts.heads[first..end]);
        entries.iter().zip(heads).map(|(entry, head)| (entry.len as usize, &head.0))
    }

    /// Removes the frames from index `len` on.
    pub fn truncate(&mut self, len: usize) {
        while self.parts.count > len {
            self.parts.count -= 1;
            self.parts.bytes -= u64::from(self.parts.entries[self.parts.count].len);
        }
    }

    /// Length of frame `index` in bytes.
    #[inline]
    #[must_use]
    pub fn frame_len(&self, index: usize) -> usize {
        self.parts.entries[index].len as usize
    }
}
