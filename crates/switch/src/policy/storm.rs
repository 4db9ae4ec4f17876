//! Storm control: how much of what goes to many a port may send.

use super::limit::{Grant, Rates};
use crate::batch::{Batch, Destination};
use crate::counters::DropReason;
use crate::mac::Mac;
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
}

impl Storm {
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
                    Class { grant, bytes: 0, frames: 0 }
                });
                if class.grant.covers(class.bytes, class.frames) {
                    class.bytes += batch.frame_len(index) as u64;
                    class.frames += 1;
                } else {
                    batch.set_destination(index, Destination::Drop(DropReason::StormLimited));
                }
            }
        }
        for (class, rates) in classes.into_iter().zip(limits) {
            if let Some(class) = class {
                rates.take(class.bytes, class.frames);
            }
        }
    }
}

/// What of one class a batch may send, and sends.
struct Class {
    grant: Grant,
    bytes: u64,
    frames: u64,
}
