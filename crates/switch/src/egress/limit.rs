//! The egress limit of the port that is given frames.

use super::receiver::Receiver;
use crate::batch::{Destination, Frames, MAX_BATCH};
use crate::frame::DropReason;
use crate::policy::{Admitted, Cause, Egress, Excess, SHORT};
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
    /// The indices of the frames that passed, if these are not the first ones.
    pub(super) passed: &'a mut Vec<u16>,
}

/// A delivery with frames that the limit refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct BeyondLimit {
    /// Number of frames that the limit let pass: the first ones, if it does not shape.
    pub(super) given: usize,
    /// The limit shapes: the frames that passed are in a list.
    pub(super) is_listed: bool,
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
        if egress.limit().excess == Excess::Shape {
            return self.deliver_shaped(frames, turn, counters);
        }
        *self.beyond = Some(BeyondLimit { given: turn.given, is_listed: false, cause: turn.cause });
        receiver.refuse(&frames, turn.given, DropReason::EgressLimited);
        match turn.given {
            0 => Ok(()),
            given => self.output.deliver(frames.first(given), counters),
        }
    }
}

impl Limited<'_> {
    /// Delivers the frames that the limit admitted, and of the others the short ones that pass on credit.
    #[cold]
    #[inline(never)]
    fn deliver_shaped(
        &mut self,
        frames: Frames<'_, '_>,
        admitted: Admitted,
        counters: &Counters,
    ) -> Result<(), PortFault> {
        let Self { egress, receiver, passed, .. } = self;
        let (mut refused, mut beyond, mut has_credit) = ([0; MAX_BATCH], 0, true);
        passed.clear();
        let numbered = frames.indices().zip(frames.clone()).zip(frames.costs()).enumerate();
        for (place, ((index, frame), cost)) in numbered {
            let passes = place < admitted.given
                || has_credit && frame.len() <= SHORT && {
                    has_credit = egress.pass_on_credit(receiver.sender(), cost);
                    has_credit
                };
            if passes {
                passed.push(index);
            } else {
                refused[beyond] = index;
                beyond += 1;
            }
        }
        if beyond > 0 {
            *self.beyond = Some(BeyondLimit { given: passed.len(), is_listed: true, cause: admitted.cause });
            egress.limit().refuse(admitted.cause, beyond as u64);
            receiver.refuse(&frames.named(&refused[..beyond]), 0, DropReason::EgressLimited);
        }
        if passed.is_empty() { Ok(()) } else { self.output.deliver(frames.named(passed), counters) }
    }
}

/// Number of frames with reserved room: all up to the last unicast frame.
#[cold]
fn unicast(frames: &Frames<'_, '_>) -> usize {
    let is_unicast = |destination| destination != Destination::Flood;
    frames.destinations().rposition(is_unicast).map_or(0, |place| place + 1)
}
