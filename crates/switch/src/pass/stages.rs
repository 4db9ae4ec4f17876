//! The path of a frame.

use super::admit::admit;
use super::beyond::{exceed, refuse};
use super::collect::collect;
use super::exhausted::drop_alike;
use super::forward::forward;
use super::notify::{handle_event, notify};
use super::passed::Passed;
use super::workspace::Workspace;
use crate::egress::Outgoing;
use crate::policy::Turn;
use crate::port::Input;
use crate::time::Time;
use crate::topology::{Context, Member, Switch};

/// Time until a port is visited again whose switch cannot forward at present, in nanoseconds.
const COME_BACK: u64 = 50_000;

/// A pass whose frames wait for the forwarding function.
#[cold]
fn come_back(context: Context<'_>, input: &mut dyn Input, work: &mut Workspace) -> Passed {
    let Context { from, now, .. } = context;
    let receiver_fault = handle_event(from, input, work, now);
    Passed { until: Some(now.nanoseconds.saturating_add(COME_BACK)), receiver_fault, ..Passed::default() }
}

/// Moves one batch of frames from a port to the ports of their destinations.
pub fn pass(switch: &Switch, from: &Member, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> Passed {
    let context = Context { from, switch, now };
    // The turn at the source's limit begins before frames are collected, and ends after they are released.
    let mut turn = Turn::without_limit();
    if let Err(beyond) = turn.begin(from.ingress(), input, now.nanoseconds) {
        return refuse(context, &beyond, input, work);
    }

    // Collect.
    let mut batch = work.begin_batch();
    let Ok((collected, entered)) = collect(context, &turn, input, &mut batch) else {
        turn.charge(&batch);
        work.end_batch(batch);
        return come_back(context, input, work);
    };

    // Admit.
    let waiting = admit(context, &turn, &mut batch);
    if collected.frames == 0 {
        if switch.may_leave_behind() && !collected.is_bounded {
            from.port.verdicts().forget();
        }
        turn.charge(&batch);
        work.end_batch(batch);
        input.release();
        drop(entered);
        let receiver_fault = handle_event(from, input, work, now);
        return Passed { fault: collected.fault, receiver_fault, ..Passed::default() };
    }

    // Forward.
    let forwarded = forward(context, &turn, &collected, waiting, &mut batch, entered);

    // Deliver.
    let out = Outgoing { context: &context, batch: &batch, is_reserved: forwarded.is_reserved };
    let delivered = work.delivery.deliver(out);

    // Release. Frames that wait for their receiver stay with the client.
    work.end_batch(batch);
    if let Some(held) = &forwarded.held {
        input.rewind(held.len);
    }
    input.release();

    // Frames that are still in the client's ring may be beyond a limit as well.
    let mut passed = Passed {
        frames: forwarded.frames,
        work: forwarded.work,
        more: collected.more || forwarded.held.is_some(),
        until: forwarded.held.and_then(|held| held.until),
        fault: collected.fault,
        receiver_fault: delivered.fault,
        is_exhausted: forwarded.held.is_some(),
    };
    if forwarded.is_used_up
        && let (None, None) = (passed.fault, passed.until)
        && let Some(beyond) = turn.end(now.nanoseconds)
    {
        passed = exceed(context, &beyond, passed, input, work);
    }
    if let Some(exhausted) = &delivered.exhausted {
        passed = drop_alike(context, exhausted, passed, input, work.limit);
    } else if collected.probe > 0 {
        from.port.set_probe(0);
    }

    // All stores are done. Call the clients that want a call.
    passed.receiver_fault |= notify(context, work);
    passed
}
