//! Storm control: limits on broadcast, multicast and unknown unicast from a port.

use std::sync::Arc;

use crate::batch::{Batch, Destination};
use crate::frame::{Cost, DropReason, Mac};
use crate::policy::limit::{Grant, Rates, Tally};
use crate::policy::rule::Rule;
use crate::time::Time;

/// Limits by class of frames. An empty [`Rates`] is no limit.
#[derive(Clone, Debug, Default)]
pub struct Storm {
    /// Frames for ff:ff:ff:ff:ff:ff.
    pub broadcast: Rates,
    /// Frames for other group addresses.
    pub multicast: Rates,
    /// Frames for stations whose port is not known, if these are flooded.
    pub unknown_unicast: Rates,
    tallies: Arc<[Tally; 3]>,
}

impl Storm {
    /// Limits with counters at zero.
    #[must_use]
    pub fn new(broadcast: Rates, multicast: Rates, unknown_unicast: Rates) -> Storm {
        Storm { broadcast, multicast, unknown_unicast, tallies: Arc::default() }
    }

    /// These limits, with the counters of `before`.
    #[must_use]
    pub fn continuing(self, before: &Storm) -> Storm {
        Storm { tallies: Arc::clone(&before.tallies), ..self }
    }

    /// The counters of each class: broadcast, multicast, unknown unicast.
    #[must_use]
    pub fn tallies(&self) -> &[Tally; 3] {
        &self.tallies
    }

    /// Drops frames beyond the limits, after forwarding. `directed`: frames for groups may go to a single port.
    pub(crate) fn limit(&self, batch: &mut Batch<'_>, directed: bool, now: &Time) {
        let limits = [&self.broadcast, &self.multicast, &self.unknown_unicast];
        // A bucket is opened at the first frame of its class.
        let mut classes: [Option<Class>; 3] = [const { None }; 3];
        let mut first = 0;
        while let Some((destination, end)) = batch.run(first) {
            let run = first..end;
            first = end;
            match destination {
                Destination::Drop(_) => continue,
                Destination::Port(_) if !directed => continue,
                Destination::Port(_) | Destination::Flood => {}
            }
            for index in run {
                let place = match (destination, Mac::destination(batch.head(index))) {
                    (_, Mac::BROADCAST) => 0,
                    (_, mac) if mac.is_group() => 1,
                    (Destination::Flood, _) => 2,
                    _ => continue,
                };
                let class = classes[place].get_or_insert_with(|| {
                    let grant = limits[place].open(now.nanoseconds);
                    Class { grant, cost: Cost::default(), refused: 0 }
                });
                if class.grant.covers(class.cost) {
                    class.cost += batch.cost_of(index);
                } else {
                    class.refused += 1;
                    batch.set_destination(index, Destination::Drop(DropReason::StormLimited));
                }
            }
        }
        for (class, (rates, tally)) in classes.into_iter().zip(limits.into_iter().zip(&*self.tallies)) {
            if let Some(Class { grant, cost, refused }) = class {
                rates.take(cost.bytes, cost.frames);
                tally.pass_alone(cost.bytes, cost.frames);
                if refused > 0 {
                    tally.refuse(grant.cause(cost.frames), refused);
                }
            }
        }
    }
}

/// One class in a batch: its grant, the cost of frames that pass, and the number of refused frames.
struct Class {
    grant: Grant,
    cost: Cost,
    refused: u64,
}

impl Rule for Storm {
    /// Each such frame is charged.
    fn may_drop_unread(&self) -> bool {
        false
    }
}
