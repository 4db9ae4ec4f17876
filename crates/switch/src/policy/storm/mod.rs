//! Storm control: how much of what goes to many a port may send.

use std::sync::Arc;

use crate::batch::{Batch, Destination};
use crate::frame::{Cost, DropReason, Mac};
use crate::policy::limit::{Grant, Rates, Tally};
use crate::policy::rule::Rule;
use crate::time::Time;

/// Limits on frames to many, by class; none: as many as there are.
#[derive(Clone, Debug, Default)]
pub struct Storm {
    /// To ff:ff:ff:ff:ff:ff.
    pub broadcast: Rates,
    /// To other group addresses.
    pub multicast: Rates,
    /// To stations whose port is not known, where these are flooded.
    pub unknown_unicast: Rates,
    tallies: Arc<[Tally; 3]>,
}

impl Storm {
    /// Limits that nothing has passed yet.
    #[must_use]
    pub fn new(broadcast: Rates, multicast: Rates, unknown_unicast: Rates) -> Storm {
        Storm { broadcast, multicast, unknown_unicast, tallies: Arc::default() }
    }

    /// Other limits, with what came of `before`.
    #[must_use]
    pub fn continuing(self, before: &Storm) -> Storm {
        Storm { tallies: Arc::clone(&before.tallies), ..self }
    }

    /// What came of each class: broadcast, multicast, unknown unicast.
    #[must_use]
    pub fn tallies(&self) -> &[Tally; 3] {
        &self.tallies
    }

    /// After forwarding: drops what is too much. `directed`: frames to groups may go to one port.
    pub(crate) fn limit(&self, batch: &mut Batch<'_>, directed: bool, now: &Time) {
        let limits = [&self.broadcast, &self.multicast, &self.unknown_unicast];
        // Buckets are looked at when the first frame of their class comes.
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

/// What of one class a batch may send, sends, and may not send.
struct Class {
    grant: Grant,
    cost: Cost,
    refused: u64,
}

impl Rule for Storm {
    /// Each frame to many is charged.
    fn may_drop_unread(&self) -> bool {
        false
    }
}
