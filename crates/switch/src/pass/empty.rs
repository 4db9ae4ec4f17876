//! Delivery from a detour: a port in quarantine is given the frames in its backlog.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::workspace::Workspace;
use crate::batch::BatchStorage;
use crate::defect::giving;
use crate::port::{CallReason, Port};
use crate::time::Time;

/// Result of [`empty`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetourDelivery {
    /// Number of frames taken from the backlog.
    pub frames: u64,
    /// Number of bytes in these frames.
    pub bytes: u64,
    /// Nanoseconds in which frames were cut for the port, if this was measured ([`Workspace::examine`]). That is none of the port's doing,
    /// and its senders may have gone. It is little: the backlog is bounded.
    pub cutting: u64,
    /// The port broke the rules and must end: [`crate::Port::fault`] says how.
    pub fault: bool,
}

/// Empties the backlog of a port's detour ([`crate::Port::begin_detour`]): delivers the frames and makes the calls.
/// Only one thread may call this for a port. The frames stay in the backlog while another thread has the output: the kernel may keep that one.
#[cold]
pub fn empty(port: &Arc<Port>, work: &mut Workspace, now: &Time) -> DetourDelivery {
    giving(|| empty_backlog(port, work, now))
}

fn empty_backlog(port: &Arc<Port>, work: &mut Workspace, now: &Time) -> DetourDelivery {
    if !port.detour().has_backlog() {
        return DetourDelivery::default();
    }
    let Some(mut output) = port.try_output() else { return DetourDelivery::default() };
    let Some(taken) = port.detour().take() else { return DetourDelivery::default() };
    let mut emptied =
        DetourDelivery { frames: taken.frames() as u64, bytes: taken.bytes() as u64, ..DetourDelivery::default() };
    for &(reason, call) in taken.calls() {
        work.calls.take_over(port, reason, call);
    }
    if taken.frames() > 0 {
        let storage = work.batch.take().unwrap_or_else(|| BatchStorage::new(work.limit));
        work.touching.begin(port);
        let (storage, given) = work.delivery.deliver_backlog(&taken, storage, &mut **output, port.counters());
        // Those that found no room in the backlog.
        output.note_losses(port.counters());
        work.touching.end();
        work.batch = Some(storage);
        emptied.cutting = work.delivery.take_cutting();
        if let Err(fault) = given {
            port.fail(fault);
            emptied.fault = true;
        }
    }
    drop(output);
    port.detour().give_back(taken);
    if emptied.frames > 0 {
        fence(Ordering::SeqCst);
        emptied.fault |= work.calls.ring(port, CallReason::Frames, now);
    }
    emptied
}
