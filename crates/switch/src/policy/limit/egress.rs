//! What a port may be given: a limit, and each sender's share of it.

use std::sync::{Arc, Mutex, PoisonError};

use super::bucket::Bucket;
use super::limiter::{Excess, Grant, Limit};
use super::shares::Share;
use super::tally::Cause;
use super::units::{BYTE, PARTS};
use super::waiting::Waiting;
use crate::frame::{Cost, Sender};
use crate::policy::congestion::{Congestion, Room};
use crate::policy::rule::Rule;

/// A loan has no queues.
const LENT: u8 = 0;
/// Bytes of a frame, when it is not known which.
const FRAME: usize = 2048;

/// A port's limit on what it is given. Used by whoever holds the port's output.
#[derive(Debug)]
pub struct Egress {
    limit: Limit,
    /// By the sender's index.
    senders: Arc<Mutex<Vec<Had>>>,
    /// Shares of what a bucket lends that several ports share.
    lent: Arc<Congestion>,
}

#[derive(Debug, Default)]
struct Had {
    bits: Share,
    frames: Share,
    waiting: Waiting,
}

/// What one sender may give the port now, of the frames that it has.
pub(crate) struct Admitted {
    /// The first so many of them, and what they take.
    pub(crate) given: usize,
    pub(crate) cost: Cost,
    pub(crate) refused: u64,
    /// Why, if any were.
    pub(crate) cause: Cause,
}

impl Egress {
    /// No sender has had anything yet.
    #[must_use]
    pub fn new(limit: Limit) -> Egress {
        Egress { limit, senders: Arc::default(), lent: Arc::default() }
    }

    /// Another limit, with what each sender has had.
    #[must_use]
    pub fn changed(&self, limit: Limit) -> Egress {
        Egress { limit, senders: Arc::clone(&self.senders), lent: Arc::clone(&self.lent) }
    }

    /// What the limit is.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// What `from`, which has frames for it, may give now.
    pub(crate) fn room(&self, from: Sender, now: u64) -> Grant {
        self.with(from, |sender| {
            let grant = self.limit.open(now);
            let room = self.most(&grant, sender, from, now);
            self.limit.settle(&grant, 0, 0);
            if !room.is_nothing() {
                let waited = sender.waiting.end(now);
                if waited > 0 {
                    self.limit.count_wait(waited, sender.waiting.is_shared());
                }
            }
            room
        })
    }

    /// Frames that `from` has for it wait until this time.
    pub(crate) fn begin_wait(&self, from: Sender, until: u64, cause: Cause, now: u64) {
        self.with(from, |sender| sender.waiting.begin(now, until, cause.is_shared()));
        if self.limit.shared.is_some() {
            self.lent.waits(from, LENT, until, now);
        }
    }

    /// Of frames that take so much each, the first that `from` may give now. They count as given. `sum` is how many they are and
    /// what they take together, where that is known. The first `sure` of them were found to have room, and are given even if
    /// another sender took it meanwhile: what is given so is owed, and others wait until it is paid.
    pub(crate) fn admit(
        &self,
        from: Sender,
        costs: impl Iterator<Item = Cost> + Clone,
        sum: Option<(usize, Cost)>,
        sure: usize,
        now: u64,
    ) -> Admitted {
        self.with(from, |sender| {
            let grant = self.limit.open(now);
            let most = self.most(&grant, sender, from, now);
            let admitted = match sum {
                Some((given, cost)) if cost.bytes <= most.bytes && cost.frames <= most.frames => {
                    Admitted { given, cost, refused: 0, cause: Cause::Bits }
                }
                _ => {
                    let owed: Cost = costs.clone().take(sure).sum();
                    let admitted = first(costs, most.bytes.max(owed.bytes), most.frames.max(owed.frames));
                    Admitted { cause: most.cause(admitted.cost.frames), ..admitted }
                }
            };
            if admitted.refused > 0 {
                self.limit.refuse(admitted.cause, admitted.refused);
            }
            let Cost { bytes, frames } = admitted.cost;
            self.limit.settle(&grant, bytes, frames);
            if let Some(bucket) = self.shared_bits() {
                bucket.served(&sender.bits, from.weight, bytes as i64 * BYTE);
            }
            if let Some(bucket) = &self.limit.own.frames {
                bucket.served(&sender.frames, from.weight, frames as i64 * PARTS);
            }
            if self.limit.shared.is_some() && (admitted.refused > 0 || self.lent.is_on(now)) {
                self.lent.served(from, LENT, bytes, admitted.refused > 0, now);
            }
            admitted
        })
    }

