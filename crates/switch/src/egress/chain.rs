//! The chain of wrappers around an output.
//!
//! A wrapper is an [`Output`] around another one. The order is, from the outside in, and each wrapper only if the port
//! needs it:
//!
//! ```text
//!   Limited -> Tagged -> Coalesced -> SoftwareOffload -> Shared -> Captured -> the client's output
//! ```
//!
//! The senders' shares come behind everything that changes frames: they are of the frames that the client is given.
//! Frames for a congested port that takes nothing at all are refused before that ([`super::shares::Closed`]).

use super::capture::Captured;
use super::limit::{BeyondLimit, Limited};
use super::offload::coalesce::{CoalesceScratch, Coalesced, joins, may_join};
use super::offload::{OffloadScratch, SoftwareOffload};
use super::receiver::Receiver;
use super::shares::{QueueScratch, Shared};
use super::tag::{TagScratch, Tagged};
use crate::batch::Frames;
use crate::frame::DropReason;
use crate::policy::{Egress, Membership};
use crate::port::{FrameBuffer, Output, PortFault};

/// Memory of the wrappers, kept between passes.
#[derive(Debug)]
pub(super) struct Scratch {
    queues: QueueScratch,
    tag: TagScratch,
    coalesce: CoalesceScratch,
    pub(super) offload: OffloadScratch,
    /// The frames that a limit let pass last, if these are not the first ones.
    pub(super) passed: Vec<u16>,
    /// Copies of frames for a detour.
    pub(super) copies: FrameBuffer,
}

impl Scratch {
    pub(super) fn new(batch_limit: usize) -> Scratch {
        let (queues, coalesce) = (QueueScratch::new(batch_limit), CoalesceScratch::new(batch_limit));
        // Allocated now: a poller that needs it must not wait for memory.
        let copies = FrameBuffer::new().unwrap_or_else(FrameBuffer::without_room);
        Scratch {
            queues,
            tag: TagScratch::new(),
            coalesce,
            offload: OffloadScratch::new(),
            passed: Vec::with_capacity(batch_limit),
            copies,
        }
    }
}

/// The wrappers that one delivery needs.
#[derive(Clone, Copy)]
pub(super) struct Chain<'a> {
    pub(super) receiver: Receiver<'a>,
    /// The port's limit, if it has one.
    pub(super) limit: Option<&'a Egress>,
    /// Room for the unicast frames of the batch is reserved: the limit lets them pass.
    pub(super) is_reserved: bool,
    /// The port is congested: each sender has a share.
    pub(super) is_shared: bool,
    /// The output is that of the port's detour.
    pub(super) is_detour: bool,
    /// The port's VLANs, if some frames need a tag put on or taken off.
    pub(super) tags: Option<&'a Membership>,
    /// TCP segments are joined, if the client accepts that.
    pub(super) coalesces: bool,
}

impl Chain<'_> {
    /// Gives frames to the output of a client or a detour. Sets `beyond` if the limit refused some.
    #[inline(always)]
    pub(super) fn deliver(
        self,
        frames: Frames<'_, '_>,
        client: &mut dyn Output,
        scratch: &mut Scratch,
        beyond: &mut Option<BeyondLimit>,
    ) -> Result<(), PortFault> {
        let Chain { receiver, limit, is_reserved, is_shared, is_detour, tags, coalesces } = self;
        let counters = receiver.to.port.counters();
        let (mut captured, mut offload, mut coalesced, mut tagged, mut shared, mut closed);
        let mut output: &mut dyn Output = client;
        if let Some(taps) = receiver.taps() {
            captured = Captured { output, taps };
            output = &mut captured;
        }
        let mut is_closed = false;
        if is_shared {
            let refusal = if is_detour { DropReason::ReceiverSlow } else { DropReason::ReceiverFull };
            shared = Shared { output, receiver, scratch: &mut scratch.queues, refusal };
            match shared.turns_away(&frames) {
                None => output = &mut shared,
                Some(turned_away) => {
                    (closed, is_closed) = (turned_away, true);
                    output = &mut closed;
                }
            }
        }
        let may_join = !is_closed && coalesces && may_join(&frames);
        if may_join || !is_closed && !frames.are_plain() {
            let capabilities = output.capabilities();
            if !frames.need_only(capabilities.accepts) {
                offload = SoftwareOffload { output, scratch: &mut scratch.offload };
                output = &mut offload;
            }
            if may_join && joins(capabilities.accepts) {
                coalesced = Coalesced { output, capabilities, receiver, is_shared, scratch: &mut scratch.coalesce };
                output = &mut coalesced;
            }
        }
        if let Some(vlans) = tags.filter(|_| !is_closed) {
            tagged = Tagged { output, vlans, scratch: &mut scratch.tag };
            output = &mut tagged;
        }
        match limit {
            None => output.deliver(frames, counters),
            Some(egress) => {
                let passed = &mut scratch.passed;
                Limited { output, egress, receiver, is_reserved, beyond, passed }.deliver(frames, counters)
            }
        }
    }
}
