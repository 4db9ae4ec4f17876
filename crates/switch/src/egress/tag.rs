//! Adding and removing VLAN tags, as a port's VLANs require.

use ringway_memory::{HEAD_BYTES, View};

use crate::batch::{Batch, BatchStorage, Frame, Frames};
use crate::forward::may_receive;
use crate::frame::{Class, DropReason, Gso, Offload, Tunnel};
use crate::policy::Membership;
use crate::port::{Counters, Output, OutputCapabilities, PortFault};
use crate::topology::Member;

/// Most frames that are changed before they are delivered.
const CHUNK: usize = 128;
const TAG_BYTES: usize = 4;
/// Offset of a VLAN tag: behind the two addresses.
const TAG_AT: usize = 12;

/// Memory for adding and removing tags, kept between passes. Only private copies of heads are written. The rest of each
/// frame stays in its sender's memory.
#[derive(Debug)]
pub(super) struct TagScratch {
    chunk: Option<BatchStorage>,
    /// The indices of a chunk's frames, in order.
    order: Box<[u16]>,
    /// The bytes that no longer fit into a full head after a tag is added.
    tails: Box<[[u8; TAG_BYTES]]>,
}

impl TagScratch {
    pub(super) fn new() -> TagScratch {
        TagScratch {
            chunk: Some(BatchStorage::new(CHUNK)),
            order: (0..CHUNK as u16).collect(),
            tails: [[0; TAG_BYTES]; CHUNK].into(),
        }
    }
}

/// Returns true if frames of a class need a tag added or removed for a port.
#[inline]
fn is_retagged(class: Class, to: &Member) -> bool {
    class.is_tagged() != to.vlans.tags(class.vlan())
}

/// Keeps the frames that the port may get. Of the others, those with two tags count as dropped at the source. Returns
/// true if some frames need a tag added or removed.
#[inline]
pub(super) fn retain_heard(order: &mut Vec<u16>, batch: &Batch<'_>, from: &Member, to: &Member) -> bool {
    let mut stacked = 0;
    let retag = if let Some(class) = batch.only_class() {
        if let Err(reason) = may_receive(to, from, Some(class)) {
            stacked = if reason == DropReason::VlanStacked { order.len() } else { 0 };
            order.clear();
        }
        is_retagged(class, to)
    } else {
        order.retain(|&index| {
            let heard = may_receive(to, from, Some(batch.class(index.into())));
            stacked += usize::from(heard == Err(DropReason::VlanStacked));
            heard.is_ok()
        });
        order.iter().any(|&index| is_retagged(batch.class(index.into()), to))
    };
    if stacked > 0 {
        from.port.counters().drop_in(DropReason::VlanStacked, stacked as u64);
    }
    retag
}

/// Returns whether the frames of a batch need a tag added or removed for a port. Returns `None` if the frames are of
/// several classes, or if the port may not get them.
#[inline]
pub(super) fn needs_retag(batch: &Batch<'_>, from: &Member, to: &Member) -> Option<bool> {
    let class = batch.only_class()?;
    may_receive(to, from, Some(class)).is_ok().then(|| is_retagged(class, to))
}

/// An output that adds and removes tags as the port's VLANs require.
pub(super) struct Tagged<'a> {
    pub(super) output: &'a mut dyn Output,
    /// The VLANs of the port.
    pub(super) vlans: &'a Membership,
    pub(super) scratch: &'a mut TagScratch,
}

impl Output for Tagged<'_> {
    fn capabilities(&self) -> OutputCapabilities {
        self.output.capabilities()
    }

    fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
        self.output.queues(frames)
    }

    fn room(&mut self, frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        self.output.room(frames)
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let mut frames = frames.classed().peekable();
        let mut result = Ok(());
        while frames.peek().is_some() {
            let mut chunk = self.scratch.chunk.take().unwrap_or_else(|| BatchStorage::new(CHUNK)).into_batch();
            let mut tails = self.scratch.tails.iter_mut();
            while chunk.room() > 0
                && let Some(tail) = tails.next()
                && let Some((frame, class)) = frames.next()
            {
                match (class.is_tagged(), self.vlans.tags(class.vlan())) {
                    (true, false) => untag(&frame, &mut chunk),
                    (false, true) => tag(&frame, class.vlan(), &mut chunk, tail),
                    _ => chunk.push_copy(&frame),
                }
            }
            let order = &self.scratch.order[..chunk.len()];
            // An output that failed counts the other chunks as lost.
            result = result.and(self.output.deliver(Frames::of(&chunk, order), counters));
            self.scratch.chunk = Some(chunk.into_storage());
        }
        result
    }
}

/// Returns an offload with its header offsets moved by the length of a tag.
fn shifted(offload: Option<&Offload>, shift: impl Fn(u16) -> u16) -> Option<Offload> {
    offload.map(|offload| Offload {
        csum_start: shift(offload.csum_start),
        tunnel: offload.tunnel.map(|tunnel| Tunnel {
            udp: shift(tunnel.udp),
            inner_ip: shift(tunnel.inner_ip),
            ..tunnel
        }),
        hdr_len: if offload.gso == Gso::None { offload.hdr_len } else { shift(offload.hdr_len) },
        ..*offload
    })
}

/// Adds a frame to `chunk`, with its tag removed.
fn untag<'m>(frame: &Frame<'_, 'm>, chunk: &mut Batch<'m>) {
    let (head, rests) = chunk.draft();
    // All offsets are constants, so that the copies have fixed lengths.
    let from = &frame.head().0;
    head.0[..TAG_AT].copy_from_slice(&from[..TAG_AT]);
    head.0[TAG_AT..HEAD_BYTES - TAG_BYTES].copy_from_slice(&from[TAG_AT + TAG_BYTES..]);
    rests.extend_from_slice(frame.rest());
    chunk.seal(
        frame.head_len().saturating_sub(TAG_BYTES),
        shifted(frame.offload(), |at| at.saturating_sub(TAG_BYTES as u16)),
    );
}

/// Adds a frame to `chunk`, with a tag added.
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
