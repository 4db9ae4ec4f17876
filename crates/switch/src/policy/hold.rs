//! Holding back: frames for a port whose limit has its senders wait stay in their sender's ring.

use super::{Cost, Egress, Excess, Grant};
use crate::batch::{Batch, Destination};
use crate::switch::{Member, Switch};

/// Ports that one batch is looked at for: where there is one more, it ends.
const MOST_PORTS: usize = 8;

/// Where a batch has to end, and until when its source waits (nanoseconds).
pub(crate) struct Held {
    pub(crate) len: usize,
    pub(crate) until: u64,
}

/// What one port may be given, and is given of the batch so far.
struct Room<'a> {
    port: u16,
    egress: &'a Egress,
    grant: Grant,
    cost: Cost,
}

/// The first frame of the batch that has to wait, and everything after it: order is kept. Frames that are flooded wait for
/// nobody.
#[inline(never)]
pub(crate) fn hold(batch: &Batch<'_>, from: &Member, switch: &Switch, now: u64) -> Option<Held> {
    let mut rooms: [Option<Room<'_>>; MOST_PORTS] = [const { None }; MOST_PORTS];
    let mut first = 0;
    while let Some((destination, end)) = batch.run(first) {
        if let Destination::Port(port) = destination
            && let Some(egress) = switch.member(port).and_then(waits)
        {
            let place = rooms.iter_mut().find(|room| room.as_ref().is_none_or(|room| room.port == port));
            let Some(place) = place else { return Some(Held { len: first, until: now }) };
            let room = place.get_or_insert_with(|| {
                let grant = egress.room(from, now);
                Room { port, egress, grant, cost: Cost::default() }
            });
            for index in first..end {
                if !room.grant.covers(room.cost) {
                    let until = room.egress.resume_at(now);
                    let cause = room.grant.cause(room.cost.frames);
                    room.egress.limit().wait(cause, until.saturating_sub(now));
                    return Some(Held { len: index, until });
                }
                room.cost += batch.cost_of(index);
            }
        }
        first = end;
    }
    None
}

/// The limit of a port whose senders wait.
pub(crate) fn waits(member: &Member) -> Option<&Egress> {
    let egress = member.policy.as_ref()?.egress.as_deref()?;
    (egress.limit().excess == Excess::Wait).then_some(egress)
}
