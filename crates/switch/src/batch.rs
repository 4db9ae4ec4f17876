//! Frames on their way through one pass.

mod frame;
mod judge;
mod losses;
mod place;

use ringway_memory::{HEAD_BYTES, Head, Mapping, View, read_heads, recycled};

pub(crate) use self::frame::AllFrames;
use self::frame::{EMPTY, Entry, More};
pub use self::frame::{Frame, InTurn};
use self::losses::Losses;
pub use self::place::Destination;
use crate::counters::DropReason;
use crate::offload::{self, Accepts, Offload};
use crate::policy::{Cause, Class, Cost, Exhausted};

/// Most frames in a batch.
pub const MAX_BATCH: usize = 1024;
/// Shortest frame: an Ethernet header.
const MIN_FRAME: usize = 14;
/// Most pieces of a frame behind its first 128 bytes. Finishing it may take a few more.
const MAX_RESTS: usize = 250;
/// A batch with more bytes is full, so that no source's turn takes much longer than another's.
const MAX_BYTES: u64 = 2 << 20;
/// What a segment to be cut counts towards that, in bytes.
const SEGMENT_COST: u64 = 512;
/// Longest frame that any port takes, in bytes.
const LONGEST: u64 = (64 << 10) + 128;
/// Most bytes of all frames together: one may begin when the batch is all but full.
pub(crate) const MOST_BYTES: usize = (MAX_BYTES + LONGEST) as usize;

/// Frames collected from one port: of each a private copy of its first 128 bytes, its length, and views of the rest,
/// which is still in the client's memory.
#[derive(Debug)]
pub struct Batch<'m> {
    /// All but the views, in a box: a batch is moved a few times a pass.
    parts: Box<Parts>,
    rests: Vec<View<'m>>,
}

#[derive(Debug)]
struct Parts {
    heads: Box<[Head]>,
    entries: Box<[Entry]>,
    /// Of each, where the switch has VLANs.
    classes: Box<[Class]>,
    /// That of all, if they are alike.
    class: Option<Class>,
    /// What the offloads need, together.
    needs: Accepts,
    /// Some frame was rejected.
    rejected: bool,
    /// All have the Ethernet header of the first.
    alike: bool,
    /// All go where the first goes.
    together: bool,
    /// The source may have more, although there is room.
    more: bool,
    /// It waited for its limit.
    waited: bool,
    count: usize,
    limit: usize,
    /// With more frames, segments counted, it is full.
    max_frames: usize,
    /// Segments but for the first of each frame.
    segments: usize,
    /// With more bytes it is full.
    max_bytes: u64,
    /// How long its frames may be, where it has to end at `max_bytes` to a frame; 0: it need not.
    longest: u64,
    bytes: u64,
    /// What segmentation may cost, as bytes.
    extra: u64,
    /// Where the rests of the frame that is drafted begin.
    drafted: usize,
    offloads: Vec<Offload>,
    refused: Refused,
    losses: Losses,
}

/// Frames that did not make it into the batch, by reason.
#[derive(Clone, Copy, Debug)]
struct Refused {
    counts: [u32; DropReason::ALL.len()],
    total: usize,
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

