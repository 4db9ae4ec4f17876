//! Delivery of frames whose tag a port wants and they have not, or the reverse.

use ringway_memory::{HEAD_BYTES, View};

use crate::batch::{Batch, BatchStorage, Frame, Frames};
use crate::forward::may_hear;
use crate::frame::{Class, DropReason, Gso, Offload};
use crate::topology::Member;

/// Frames that are changed before they are delivered.
const CHUNK: usize = 128;
const TAG_BYTES: usize = 4;
/// Where a tag stands: behind the two addresses.
const TAG_AT: usize = 12;

/// What a poller needs for putting tags on and taking them off, kept between passes. Only private copies of heads are written;
/// the rest of each frame stays in its sender's memory.
#[derive(Debug)]
pub(crate) struct Retagger {
    chunk: Option<BatchStorage>,
    /// The numbers of a chunk's frames, in order.
    order: Box<[u16]>,
    /// What a tag pushes out of a full head.
    tails: Box<[[u8; TAG_BYTES]]>,
}

/// Whether a port wants frames of a class otherwise than they are.
#[inline]
fn is_wrong(class: Class, to: &Member) -> bool {
    class.is_tagged() != to.vlans.tags(class.vlan())
}

/// Leaves those frames that the port takes; of the others, those with a tag behind a tag count as lost at their source. True when
/// the port wants any otherwise than they are.
#[inline]
pub(crate) fn keep_own(order: &mut Vec<u16>, batch: &Batch<'_>, from: &Member, to: &Member) -> bool {
    let mut stacked = 0;
    let retag = if let Some(class) = batch.only_class() {
        if let Err(reason) = may_hear(to, from, Some(class)) {
            stacked = if reason == DropReason::VlanStacked { order.len() } else { 0 };
            order.clear();
        }
        is_wrong(class, to)
    } else {
        order.retain(|&index| {
            let taken = may_hear(to, from, Some(batch.class(index.into())));
            stacked += usize::from(taken == Err(DropReason::VlanStacked));
            taken.is_ok()
        });
        order.iter().any(|&index| is_wrong(batch.class(index.into()), to))
    };
    if stacked > 0 {
        from.port.counters().drop_in(DropReason::VlanStacked, stacked as u64);
    }
    retag
}

/// [`keep_own`] for a batch of one class, all for a port that takes it; `None`: it is not such a batch.
#[inline]
pub(crate) fn keep_all(batch: &Batch<'_>, from: &Member, to: &Member) -> Option<bool> {
    let class = batch.only_class()?;
    may_hear(to, from, Some(class)).is_ok().then(|| is_wrong(class, to))
}

impl Retagger {
    pub(crate) fn new() -> Self {
        Self {
            chunk: Some(BatchStorage::new(CHUNK)),
            order: (0..CHUNK as u16).collect(),
            tails: [[0; TAG_BYTES]; CHUNK].into(),
        }
    }

    /// Hands frames over with and without tags as the port wants them, a chunk at a time.
    #[inline(never)]
    pub(crate) fn deliver(
        &mut self,
        frames: Frames<'_, '_>,
        to: &Member,
        mut hand_over: impl FnMut(&Batch<'_>, Frames<'_, '_>),
    ) {
        let mut frames = frames.classed().peekable();
        while frames.peek().is_some() {
            let mut chunk = self.chunk.take().unwrap_or_else(|| BatchStorage::new(CHUNK)).into_batch();
            let mut tails = self.tails.iter_mut();
            while chunk.room() > 0
                && let Some(tail) = tails.next()
                && let Some((frame, class)) = frames.next()
            {
                match (class.is_tagged(), to.vlans.tags(class.vlan())) {
                    (true, false) => untag(&frame, &mut chunk),
                    (false, true) => tag(&frame, class.vlan(), &mut chunk, tail),
                    _ => copy(&frame, &mut chunk),
                }
            }
            hand_over(&chunk, Frames::of(&chunk, &self.order[..chunk.len()]));
            self.chunk = Some(chunk.into_storage());
        }
    }
}

/// An offload whose headers have moved by a tag.
fn shifted(offload: Option<&Offload>, shift: impl Fn(u16) -> u16) -> Option<Offload> {
    offload.map(|offload| Offload {
        csum_start: shift(offload.csum_start),
        hdr_len: if offload.gso == Gso::None { offload.hdr_len } else { shift(offload.hdr_len) },
        ..*offload
    })
}

fn copy<'m>(frame: &Frame<'_, 'm>, chunk: &mut Batch<'m>) {
    let (head, rests) = chunk.draft();
    *head = *frame.head();
    rests.extend_from_slice(frame.rest());
    chunk.seal(frame.head_len(), frame.offload().copied());
}

/// Adds a frame without the tag that it has.
fn untag<'m>(frame: &Frame<'_, 'm>, chunk: &mut Batch<'m>) {
    let (head, rests) = chunk.draft();
    // All these places are constants.
    let from = &frame.head().0;
    head.0[..TAG_AT].copy_from_slice(&from[..TAG_AT]);
    head.0[TAG_AT..HEAD_BYTES - TAG_BYTES].copy_from_slice(&from[TAG_AT + TAG_BYTES..]);
    rests.extend_from_slice(frame.rest());
    chunk.seal(
        frame.head_len().saturating_sub(TAG_BYTES),
        shifted(frame.offload(), |at| at.saturating_sub(TAG_BYTES as u16)),
    );
}

/// Adds a frame with a tag.
fn tag<'m>(frame: &Frame<'_, 'm>, vlan: u16, chunk: &mut Batch<'m>, tail: &'m mut [u8; TAG_BYTES]) {
    let (head, rests) = chunk.draft();
    let from = &frame.head().0;
    head.0[..TAG_AT].copy_from_slice(&from[..TAG_AT]);
    let [high, low] = vlan.to_be_bytes();
    head.0[TAG_AT..TAG_AT + TAG_BYTES].copy_from_slice(&[0x81, 0x00, high, low]);
    head.0[TAG_AT + TAG_BYTES..].copy_from_slice(&from[TAG_AT..HEAD_BYTES - TAG_BYTES]);
    let (room, bytes) = (HEAD_BYTES - TAG_BYTES, frame.first_bytes());
    let out = bytes.get(room..).unwrap_or(&[]);
    if let Some(tail) = tail.get_mut(..out.len()).filter(|tail| !tail.is_empty()) {
        tail.copy_from_slice(out);
        rests.push(View::private(tail));
    }
    rests.extend_from_slice(frame.rest());
    let head_len = bytes.len().min(room) + TAG_BYTES;
    chunk.seal(head_len, shifted(frame.offload(), |at| at.saturating_add(TAG_BYTES as u16)));
}