    /// When it is worth for a sender to ask again.
    pub(crate) fn resume_at(&self, now: u64) -> u64 {
        let (batch, frames) = self.limit.batch();
        let buckets = [(self.shared_bits(), batch), (self.limit.own.frames.as_ref(), frames)];
        let pause = buckets.into_iter().filter_map(|(bucket, batch)| Some(bucket?.pause(batch))).max();
        self.limit.resume_at(now).max(now + pause.unwrap_or(0))
    }

    fn with<T>(&self, from: Sender, look: impl FnOnce(&Had) -> T) -> T {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::from(from.owner.index());
        if senders.len() <= index {
            senders.resize_with(index + 1, Had::default);
        }
        look(&senders[index])
    }

    /// The lesser of what was granted and the sender's share.
    fn most(&self, grant: &Grant, sender: &Had, from: Sender, now: u64) -> Grant {
        let allowed = |bucket: Option<&Bucket>, share: &Share, unit: i64| {
            let Some(bucket) = bucket else { return u64::MAX };
            (bucket.allowed(share, from.weight, now) as u64).div_ceil(unit as u64)
        };
        let bytes = allowed(self.shared_bits(), &sender.bits, BYTE);
        let own = grant.within(bytes, allowed(self.limit.own.frames.as_ref(), &sender.frames, PARTS));
        self.most_of_loan(own, from, now)
    }

    /// The same, and what of a shared bucket's loan may go to `from`.
    fn most_of_loan(&self, grant: Grant, from: Sender, now: u64) -> Grant {
        let Some(shared) = self.limit.shared.as_ref().filter(|_| self.lent.is_on(now)) else { return grant };
        let most = shared.rates.bits.as_ref().map_or(0, |bucket| bucket.most(self.limit.weight));
        let most = self.limit.ceiling.as_ref().map_or(most, |ceiling| most.min(ceiling.burst_parts()));
        let room = Room { free: grant.bytes as usize, of: (most / BYTE) as usize, adds_up: true, frame: FRAME };
        let (bytes, others) = self.lent.most(from, LENT, Some(room), now);
        grant.within(bytes.min(others), u64::MAX)
    }

    /// The bucket of which senders have shares: the one that everything given comes out of.
    fn shared_bits(&self) -> Option<&Bucket> {
        match self.limit.shared {
            None => self.limit.own.bits.as_ref(),
            Some(_) => self.limit.ceiling.as_ref(),
        }
    }
}

impl Rule for Egress {
    /// What a port may be given does not grow within a pass. Where senders wait, what was refused is no sign of what may follow.
    fn may_drop_unread(&self) -> bool {
        self.limit.excess == Excess::Drop
    }
}

/// The first frames that begin before so many bytes and frames.
pub(crate) fn first(costs: impl Iterator<Item = Cost>, most: u64, most_frames: u64) -> Admitted {
    let mut admitted = Admitted { given: 0, cost: Cost::default(), refused: 0, cause: Cause::Bits };
    for cost in costs {
        if admitted.cost.bytes < most && admitted.cost.frames < most_frames {
            admitted.given += 1;
            admitted.cost += cost;
        } else {
            admitted.refused += 1;
        }
    }
    admitted
}
