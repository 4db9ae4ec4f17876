//! Calls to the clients of the ports that a pass has served.

use std::sync::atomic::{Ordering, fence};

use super::workspace::{NO_PORT, Workspace};
use crate::port::{CallReason, Input, Watch};
use crate::time::Time;
use crate::topology::{Context, Member};

/// Calls the clients that were given frames and want a call, and the source's client if it waits for room. To be called
/// after all stores of the pass to client memory. Returns true if a port must end because of a fault.
#[inline(always)]
pub(super) fn notify(context: Context<'_>, work: &mut Workspace) -> bool {
    let Context { from, switch, now } = context;
    fence(Ordering::SeqCst);
    let mut fault = false;
    if work.delivery.examined().is_some() {
        fault |= notify_examined(context, work);
    } else {
        for &port in work.delivery.served() {
            if let Some(member) = switch.member(port) {
                work.calling = port;
                work.touching.begin(&member.port);
                fault |= work.calls.ring(&member.port, CallReason::Frames, now);
            }
        }
        work.touching.end();
        work.calling = NO_PORT;
        fault |= work.calls.ring(&from.port, CallReason::Room, now);
    }
    if switch.is_watched() {
        wake_watchers(context, work);
    }
    fault
}

/// Calls the clients, and notes how long each call took.
#[cold]
fn notify_examined(context: Context<'_>, work: &mut Workspace) -> bool {
    let Context { from, switch, now } = context;
    let mut fault = false;
    for place in 0..work.delivery.served().len() {
        let port = work.delivery.served()[place];
        if let Some(member) = switch.member(port) {
            work.calling = port;
            fault |= ring_examined(member, CallReason::Frames, work, now);
        }
    }
    work.calling = NO_PORT;
    fault | ring_examined(from, CallReason::Room, work, now)
}

fn ring_examined(member: &Member, reason: CallReason, work: &mut Workspace, now: &Time) -> bool {
    let began = work.delivery.measure().map(|measure| measure());
    work.touching.begin(&member.port);
    let fault = work.calls.ring(&member.port, reason, now);
    work.touching.end();
    work.delivery.note_called(member.owner.index(), began);
    fault
}

/// Wakes the readers of the captures that saw frames in this pass.
#[cold]
fn wake_watchers(context: Context<'_>, work: &Workspace) {
    let seen = work.delivery.served().iter().copied().chain([context.from.owner.index()]);
    seen.filter_map(|port| context.switch.watch(port)).for_each(Watch::ring);
}

/// Handles an event of a port that has no frames, or whose frames wait for a limit: calls the port's client, which may
/// be waiting for the event. Returns true if the port must end because of a fault.
pub fn handle_event(from: &Member, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> bool {
    if !input.take_event() {
        return false;
    }
    fence(Ordering::SeqCst);
    let fault = work.calls.ring(&from.port, CallReason::Room, now);
    // The kernel may keep the thread that has the output. That thread counts them when it delivers next.
    from.port.try_output().into_iter().for_each(|mut output| output.count_late(from.port.counters()));
    fault
}