    /// Frames that may still be collected. One that is refused takes its share of the source's turn, too.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        // When views of the rest run short, or there is much to copy, the batch ends early.
        if self.rests.len() > self.parts.entries.len() * 4 || self.parts.bytes + self.parts.extra > self.parts.max_bytes
        {
            return 0;
        }
        let room = self.parts.limit.saturating_sub(self.parts.count + self.parts.refused.total);
        let room = room.min(self.parts.max_frames.saturating_sub(self.parts.count + self.parts.segments));
        match (self.parts.max_bytes - self.parts.bytes - self.parts.extra).checked_div(self.parts.longest) {
            None => room,
            Some(frames) => room.min(frames as usize + 1),
        }
    }

    /// Notes that the source may have more frames, although there is room for them.
    #[inline]
    pub fn note_more(&mut self) {
        self.parts.more = true;
    }

    /// Whether that was noted.
    #[inline]
    pub(crate) fn may_be_more(&self) -> bool {
        self.parts.more
    }

    /// Notes that the source waits for a limit with most of what it sends.
    pub(crate) fn note_waited(&mut self) {
        self.parts.waited = true;
    }

    /// Has the batch end before a frame that would begin after `bytes` bytes (at least 1) or `frames` frames, as they are on a
    /// wire.
    pub(crate) fn bound(&mut self, bytes: u64, frames: u64) {
        let frames = usize::try_from(frames).unwrap_or(usize::MAX);
        (self.parts.limit, self.parts.max_frames) = (self.parts.limit.min(frames), self.parts.max_frames.min(frames));
        if bytes <= self.parts.limit as u64 * LONGEST {
            (self.parts.max_bytes, self.parts.longest) = (self.parts.max_bytes.min(bytes - 1), LONGEST);
        }
    }

    /// Bytes of all frames in the batch.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.bytes
    }

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
        let mut more = More::NOTHING;
        if len > HEAD_BYTES {
            let Some(rest) = buffer.sub(HEAD_BYTES, len - HEAD_BYTES) else {
                self.refuse(DropReason::BadLength);
                return;
            };
            self.rests.push(rest);
            more = More::new(HEAD_BYTES, 1, None);
        }
        buffer.read_head(len, head);
        *entry = Entry { len: len as u32, first_rest, more, ..EMPTY };
        self.parts.count += 1;
        self.parts.bytes += len as u64;
    }

    /// Adds frames that lie in one piece each, one after the other, as long as there is room. They have 14 bytes or more: a
    /// shorter one ends the row as if there were no more. Returns how many were added.
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

    /// As [`Batch::fill`], for frames that are the first bytes of a buffer: so many of them.
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
                (entry.first_rest, entry.more) = (self.rests.len() as u32, More::new(HEAD_BYTES, 1, None));
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

    /// Adds a frame that lies in several pieces, in order. The caller has checked `room`. More than 250 pieces behind the
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
        let more = More::new(head_len, rests, None);
        *entry = Entry { len: len as u32, first_rest: first_rest as u32, more, ..EMPTY };
        self.parts.count += 1;
        self.parts.bytes += len as u64;
    }

    /// As [`Batch::push`], for a frame with work left to do. One that is not what its offload says is refused.
    pub fn push_offloaded(&mut self, buffer: View<'m>, len: usize, offload: Offload) {
        let index = self.parts.count;
        self.push(buffer, len);
        self.attach(index, offload);
    }

    /// As [`Batch::push_pieces`], for a frame with work left to do.
    pub fn push_pieces_offloaded(
        &mut self,
        pieces: impl IntoIterator<Item = View<'m>, IntoIter: Clone>,
        offload: Offload,
    ) {
        let index = self.parts.count;
        self.push_pieces(pieces);
        self.attach(index, offload);
    }

    /// What the offloads of all frames need, together.
    #[inline]
    pub(crate) fn needs(&self) -> Accepts {
        self.parts.needs
    }

    /// Where the next frame that is made rather than collected is drafted: its first bytes, and the others behind those of
    /// the frames before it. The caller has checked `room`.
    #[inline]
    pub fn draft(&mut self) -> (&mut Head, &mut Vec<View<'m>>) {
        self.parts.drafted = self.rests.len();
        (&mut self.parts.heads[self.parts.count], &mut self.rests)
    }

    /// Adds what was drafted: `head_len` bytes of the head and all views since the frame before. What its offload says is
    /// taken to be right.
    #[inline]
    pub fn seal(&mut self, head_len: usize, offload: Option<Offload>) {
        let rests = &self.rests[self.parts.drafted..];
        let len = head_len + rests.iter().map(View::len).sum::<usize>();
        let more = More::new(head_len, rests.len(), offload.map(|_| self.parts.offloads.len()));
        if let Some(offload) = offload {
            self.parts.needs |= Accepts::needed_by(&offload);
            self.parts.offloads.push(offload);
        }
        self.parts.entries[self.parts.count] =
            Entry { len: len as u32, first_rest: self.parts.drafted as u32, more, ..EMPTY };
        self.parts.count += 1;
        self.parts.bytes += len as u64;
    }

    /// As [`Batch::seal`], for a frame whose source may be wrong about its offload: one that is not what it says is refused.
    pub fn seal_offloaded(&mut self, head_len: usize, offload: Offload) {
        let index = self.parts.count;
        self.seal(head_len, None);
        self.attach(index, offload);
    }

    /// Gives frame `index`, the last one, its offload, or takes it back out. It is not there when it was refused.
    fn attach(&mut self, index: usize, offload: Offload) {
        let Some(entry) = self.parts.entries[..self.parts.count].get_mut(index) else { return };
        let len = entry.len as usize;
        let head = &self.parts.heads[index].0;
        match offload::admit(head.get(..entry.more.head_len(entry.len)).unwrap_or(head), len, offload) {
            Ok((offload, segments)) => {
                let more = entry.more;
                entry.more = More::new(more.head_len(entry.len), more.rests(), Some(self.parts.offloads.len()));
                self.parts.offloads.push(offload);
                self.parts.needs |= Accepts::needed_by(&offload);
                self.parts.extra += segments as u64 * SEGMENT_COST;
                self.parts.segments += segments - 1;
            }
            Err(reason) => {
                if entry.more.rests() > 0 {
                    self.rests.truncate(entry.first_rest as usize);
                }
                self.parts.count = index;
                self.parts.bytes -= len as u64;
                self.refuse(reason);
            }
        }
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

    /// Counts a frame that the source's port could not offer.
    #[cold]
    pub fn refuse(&mut self, reason: DropReason) {
        self.parts.refused.counts[reason as usize] += 1;
        self.parts.refused.total += 1;
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

    /// What frame `index` takes of a limit.
    #[inline]
    #[must_use]
    pub(crate) fn cost_of(&self, index: usize) -> Cost {
        let entry = &self.parts.entries[index];
        match entry.more.offload() {
            None => Cost::of_one(entry.len as usize),
            Some(place) => {
                let (frames, headers) =
                    offload::on_a_wire(self.head(index), entry.len as usize, &self.parts.offloads[place]);
                Cost { bytes: u64::from(entry.len) + headers, frames }
            }
        }
    }

    /// What all of them take together.
    #[inline]
    #[must_use]
    pub(crate) fn cost(&self) -> Cost {
        if !self.parts.needs.meets(Accepts::SEGMENTED) {
            return Cost { bytes: self.parts.bytes, frames: self.parts.count as u64 };
        }
        (0..self.parts.count).map(|index| self.cost_of(index)).sum()
    }

    /// All of it went to a port that was given so many frames and refused the others.
    #[cold]
    pub(crate) fn exhausted(&self, port: u16, given: usize, cause: Cause) -> Exhausted {
        let both = |index: usize| self.parts.heads[index].0[..12].try_into().unwrap_or_default();
        let addresses: [u8; 12] = both(self.parts.count - 1);
        Exhausted { port, addresses, alike: addresses == both(0), given, cause }
    }

    /// All of them, to deliver them.
    #[inline(always)]
    pub(crate) fn frames(&self) -> AllFrames<'_, 'm> {
        AllFrames::of(self)
    }

    /// Frame `index`, to deliver it.
    #[inline(always)]
    #[must_use]
    pub fn frame(&self, index: usize) -> Frame<'_, 'm> {
        Frame { batch: self, entry: &self.parts.entries[index], head: &self.parts.heads[index] }
    }
}
