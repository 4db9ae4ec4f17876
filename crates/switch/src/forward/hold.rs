//! Holding back: frames for a port whose limit has its senders wait stay in their sender's ring.

use super::hear::may_hear;
use crate::batch::{Batch, Destination};
use crate::frame::Cost;
use crate::policy::{Egress, Grant};
use crate::topology::{Member, Switch};

/// Ports that one batch is looked at for: where there is one more, it ends.
const MOST_PORTS: usize = 8;

/// Where a batch has to end, and until when its source waits (nanoseconds).
pub(crate) struct Held {
    pub(crate) len: usize,
    pub(crate) until: u64,
}

/// What one port may be given, and is given of the batch so far.
struct Room<'a> {
    member: &'a Member,
    egress: &'a Egress,
    grant: Grant,
    cost: Cost,
    /// Up to which frame those were counted that are flooded.
    seen: usize,
}

impl Room<'_> {
    /// Counts what it is given of the frames before `end` that are flooded.
    #[cold]
    fn take_flooded(&mut self, batch: &Batch<'_>, end: usize, from: &Member, switch: &Switch) {
        while self.seen < end
            && let Some((destination, run_end)) = batch.run(self.seen)
        {
            for index in self.seen..run_end {
                let class = || switch.has_vlans().then(|| batch.class(index));
                if destination == Destination::Flood && may_hear(self.member, from, class()).is_ok() {
                    self.cost += batch.cost_of(index);
                }
            }
            self.seen = run_end;
        }
    }
}

/// The first frame of the batch that has to wait, and everything after it: order is kept. Frames that are flooded wait for
/// nobody, but what they take of a port's limit is not there for those behind them. What it leaves is given to these ports
/// whatever others give them meanwhile (`Egress::admit`).
#[inline(never)]
pub(crate) fn hold(batch: &Batch<'_>, from: &Member, switch: &Switch, now: u64) -> Option<Held> {
    let mut rooms: [Option<Room<'_>>; MOST_PORTS] = [const { None }; MOST_PORTS];
    let (mut first, mut floods) = (0, false);
    while let Some((destination, end)) = batch.run(first) {
        if let Destination::Port(port) = destination
            && let Some(member) = switch.member(port)
            && let Some(egress) = member.egress_that_waits()
        {
            let is_its = |room: &Room<'_>| room.member.owner.index() == port;
            let place = rooms.iter_mut().find(|room| room.as_ref().is_none_or(is_its));
            let Some(place) = place else { return Some(Held { len: first, until: now }) };
            let room = place.get_or_insert_with(|| {
                let grant = egress.room(from.sender(), now);
                Room { member, egress, grant, cost: Cost::default(), seen: 0 }
            });
            if floods {
                room.take_flooded(batch, first, from, switch);
            }
            for index in first..end {
                if !room.grant.covers(room.cost) {
                    let until = room.egress.resume_at(now);
                    let cause = room.grant.cause(room.cost.frames);
                    room.egress.begin_wait(from.sender(), until, cause, now);
                    return Some(Held { len: index, until });
                }
                room.cost += batch.cost_of(index);
            }
        }
        floods |= destination == Destination::Flood;
        first = end;
    }
    None
}
