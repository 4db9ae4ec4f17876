//! Stage "collect": takes frames from the source, and counts those that could not be taken.

use crate::batch::Batch;
use crate::frame::WaitingPlace;
use crate::policy::Turn;
use crate::port::{Input, PortFault};
use crate::topology::{Context, Entered};

/// Result of stage "collect".
pub(super) struct Collected {
    /// Number of frames taken from the client: frames in the batch plus refused frames.
    pub(super) frames: u64,
    /// Number of bytes in the batch.
    pub(super) bytes: u64,
    /// The source may have more frames, although the batch is not full.
    pub(super) more: bool,
    /// Frames may stay in the client's ring, and the source may have more of them than the batch.
    pub(super) is_bounded: bool,
    /// The source broke the rules.
    pub(super) fault: Option<PortFault>,
    /// Frames may stay in the client's ring: none was refused, and the switch has ports whose limit makes senders wait, or
    /// many ports.
    pub(super) may_wait: bool,
    /// Bytes of frames that can wait in the port's own memory.
    pub(super) waiting: WaitingPlace,
    /// Most frames of the batch, if it was kept small because the source floods a port beyond that port's limit. 0: as
    /// many as fit.
    pub(super) probe: u16,
}

/// The forwarding function cannot be asked at present.
pub(super) struct Busy;

/// Fills the batch with frames, within the source's limit. The forwarding function is entered until the second value is dropped.
///
/// # Errors
/// The forwarding function cannot be asked at present: nothing was collected.
#[inline(always)]
pub(super) fn collect<'m, 's>(
    context: Context<'s>,
    turn: &Turn<'_>,
    input: &'m mut dyn Input,
    batch: &mut Batch<'m>,
) -> Result<(Collected, Entered<'s>), Busy> {
    let (port, switch) = (&context.from.port, context.switch);
    let (mut may_wait, mut may_hold, mut waiting) = (false, false, WaitingPlace::default());
    let entered = if switch.is_checked() {
        let entered = switch.enter().ok_or(Busy)?;
        let capabilities = input.capabilities();
        (may_wait, waiting) = (capabilities.rewind, capabilities.waiting);
        may_hold = switch.holds() && may_wait;
        entered
    } else {
        Entered::unasked()
    };
    turn.bound(batch, may_hold);
    let probe = port.probe();
    if probe > 0 {
        batch.bound(u64::MAX, probe.into());
    }
    let fault = input.collect(batch).err();

    batch.refused().for_each(|(reason, frames)| port.counters().drop_in(reason, frames));
    let may_wait = may_wait && fault.is_none() && batch.refused().next().is_none();
    let (frames, bytes, more) = (batch.len() as u64 + batch.refused_frames(), batch.bytes(), batch.may_be_more());
    let is_bounded = switch.may_leave_behind() && (more || batch.room() == 0);
    Ok((Collected { frames, bytes, more, is_bounded, fault, may_wait, waiting, probe }, entered))
}
