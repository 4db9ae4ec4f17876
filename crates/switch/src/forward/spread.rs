//! Bounding what flooded frames cost in a visit: a frame is cut and copied once for each port that hears it.
//!
//! A batch has a bounded number of bytes and segments, so that the turns of all sources take about equally long. For a
//! switch of many ports that does not hold for flooded frames. Those beyond the bound wait in the source's ring for its
//! next visit. Frames to be cut that cannot wait there are dropped, and so is a frame that would have to be cut into many more segments
//! than the bound has.

use super::permission::may_receive;
use crate::batch::{Batch, Destination, MAX_BYTES};
use crate::frame::{Class, DropReason};
use crate::topology::{FEW, Member, Switch};

/// The most work of a pass's flooded frames, in bytes to copy, and the work of passes after which a visit ends: some 2 ms. A segment that is cut
/// counts as 2 KiB more than it has.
pub const VISIT_WORK: u64 = FEW as u64 * MAX_BYTES;
/// The most work of a flooded frame that has to be cut.
const ALONE: u64 = 4 * VISIT_WORK;
/// The work of finding out whether a port hears a frame.
const LOOK: u64 = 32;

/// The number of ports that hear a flooded frame.
struct Hearing<'a> {
    from: &'a Member,
    switch: &'a Switch,
    /// The last frame's set of ports and VLAN, and its number.
    last: Option<((usize, u16), u64)>,
}

impl Hearing<'_> {
    fn of(&mut self, batch: &Batch<'_>, index: usize) -> u64 {
        let Hearing { from, switch, last } = self;
        let audience = switch.audience(batch);
        let vlan = switch.has_vlans().then(|| batch.class(index).vlan());
        let key = (audience.map_or(0, |audience| audience.place(index)), vlan.unwrap_or(0));
        if let Some((_, number)) = last.filter(|(before, _)| *before == key) {
            return number;
        }
        let hears = |port: &u16| audience.is_none_or(|audience| audience.hears(index, *port));
        let class = vlan.map(Class::untagged);
        let copies = |to: &Member| {
            let mirrors = switch.watch(to.owner.index()).map_or(0, |watch| watch.mirrors_out.len());
            if may_receive(to, from, class).is_ok() { 1 + mirrors as u64 } else { 0 }
        };
        let ports = switch.flooded().iter().copied().filter(hears).filter_map(|port| switch.member(port));
        let number = ports.map(copies).sum();
        *last = Some((key, number));
        number
    }
}

/// Returns the first frame of the batch that must wait for the next visit, as the flooded frames before it are as much
/// as a visit may deliver, and the work of these. Without `can_wait`, frames that have to be cut are dropped instead; the others take no longer
/// than a batch of any source. A frame that is more than that by itself has a visit of its own, up to [`ALONE`].
#[inline(never)]
pub(crate) fn bound_floods(
    batch: &mut Batch<'_>,
    from: &Member,
    switch: &Switch,
    can_wait: bool,
) -> (Option<usize>, u64) {
    let mut hearing = Hearing { from, switch, last: None };
    let looks = LOOK * switch.flooded().len() as u64;
    let (mut first, mut sum) = (0, 0);
    while let Some((destination, end)) = batch.run(first) {
        let flooded = if destination == Destination::Flood { first..end } else { end..end };
        for index in flooded {
            let work = batch.work_of(index) * hearing.of(batch, index) + looks;
            let (is_cut, is_full) = (batch.is_segmented(index), sum > 0 && sum + work > VISIT_WORK);
            if is_cut && work > ALONE || is_cut && is_full && !can_wait {
                batch.set_destination(index, Destination::Drop(DropReason::FloodLimited));
                sum += looks;
            } else if is_full && can_wait {
                return (Some(index), sum);
            } else {
                sum += work;
            }
        }
        first = end;
    }
    (None, sum)
}
