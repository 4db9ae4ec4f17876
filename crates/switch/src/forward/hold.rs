//! Holding: frames for a port whose limit makes its senders wait stay in the sender's ring.

use super::permission::may_receive;
use crate::batch::{Batch, Destination};
use crate::frame::{Cost, WaitingPlace};
use crate::policy::{Egress, Grant, SHORT, oldest_to_wait};
use crate::topology::{Member, Switch};

/// Most waiting-limited ports in one batch. The batch ends before a frame for one more.
const MOST_PORTS: usize = 8;

/// Where a batch must end, and until when its source waits, in nanoseconds. `None`: its next visit goes on.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) len: usize,
    pub(crate) until: Option<u64>,
}

/// What one port's limit permits, and what the batch takes of it so far.
struct Room<'a> {
    member: &'a Member,
    egress: &'a Egress,
    grant: Grant,
    /// Bytes of short frames that may pass beyond the grant.
    credit: u64,
    cost: Cost,
    /// Index up to which flooded frames have been counted.
    seen: usize,
    /// Which frames wait is decided: delivery drops those in front of them.
    is_used_up: bool,
}

impl Room<'_> {
    /// Returns true if a frame of `len` bytes may be delivered.
    #[inline]
    fn covers(&self, len: usize) -> bool {
        let has_credit = || self.credit > 0 && self.cost.bytes < self.grant.bytes.saturating_add(self.credit);
        self.grant.covers(self.cost) || len <= SHORT && has_credit()
    }

    /// Adds the cost of a frame. What the last one of the grant goes beyond it leaves short frames their credit.
    #[inline]
    fn take(&mut self, cost: Cost) {
        let is_covered = self.grant.covers(self.cost);
        self.cost += cost;
        if is_covered && self.credit > 0 {
            self.credit += self.cost.bytes.saturating_sub(self.grant.bytes);
        }
    }

    /// Adds the cost of the flooded frames before `end` that the port receives.
    #[cold]
    fn take_flooded(&mut self, batch: &Batch<'_>, end: usize, from: &Member, switch: &Switch) {
        while self.seen < end
            && let Some((destination, run_end)) = batch.run(self.seen)
        {
            for index in self.seen..run_end {
                let port = self.member.owner.index();
                let hears = || switch.audience(batch).is_none_or(|audience| audience.hears(index, port));
                if destination == Destination::Flood && hears() && permits(batch, index, from, self.member, switch) {
                    self.cost += batch.cost_of(index);
                }
            }
            self.seen = run_end;
        }
    }
}

/// Returns true if the port may receive frame `index`.
fn permits(batch: &Batch<'_>, index: usize, from: &Member, to: &Member, switch: &Switch) -> bool {
    may_receive(to, from, switch.has_vlans().then(|| batch.class(index))).is_ok()
}

/// Returns the first frame of the batch that must wait. All frames after it wait, too, to keep the order. Flooded
/// frames never wait, but their cost is charged before that of the frames behind them. The frames that stay in the
/// batch are reserved: their ports accept them even if other senders use up the limit meanwhile (`Egress::admit`).
///
/// Frames that their port may not receive are dropped by delivery: they neither wait nor take room, and their sender is
/// unknown to the port's limit. Otherwise it would count there as a sender that waits for its share.
#[inline(never)]
pub(crate) fn hold(batch: &Batch<'_>, from: &Member, switch: &Switch, place: WaitingPlace, now: u64) -> Option<Held> {
    let mut rooms: [Option<Room<'_>>; MOST_PORTS] = [const { None }; MOST_PORTS];
    let (mut first, mut floods, mut held) = (0, false, None::<Held>);
    let is_alike = !switch.has_vlans() || batch.only_class().is_some();
    while let Some((destination, end)) = batch.run(first).filter(|_| held.is_none_or(|held| first < held.len)) {
        if let Destination::Port(port) = destination
            && let Some(member) = switch.member(port)
            && let Some(egress) = member.waiting_egress()
            && let Some(begin) = (first..end).find(|&index| permits(batch, index, from, member, switch))
        {
            let is_its = |room: &Room<'_>| room.member.owner.index() == port;
            let free = rooms.iter_mut().find(|room| room.as_ref().is_none_or(is_its));
            let Some(free) = free else { return earlier(held, Held { len: begin, until: None }) };
            let room = free.get_or_insert_with(|| {
                let grant = egress.room(from.sender(), now);
                Room {
                    member,
                    egress,
                    grant,
                    credit: egress.credit(from.sender()),
                    cost: Cost::default(),
                    seen: 0,
                    is_used_up: false,
                }
            });
            if floods {
                room.take_flooded(batch, begin, from, switch);
            }
            for index in begin..end {
                if room.is_used_up {
                    break;
                }
                if !is_alike && !permits(batch, index, from, member, switch) {
                    continue;
                }
                if room.covers(batch.frame_len(index)) {
                    room.take(batch.cost_of(index));
                    continue;
                }
                let oldest = match room.egress.depth(from.sender()) {
                    None => index,
                    Some(depth) => oldest_to_wait(batch, index, depth, place, Some(destination)),
                };
                room.is_used_up = true;
                if oldest < batch.len() {
                    let until = room.egress.resume_at(now);
                    let cause = room.grant.cause(room.cost.frames);
                    room.egress.begin_wait(from.sender(), until, cause, now);
                    held = earlier(held, Held { len: oldest, until: Some(until) });
                }
            }
        }
        floods |= destination == Destination::Flood;
        first = end;
    }
    held
}

/// The one that ends the batch first.
fn earlier(held: Option<Held>, other: Held) -> Option<Held> {
    held.filter(|held| held.len <= other.len).or(Some(other))
}
