//! The egress limit of the port that is given frames.

use super::receiver::Receiver;
use crate::batch::{Destination, Frames};
use crate::frame::DropReason;
use crate::policy::{Cause, Egress, Excess};
use crate::port::{Counters, Output, OutputCapabilities, PortFault};

/// An output with an egress limit: delivers the frames that the limit grants to the sender. Refused frames count as
/// `egress_limited`.
pub(super) struct Limited<'a> {
    pub(super) output: &'a mut dyn Output,
    pub(super) egress: &'a Egress,
    pub(super) receiver: Receiver<'a>,
    /// Room for the unicast frames of the batch is reserved: the limit lets them pass.
    pub(super) is_reserved: bool,
    /// Set by `deliver` if the limit refused frames.
    pub(super) beyond: &'a mut Option<BeyondLimit>,
}

/// A delivery with frames that the limit refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct BeyondLimit {
    /// Number of frames that the limit let pass: the first ones.
    pub(super) given: usize,
    /// Which limit refused the others.
    pub(super) cause: Cause,
}

impl Output for Limited<'_> {
    fn capabilities(&self) -> OutputCapabilities {
        self.output.capabilities()
    }

    #[inline(always)]
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let Self { egress, receiver, .. } = self;
        let sure = if self.is_reserved && egress.limit().excess == Excess::Wait { unicast(&frames) } else { 0 };
        let turn = egress.admit(receiver.sender(), frames.costs(), frames.cost_of_batch(), sure, receiver.now());
        if turn.refused == 0 {
            return self.output.deliver(frames, counters);
        }
        *self.beyond = Some(BeyondLimit { given: turn.given, cause: turn.cause });
        receiver.refuse(&frames, turn.given, DropReason::EgressLimited);
        match turn.given {
            0 => Ok(()),
            given => self.output.deliver(frames.first(given), counters),
        }
    }
}

/// Number of frames with reserved room: all up to the last unicast frame.
#[cold]
fn unicast(frames: &Frames<'_, '_>) -> usize {
    let is_unicast = |destination| destination != Destination::Flood;
    frames.destinations().rposition(is_unicast).map_or(0, |place| place + 1)
}
